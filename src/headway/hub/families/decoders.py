"""Decoders with Llama's names in the Hugging Face format ↔ `headway.models.decoder`: Qwen3, OLMo 2, Phi-3, Granite,
SmolLM3, and the mixtures of experts Mixtral and Qwen2-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import InputError, refuse
from headway.hub.config_keys import Field, Fields, Keys, NoCounterpart, choice, flag, number, size
from headway.hub.families import windows
from headway.hub.families.foreign import Foreign, Usual
from headway.hub.families.llama import ACTIVATIONS, head_width
from headway.hub.families.llama import FIELDS as LLAMA_FIELDS
from headway.hub.families.rotary import LENGTH, turned
from headway.hub.names import Table, below
from headway.models import arrangements
from headway.models import decoder_parts as own
from headway.models.decoder import DecoderConfig

# As Llama says them.
SIZES = {name: LLAMA_FIELDS[name] for name in (
    "layers", "width", "inner", "heads", "shared_heads", "attention_dropout", "tied", "max_length",
)}  # fmt: skip
RMS = {"norm.epsilon": LLAMA_FIELDS["norm.epsilon"]}
GATE = {"feed_forward.activation": choice("hidden_act", "silu", ACTIVATIONS | {"swish": "silu"})}
HEAD_WIDTH = {"head_width": head_width(said=True)}
BIAS = {"bias": flag("attention_bias", False, yes="all", no="none")}
GATE_BIAS = {"feed_forward.biased": flag("mlp_bias", False)}

LAYER = {
    "attention.qkv": "self_attn.{q,k,v}_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm.norm": "self_attn.q_norm",
    "attention.key_norm.norm": "self_attn.k_norm",
    "feed_forward.expand": "mlp.{gate,up}_proj",
    "feed_forward.contract": "mlp.down_proj",
    "around_attention.before": "input_layernorm",
    "around_feed_forward.before": "post_attention_layernorm",
    "before": "input_layernorm",
    "before_feed_forward": "post_attention_layernorm",
}


def table(layer: dict[str, str], more: dict[str, str] | None = None, **how: Any) -> Table:
    """Llama's names, but for these lines: of a `layer`, and `more`."""
    names = {
        "embed.table": "model.embed_tokens",
        "decoder.final": "model.norm",
        "output": "lm_head",
        "output.table": "lm_head",
        "output.rest_VC": "lm_head.bias₀",
        **below("decoder.layers.*.", "model.layers.*.", LAYER | layer),
    }
    copies = {"lm_head.weight": "model.embed_tokens.weight"}
    # Frequencies and masks that older programs kept beside the weights.
    useless = (r"\.rotary_emb\.inv_freq$", r"\.attn\.bias$", r"\.masked_bias$")
    return Table(names | (more or {}), **{"prefix": "model.", "copies": copies, "useless": useless} | how)


def foreign(
    model_type: str, name: str, base: DecoderConfig, fields: Fields, names: Any,
    defaults: Mapping[str, Any] | None = None, must: Mapping[str, Any] | None = None, ignored: tuple[str, ...] = (),
    usual: Usual | None = None,
) -> Foreign:  # fmt: skip
    """`names`: a table, or a function of the config."""
    find = names if callable(names) else lambda config: names
    return Foreign(
        model_type, (f"{name}ForCausalLM", f"{name}Model"), base, fields, lambda config, head: find(config),
        defaults or {}, must=must or {}, ignored=(*ignored, "pretraining_tp"), usual=usual or Usual(),
        # Some programs' default for padding is an id that a small vocabulary does not have.
        head_out=lambda head, config: {"pad_token_id": None},
    )  # fmt: skip


BASE = DecoderConfig()
QWEN3 = foreign(
    "qwen3", "Qwen3", replace(BASE, query_key_norm=arrangements.HeadNorm()),
    SIZES | RMS | GATE | HEAD_WIDTH | BIAS | {"position": turned()}
    | windows.by_layer(lambda keys, n: n >= keys.take("max_window_layers", 28, int), 4096, switch=True),
    table({}),
    {LENGTH: 32768, "num_key_value_heads": 32, "head_dim": 128}, ignored=("max_window_layers",),
)  # fmt: skip

OLMO2_LAYER = {
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "around_attention.after": "post_attention_layernorm",
    "around_feed_forward.after": "post_feedforward_layernorm",
}
OLMO2 = foreign(
    "olmo2", "Olmo2", replace(BASE, arrangement=arrangements.Inside(), query_key_norm=arrangements.WholeNorm()),
    SIZES | RMS | GATE | HEAD_WIDTH | BIAS | {"position": turned()}, table(OLMO2_LAYER),
    {LENGTH: 2048, "rms_norm_eps": 1e-5},
)  # fmt: skip

# Its longer contexts have frequencies for short texts and for long ones, which headway does not have.
PHI3 = foreign(
    "phi3", "Phi3", BASE,
    SIZES | RMS | GATE | HEAD_WIDTH | {"position": turned(share=1.0, kinds=("default",))} | windows.every_layer()
    | {"dropout": number("resid_pdrop", 0.0, also="embd_pdrop")},
    table({"attention.qkv": "self_attn.qkv_proj", "feed_forward.expand": "mlp.gate_up_proj"}),
    {LENGTH: 4096, "rms_norm_eps": 1e-5}, ignored=("embd_pdrop", "original_max_position_embeddings"),
)  # fmt: skip


