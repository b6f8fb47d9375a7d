"""Specifications of CTranslate2 for language models, layer by layer: GPT-2, Llama, Mistral, Qwen, Gemma, Phi, GPT-NeoX,
Bloom … Of the choices that `headway.models.decoder` has, what CTranslate2 lacks is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headway.errors import InputError, refuse
from headway.extras import wanted
from headway.folder import Loaded
from headway.hub.families.ctranslate2_parts import (
    Engine,
    activation,
    added_positions,
    describe,
    entries,
    feed_forward,
    is_pre_norm,
    linear,
    norm,
    plain,
)
from headway.models import arrangements, parts, rotary_scaling
from headway.models import decoder_parts as own
from headway.models.decoder import DecoderConfig
from headway.models.gpt import GPTConfig
from headway.models.llama import LlamaConfig


def _of_gpt(config: GPTConfig) -> DecoderConfig:
    """The same choices, said as the family that has them all says them."""
    position = config.position
    return DecoderConfig(
        config.layers, config.width, config.inner, config.heads, config.shared_heads, feed_forward=config.feed_forward,
        position=own.Turned(position.base) if isinstance(position, parts.Rotary) else position,  # type: ignore[arg-type]
        norm=arrangements.LayerNorm(config.norm.epsilon), max_length=config.max_length,
        arrangement=arrangements.Pre() if is_pre_norm(config.norm) else arrangements.Post(),
    )  # fmt: skip


def _of_llama(config: LlamaConfig) -> DecoderConfig:
    return DecoderConfig(
        config.layers, config.width, config.inner, config.heads, config.shared_heads, config.head_width,
        bias=config.bias, tied=config.tied, embedding=own.Tokens(None if config.scaled else 1.0),
        position=own.Turned(config.base, scaling=config.scaling), norm=config.norm, feed_forward=config.feed_forward,
        window=config.window, windowed=tuple(range(config.windowed_from, config.layers)) if config.window else (),
        max_length=config.max_length,
    )  # fmt: skip


def _specification(loaded: Loaded, config: DecoderConfig) -> Any:
    specs, vocabulary = wanted("ctranslate2.specs", "ctranslate2"), loaded.card.sizes[0]
    model: Any = loaded.model
    _check(config)
    spec = specs.TransformerDecoderModelSpec.from_config(
        config.layers, config.heads, **_arranged(config.arrangement), **_embedded(config.embedding),
        **_placed(config.position), **activation(config.feed_forward),  # type: ignore[arg-type]
    )  # fmt: skip
    decoder = spec.decoder
    _fill_embedding(decoder, model, config, vocabulary)
    if hasattr(decoder, "layer_norm"):
        decoder.layer_norm = norm(model.decoder.final)
    for number, (layer, block) in enumerate(zip(decoder.layer, model.decoder.layers, strict=True)):
        layer.self_attention = _attention(config, number, block.attention, hasattr(layer.self_attention, "layer_norm"))
        feed_forward(layer.ffn, block.feed_forward, _share(config))
        for place, part in NORMS[type(config.arrangement)](block).items():
            *inside, name = place.split(".")
            setattr(getattr(layer, inside[0]) if inside else layer, name, norm(part))
    _fill_head(decoder, model, config, vocabulary)
    names = entries(loaded.source_tokenizer, vocabulary)
    spec.register_vocabulary(names)
    describe(spec.config, config.norm.epsilon, names, loaded.source_tokenizer, loaded.source_tokenizer.end)
    return spec


def _check(config: DecoderConfig) -> None:
    """Whether CTranslate2 has these choices."""
    lacks = {
        "arrangement": type(config.arrangement) not in NORMS,
        "query_key_norm": not isinstance(config.query_key_norm, arrangements.NoNorm | arrangements.HeadNorm),
        "score": isinstance(config.score, own.Capped),
        "feed_forward": isinstance(config.feed_forward, own.Experts),
        "pattern": config.pattern.endless,
    }
    for slot in (slot for slot, lacking in lacks.items() if lacking):
        raise InputError(
            f"CTranslate2 does not have what this model computes: model.{slot}={getattr(config, slot).name}"
        )
    if config.windowed and 0 < config.window < config.max_length:
        raise InputError(f"CTranslate2 does not have layers that see {config.window} tokens alone: model.window")
    if isinstance(config.embedding, own.NormedTokens) and config.embedding.epsilon != config.norm.epsilon:
        raise InputError("CTranslate2 has one epsilon for all norms: model.embedding.epsilon is another")


# Where each arrangement has its norms: their names in CTranslate2, and the parts of a block.
NORMS: dict[Any, Any] = {
    arrangements.Pre: lambda block: {
        "self_attention.layer_norm": block.around_attention.before,
        "ffn.layer_norm": block.around_feed_forward.before,
    },
    arrangements.Post: lambda block: {
        "self_attention.layer_norm": block.around_attention.outside,
        "ffn.layer_norm": block.around_feed_forward.outside,
    },
    arrangements.Sandwich: lambda block: {
        "input_layer_norm": block.around_attention.before,
        "post_attention_layer_norm": block.around_attention.after,
        "pre_feedforward_layer_norm": block.around_feed_forward.before,
        "post_feedforward_layer_norm": block.around_feed_forward.after,
    },
    arrangements.Parallel: lambda block: (
        {"shared_layer_norm": block.before}
        if block.before_feed_forward is None
        else {"input_layer_norm": block.before, "post_attention_layer_norm": block.before_feed_forward}
    ),
}


def _arranged(part: arrangements.Arrangement) -> dict[str, Any]:
    if isinstance(part, arrangements.Parallel):
        return {"parallel_residual": True, "shared_layer_norm": part.norms == 1}
    return {
        "pre_norm": not isinstance(part, arrangements.Post),
        "pre_post_layer_norm": isinstance(part, arrangements.Sandwich),
    }


def _embedded(part: own.Embedding) -> dict[str, bool]:
    return {
        "layernorm_embedding": isinstance(part, own.NormedTokens),
        "project_in_out": isinstance(part, own.NarrowTokens),
    }


def _placed(part: Any) -> dict[str, Any]:
    if isinstance(part, own.Turned):
        return {"rotary_dim": 0}
    if not isinstance(part, own.KeyBiases):
        return {}
    refuse(part.precision != "float32", f"CTranslate2 does not round biases of positions to {part.precision}")
    return {"alibi": True, "alibi_use_positive_positions": True, "scale_alibi": part.over_root}


def _fill_embedding(spec: Any, model: Any, config: DecoderConfig, vocabulary: int) -> None:
    embed = model.embed
    spec.embeddings.weight = plain(embed.table.weight[:vocabulary])
    spec.scale_embeddings = np.float32(embed.scale)
    if hasattr(spec, "position_encodings"):
        spec.position_encodings.encodings = added_positions(embed.position, config.max_length, config.width)
    if hasattr(spec, "layernorm_embedding"):
        spec.layernorm_embedding = norm(embed.norm)
    if hasattr(spec, "project_in"):
        linear(spec.project_in, embed.widen)
        linear(spec.project_out, model.into_head[0])


def _fill_head(spec: Any, model: Any, config: DecoderConfig, vocabulary: int) -> None:
    logits, weight_VD = config.logits, model.output.weight[:vocabulary]
    if logits.bias:
        weight_VD, bias_V = weight_VD[:, :-1], weight_VD[:, -1]
        spec.projection.bias = plain(bias_V)
    else:
        weight_VD = weight_VD * (logits.scale / logits.divisor)
    spec.projection.weight = plain(weight_VD)
    if logits.cap:
        spec.final_logit_softcapping = np.float32(logits.cap)


def _share(config: DecoderConfig) -> float:
    """What a sublayer's output is multiplied with before it is added."""
    return config.arrangement.scale if isinstance(config.arrangement, arrangements.Pre) else 1.0


