"""Gemma 2 (Gemma Team 2024) and the text part of Gemma 3 (Gemma Team 2025) in the Hugging Face format ↔
`headway.models.decoder`. The first Gemma is in `llama.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.errors import refuse
from headway.hub.config_keys import Field, Keys, NoCounterpart, choice
from headway.hub.families import windows
from headway.hub.families.decoders import BASE, BIAS, HEAD_WIDTH, RMS, SIZES, foreign, table
from headway.hub.families.foreign import Usual
from headway.hub.families.llama import ACTIVATIONS, BRACKETED
from headway.hub.families.rotary import LENGTH, SHARE, THETA, scaling_in, scaling_out, turned
from headway.models import arrangements
from headway.models import decoder_parts as own
from headway.models.llama import OneRmsNorm
from headway.models.parts import Gated

BOUND, QUERY_SCALE = "attn_logit_softcapping", "query_pre_attn_scalar"


def _bound(keys: Keys, key: str, default: float) -> float:
    """A bound that null turns off, which is not the default everywhere."""
    found = keys.number(key, None if key in keys.facts else default or None)
    refuse(found is not None and found <= 0, f"{keys.where}: {key} is {found}, it must be above 0")
    return found or 0.0


def _factor(keys: Keys) -> float:
    scale = keys.number(QUERY_SCALE, 256)
    refuse(scale <= 0, f"{keys.where}: {QUERY_SCALE} is {scale}, it must be above 0")
    return float(scale**-0.5)


def _capped_in(keys: Keys) -> own.Scaled | own.Capped:
    bound = _bound(keys, BOUND, 50.0)
    return own.Capped(_factor(keys), bound) if bound else own.Scaled(_factor(keys))


def _scale_out(score: Any, config: Any) -> dict[str, Any]:
    factor = (config.head_width or config.width // config.heads) ** -0.5 if score.factor is None else score.factor
    if factor <= 0:
        raise NoCounterpart
    scale = round(factor**-2)
    if scale < 1 or float(scale) ** -0.5 != factor:
        raise NoCounterpart
    return {QUERY_SCALE: scale}


def _capped_out(score: Any, config: Any) -> dict[str, Any]:
    return _scale_out(score, config) | {BOUND: getattr(score, "cap", None)}


def _logits(default: float) -> Field:
    key = "final_logit_softcapping"
    return Field(lambda keys: _bound(keys, key, default), lambda cap, config: {key: cap or None})


FIELDS = SIZES | RMS | HEAD_WIDTH | BIAS | {
    "feed_forward.activation": choice("hidden_activation", "gelu_pytorch_tanh", ACTIVATIONS),
}  # fmt: skip
LAYER = {
    "around_attention.after": "post_attention_layernorm",
    "around_feed_forward.before": "pre_feedforward_layernorm",
    "around_feed_forward.after": "post_feedforward_layernorm",
}
GEMMA2_BASE = replace(
    BASE, norm=OneRmsNorm(), arrangement=arrangements.Sandwich(), embedding=own.Tokens(scale=None),
    feed_forward=Gated(activation="gelu-tanh"),
)  # fmt: skip
DEFAULTS = {"head_dim": 256, "num_key_value_heads": 4, "tie_word_embeddings": True}
IGNORED = ("cache_implementation", "hidden_act")  # the second is no longer read
GEMMA2 = foreign(
    "gemma2", "Gemma2", GEMMA2_BASE,
    FIELDS | windows.by_layer(lambda keys, n: n % 2 == 0, 4096)
    | {"position": turned(), "score": Field(_capped_in, _capped_out), "logits.cap": _logits(30.0)},
    table(LAYER), DEFAULTS | {LENGTH: 8192}, {"use_bidirectional_attention": False}, IGNORED,
    Usual(BRACKETED, (True, False)),
)  # fmt: skip


# Gemma 3 has two rotary positions, by the kind of layer.
KINDS = {"full_attention": (THETA, 1e6), "sliding_attention": ("rope_local_base_freq", 1e4)}


def _turned_in(keys: Keys, kind: str) -> own.Turned:
    theta, default = KINDS[kind]
    given = keys.take("rope_parameters", {}, dict)
    older = keys.take("rope_scaling", {}, dict) if kind == "full_attention" else {}
    where = f"{keys.where}: rope_parameters"
    refuse(given.keys() - KINDS.keys(), f"{where} must be one object for each of {', '.join(KINDS)}")
    inner = Keys(dict(Keys(given, where).take(kind, {}, dict) | older), f"{where}.{kind}")
    if keys.take(theta) is not None:
        inner.facts.setdefault(THETA, keys.take(theta))
    inner.must(SHARE, 1.0, 1)
    base = inner.number(THETA, default)
    return own.Turned(base, scaling=scaling_in(inner, keys.size(LENGTH)))


def _turned_out(position: Any, config: Any) -> dict[str, Any]:
    both = {"full_attention": position, "sliding_attention": config.near_position}
    if any(not isinstance(one, own.Turned) or one.turned or one.neighbours for one in both.values()):
        raise NoCounterpart
    return {"rope_parameters": {kind: scaling_out(one.scaling, one.base) for kind, one in both.items()}}


def _every_sixth(keys: Keys, number: int) -> bool:
    """Whether a layer has a window: all but every sixth, unless the file says another number."""
    return bool((number + 1) % keys.size("sliding_window_pattern", 6))


GEMMA3 = foreign(
    "gemma3_text", "Gemma3",
    replace(GEMMA2_BASE, query_key_norm=arrangements.HeadNorm(), near_position=own.Turned(), score=own.Scaled()),
    FIELDS | windows.by_layer(_every_sixth, 4096) | {
        "position": Field(lambda keys: _turned_in(keys, "full_attention"), _turned_out),
        "near_position": Field(lambda keys: _turned_in(keys, "sliding_attention"), lambda position, config: {}),
        "score.factor": Field(
            _factor, lambda factor, config: _scale_out(config.score, config)
        ),
        "logits.cap": _logits(0.0),
    },
    table(LAYER), DEFAULTS | {LENGTH: 131_072}, {"use_bidirectional_attention": False, BOUND: None},
    (*IGNORED, "sliding_window_pattern", "_sliding_window_pattern", "rope_local_base_freq"),
    Usual(BRACKETED, (True, False)),
)  # fmt: skip
GEMMA3 = replace(GEMMA3, architectures=("Gemma3ForCausalLM", "Gemma3TextModel"))