def _factor(key: str, positive: bool = False) -> Field:
    """A factor that is 1 where no key says it; one that depends on a width has no counterpart."""

    def read(keys: Keys) -> float:
        value = float(keys.number(key, 1.0))
        refuse(positive and value <= 0, f"{keys.where}: {key} is {value}, it must be above 0")
        return value

    def write(value: float | None, config: Any) -> dict[str, Any]:
        if value is None:
            raise NoCounterpart
        return {key: value}

    return Field(read, write)


GRANITE = foreign(
    "granite", "Granite", BASE,
    SIZES | RMS | GATE | GATE_BIAS | HEAD_WIDTH | BIAS | {
        "position": turned(),
        "embedding.scale": _factor("embedding_multiplier"),
        "score.factor": _factor("attention_multiplier", positive=True),
        "arrangement.scale": number("residual_multiplier", 1.0),
        "logits.divisor": _factor("logits_scaling", positive=True),
    },
    table({}), {LENGTH: 2048},
)  # fmt: skip


def _unplaced_in(keys: Keys) -> tuple[int, ...]:
    """no_rope_layers has a 1 for each layer that has positions; by default every fourth has none."""
    layers, every = keys.size("num_hidden_layers"), keys.size("no_rope_layer_interval", 4)
    placed = keys.take("no_rope_layers", [int((n + 1) % every != 0) for n in range(layers)], list)
    if len(placed) != layers or any(one not in (0, 1) for one in placed):
        raise InputError(f"{keys.where}: no_rope_layers must be 0 or 1 for each of {layers} layers")
    return tuple(number for number, one in enumerate(placed) if not one)


def _unplaced_out(unplaced: tuple[int, ...], config: Any) -> dict[str, Any]:
    return {"no_rope_layers": [int(number not in unplaced) for number in range(config.layers)]}


SMOLLM3 = foreign(
    "smollm3", "SmolLM3", BASE,
    SIZES | RMS | GATE | GATE_BIAS | HEAD_WIDTH | BIAS
    | {"position": turned(base=2e6), "unplaced": Field(_unplaced_in, _unplaced_out)}
    | windows.by_layer(lambda keys, n: n in _unplaced_in(keys) and bool(keys.take("sliding_window")), switch=True),
    table({}), {LENGTH: 32768, "num_key_value_heads": 4, "tie_word_embeddings": True},
)  # fmt: skip


# Mixtures of experts. Of training alone: a loss that spreads the tokens over them, and noise.
EXPERTS = {
    "feed_forward.chosen": size("num_experts_per_tok", 2),
    "feed_forward.activation": choice("hidden_act", "silu", ACTIVATIONS | {"swish": "silu"}),
}
TRAINING = ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")


def _mixtral_names(config: DecoderConfig) -> Table:
    assert isinstance(config.feed_forward, own.Experts)
    moe = f"block_sparse_moe.experts.[{config.feed_forward.count}]"
    layer = {
        "feed_forward.router": "block_sparse_moe.gate",
        "feed_forward.expand_EFD": f"{moe}.w{{1,3}}.weight",
        "feed_forward.contract_EDF": f"{moe}.w2.weight",
    }
    return table(layer)


MIXTRAL = foreign(
    "mixtral", "Mixtral", replace(BASE, feed_forward=own.Experts()),
    SIZES | RMS | EXPERTS | HEAD_WIDTH | {"position": turned(base=1e6)} | windows.every_layer()
    | {"feed_forward.count": size("num_local_experts", 8)},
    _mixtral_names, {LENGTH: 4096 * 32, "rms_norm_eps": 1e-5, "num_key_value_heads": 8}, ignored=TRAINING,
)  # fmt: skip


def _qwen2_moe_names(config: DecoderConfig) -> Table:
    assert isinstance(config.feed_forward, own.Experts)
    moe = f"mlp.experts.[{config.feed_forward.count}]"
    layer = {
        "feed_forward.router": "mlp.gate",
        "feed_forward.expand_EFD": f"{moe}.{{gate,up}}_proj.weight",
        "feed_forward.contract_EDF": f"{moe}.down_proj.weight",
        "feed_forward.always.expand": "mlp.shared_expert.{gate,up}_proj",
        "feed_forward.always.contract": "mlp.shared_expert.down_proj",
        "feed_forward.share": "mlp.shared_expert_gate",
    }
    return table(layer)


def _every_layer_sparse(keys: Keys) -> int:
    """Layers without experts would have an inner width of their own."""
    keys.must("decoder_sparse_step", 1)
    keys.must("mlp_only_layers", [])
    return keys.size("num_experts", 60)


def _count_out(count: int, config: DecoderConfig) -> dict[str, Any]:
    if config.bias not in ("qkv", "none"):
        raise NoCounterpart
    return {"num_experts": count}


QWEN2_MOE = foreign(
    "qwen2_moe", "Qwen2Moe", replace(BASE, feed_forward=own.Experts(shared=1)),
    SIZES | RMS | EXPERTS | {
        "position": turned(),
        "inner": size("moe_intermediate_size", 1408),
        "bias": flag("qkv_bias", True, yes="qkv", no="none"),
        "feed_forward.count": Field(_every_layer_sparse, _count_out),
        "feed_forward.shared": size("shared_expert_intermediate_size", 5632),
        "feed_forward.normalized": flag("norm_topk_prob", False),
    }
    | windows.by_layer(
        lambda keys, n: n % 2 == 0 and n < keys.take("max_window_layers", 28, int), 4096, switch=True
    ),
    _qwen2_moe_names,
    {LENGTH: 32768, "num_experts_per_tok": 4, "num_key_value_heads": 16},
    ignored=(*TRAINING, "intermediate_size", "max_window_layers"),
)  # fmt: skip