def _attention(config: DecoderConfig, number: int, part: Any, has_norm: bool) -> Any:
    specs = wanted("ctranslate2.specs.attention_spec", "ctranslate2")
    head_width = config.head_width or config.width // config.heads
    near = number in config.windowed and config.near_position is not None
    position: Any = config.near_position if near else config.position
    turns = isinstance(position, own.Turned) and number not in config.unplaced
    spec = specs.MultiHeadAttentionSpec(
        self_attention=True, has_norm=has_norm, head_dim=head_width,
        num_heads_kv=config.shared_heads or config.heads, qk_norm=hasattr(part, "query_norm"),
        **_turned(position, head_width) if turns else {},
    )  # fmt: skip
    factor = head_width**-0.5 if config.score.factor is None else config.score.factor
    spec.queries_scale = np.float32(factor * (position.scaling.gain**2 if turns else 1.0))
    if turns:
        _scale_rotary(spec, position, head_width)
    linear(spec.linear[0], part.qkv)
    linear(spec.linear[1], part.output, _share(config))
    if hasattr(part, "query_norm"):
        spec.q_norm, spec.k_norm = norm(part.query_norm.norm), norm(part.key_norm.norm)
    return spec


def _turned(position: own.Turned, head_width: int) -> dict[str, Any]:
    return {
        "rotary_dim": position.turned or head_width,
        "rotary_interleave": position.neighbours,
        "rotary_base": position.base,
    }


def _scale_rotary(spec: Any, position: own.Turned, head_width: int) -> None:
    """Frequencies other than base^(−2i/K): with the scaling "su" CTranslate2 divides each by a factor of its own."""
    scaling, width = position.scaling, position.turned or head_width
    plain_I = rotary_scaling.Unscaled().frequencies(width, position.base)
    factors_I = plain_I / scaling.frequencies(width, position.base)
    if scaling.gain != 1 and width != head_width:
        raise InputError("CTranslate2 cannot stretch a part of each head: model.position.scaling")
    if (factors_I == 1).all():
        return
    kinds = wanted("ctranslate2.specs.attention_spec", "ctranslate2").RotaryScalingType
    # These attributes are none that CTranslate2's class has unless it is built with them.
    vars(spec).update(
        rotary_scaling_type=np.int8(kinds.Su),
        rotary_scaling_long_factor=plain(factors_I),
        rotary_scaling_short_factor=plain(factors_I),
    )


def _engine(as_decoder: Callable[[Any], DecoderConfig]) -> Engine:
    return Engine("Generator", "generate", lambda loaded: _specification(loaded, as_decoder(loaded.card.config)))


GPT, LLAMA, DECODER = _engine(_of_gpt), _engine(_of_llama), _engine(lambda config: config)
