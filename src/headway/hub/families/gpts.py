"""Decoders after GPT-2 and GPT-3 in the Hugging Face format ↔ `headway.models.decoder`: GPT-Neo (Black et al. 2021),
StarCoder's GPT (Li et al. 2023), OPT (Zhang et al. 2022) and Bloom (Le Scao et al. 2022)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.errors import InputError, refuse
from headway.hub.config_keys import Field, Keys, NoCounterpart, choice, flag, number, size
from headway.hub.families.decoders import foreign, table
from headway.hub.families.layer_norm_decoders import LAYERED, NORMS, PLAIN, TANH_FIRST, packed
from headway.hub.names import Table, below
from headway.models import arrangements, parts
from headway.models import decoder_parts as own
from headway.models.decoder import DecoderConfig

# As GPT-2 says them.
SIZES = {
    "layers": size("n_layer", 12),
    "width": size("n_embd", 768),
    "inner": size("n_inner", 0, least=0),
    "heads": size("n_head", 12),
    "attention_dropout": number("attn_pdrop", 0.1),
    "max_length": size("n_positions", 1024),
}
LEARNED = replace(LAYERED, position=parts.Learned(), feed_forward_bias=True)
LAYER = {
    "feed_forward.expand": "mlp.c_fc",
    "feed_forward.contract": "mlp.c_proj",
    "around_attention.before": "ln_1",
    "around_feed_forward.before": "ln_2",
}
WHOLE = {
    "embed.table": "transformer.wte",
    "embed.position.table": "transformer.wpe",
    "decoder.final": "transformer.ln_f",
}
HOW: dict[str, Any] = {
    "prefix": "transformer.", "copies": {"lm_head.weight": "transformer.wte.weight"},
    "useless": (r"\.attn\.(attention\.)?(bias|masked_bias)$",),
}  # fmt: skip


def _kinds(keys: Keys) -> list[str]:
    """global or local for each layer: [[["global", "local"], 12]] is 24 of them in turn."""
    given = keys.take("attention_types", [[["global", "local"], 12]], list)
    try:
        kinds = [kind for some, times in given for _ in range(times) for kind in some]
    except (TypeError, ValueError):
        raise InputError(
            f"{keys.where}: attention_types is {str(given)[:80]}, expected [[[kind, …], times], …]"
        ) from None
    layers = keys.size("num_layers", 24)
    if len(kinds) != layers or any(kind not in ("global", "local") for kind in kinds):
        raise InputError(f"{keys.where}: attention_types must say global or local for each of {layers} layers")
    return kinds


def _local_in(keys: Keys) -> tuple[int, ...]:
    return tuple(number for number, kind in enumerate(_kinds(keys)) if kind == "local")


def _local_out(windowed: tuple[int, ...], config: DecoderConfig) -> dict[str, Any]:
    kinds = ["local" if number in windowed else "global" for number in range(config.layers)]
    return {"attention_types": [[[kind], 1] for kind in kinds], "window_size": config.window or 256}


NEO_LAYER = LAYER | {"attention.qkv": "attn.attention.{q,k,v}_proj", "attention.output": "attn.attention.out_proj"}
GPT_NEO = foreign(
    "gpt_neo", "GPTNeo", replace(LEARNED, bias="output", score=own.Scaled(1.0)),
    {
        "layers": size("num_layers", 24),
        "width": size("hidden_size", 2048),
        "inner": size("intermediate_size", 0, least=0),
        "heads": size("num_heads", 16),
        "dropout": number("resid_dropout", 0.0, also="embed_dropout"),
        "attention_dropout": number("attention_dropout", 0.0),
        "tied": flag("tie_word_embeddings", True),
        "norm.epsilon": number("layer_norm_epsilon", 1e-5),
        "feed_forward": choice("activation_function", "gelu_new", PLAIN),
        "window": Field(
            lambda keys: keys.size("window_size", 256) if _local_in(keys) else 0, lambda window, config: {}
        ),
        "windowed": Field(_local_in, _local_out),
        "max_length": size("max_position_embeddings", 2048),
    },
    table({}, WHOLE | below("decoder.layers.*.", "transformer.h.*.", NEO_LAYER), **HOW),
    ignored=(
        "attention_layers", "embed_dropout", "classifier_dropout", "summary_type", "summary_use_proj",
        "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "gradient_checkpointing",
        "window_size",
    ),
)  # fmt: skip


def _bigcode_names(config: DecoderConfig) -> Table:
    layer = LAYER | {"attention.qkv": "attn.c_attn", "attention.output": "attn.c_proj"}
    return packed(WHOLE | below("decoder.layers.*.", "transformer.h.*.", layer), config=config, **HOW)


def _one_key_out(shared: int, config: DecoderConfig) -> dict[str, Any]:
    if shared not in (0, 1, config.heads):
        raise NoCounterpart
    return {"multi_query": shared == 1 or config.heads == 1}


GPT_BIGCODE = foreign(
    "gpt_bigcode", "GPTBigCode", replace(LEARNED, bias="all"),
    SIZES | {
        "shared_heads": Field(lambda keys: 1 if keys.flag("multi_query", True) else keys.size("n_head"), _one_key_out),
        "dropout": number("resid_pdrop", 0.1, also="embd_pdrop"),
        "tied": flag("tie_word_embeddings", True),
        "norm.epsilon": number("layer_norm_epsilon", 1e-5),
        "feed_forward": choice("activation_function", "gelu_pytorch_tanh", TANH_FIRST),
        "score": flag("scale_attn_weights", True, yes=own.Scaled(), no=own.Scaled(1.0)),
    },
    _bigcode_names,
    # About rounding, about memory, of a head that headway does not have, or said by multi_query too.
    ignored=(
        "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "max_batch_size",
        "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache", "validate_runner_input", "summary_type",
        "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "embd_pdrop",
        "num_key_value_heads", "n_ctx",
    ),
)  # fmt: skip


def _narrow_in(keys: Keys) -> own.Tokens | own.NarrowTokens:
    width = keys.size("hidden_size", 768)
    narrow = keys.size("word_embed_proj_dim", width)
    return own.Tokens() if narrow == width else own.NarrowTokens(narrow)


def _narrow_out(embedding: Any, config: DecoderConfig) -> dict[str, Any]:
    if embedding != own.Tokens() and not isinstance(embedding, own.NarrowTokens):
        raise NoCounterpart
    return {"word_embed_proj_dim": getattr(embedding, "width", config.width)}


OPT_LAYER = {
    "attention.qkv": "self_attn.{q,k,v}_proj",
    "attention.output": "self_attn.out_proj",
    "feed_forward.expand": "fc1",
    "feed_forward.contract": "fc2",
} | {
    f"around_{ours}.{slot}": name
    for ours, name in (("attention", "self_attn_layer_norm"), ("feed_forward", "final_layer_norm"))
    for slot in ("before", "outside")
}
OPT_NAMES = {
    "embed.table": "model.decoder.embed_tokens",
    "embed.position.table": "model.decoder.embed_positions",
    "embed.widen": "model.decoder.project_in",
    "into_head.*": "model.decoder.project_out",
    "decoder.final": "model.decoder.final_layer_norm",
} | below("decoder.layers.*.", "model.decoder.layers.*.", OPT_LAYER)
OPT = foreign(
    "opt", "OPT", replace(LAYERED, position=own.LearnedBehind(2)),
    {
        "layers": size("num_hidden_layers", 12),
        "width": size("hidden_size", 768),
        "inner": size("ffn_dim", 3072),
        "heads": size("num_attention_heads", 12),
        "dropout": number("dropout", 0.1),
        "attention_dropout": number("attention_dropout", 0.0),
        "tied": flag("tie_word_embeddings", True),
        "bias": flag("enable_bias", True, yes="all", no="none"),
        "feed_forward_bias": flag("enable_bias", True),
        "embedding": Field(_narrow_in, _narrow_out),
        "arrangement": flag("do_layer_norm_before", True, yes=arrangements.Pre(), no=arrangements.Post()),
        "feed_forward": choice("activation_function", "relu", PLAIN),
        "max_length": size("max_position_embeddings", 2048),
    },
    table({}, OPT_NAMES, copies={"lm_head.weight": "model.decoder.embed_tokens.weight"}),
    must={"_remove_final_layer_norm": False, "layer_norm_elementwise_affine": True},
    ignored=("layerdrop", "init_std", "activation_dropout"),
)  # fmt: skip


def _bloom_names(config: DecoderConfig) -> Table:
    layer = NORMS | {
        "attention.qkv": "self_attention.query_key_value",
        "attention.output": "self_attention.dense",
        "feed_forward.expand": "mlp.dense_h_to_4h",
        "feed_forward.contract": "mlp.dense_4h_to_h",
    }
    names = {
        "embed.table": "transformer.word_embeddings",
        "embed.norm": "transformer.word_embeddings_layernorm",
        "decoder.final": "transformer.ln_f",
    } | below("decoder.layers.*.", "transformer.h.*.", layer)
    return packed(names, "transformer.", config, copies={"lm_head.weight": "transformer.word_embeddings.weight"})


def _twice(key: str, other: str, default: int) -> Field:
    """A size that older files call otherwise, or both ways."""

    def read(keys: Keys) -> int:
        value = keys.size(key, keys.take(other, default, int))
        refuse(keys.take(other, value) != value, f"{keys.where}: {key} and {other} differ")
        return value

    return Field(read, size(key).write)


BLOOM = foreign(
    "bloom", "Bloom",
    replace(
        LAYERED, bias="all", feed_forward_bias=True, position=own.KeyBiases(), embedding=own.NormedTokens(),
        feed_forward=parts.Gelu(approximate="tanh"),
    ),
    {
        "layers": _twice("n_layer", "num_hidden_layers", 2),
        "width": _twice("hidden_size", "n_embed", 64),
        "heads": _twice("n_head", "num_attention_heads", 8),
        "dropout": number("hidden_dropout", 0.0),
        "attention_dropout": number("attention_dropout", 0.0),
        "tied": flag("tie_word_embeddings", True),
        "norm.epsilon": number("layer_norm_epsilon", 1e-5),
        "embedding.epsilon": number("layer_norm_epsilon", 1e-5),
        "max_length": size("seq_length", 2048),  # it has no last position: how long it was trained
    },
    _bloom_names, must={"apply_residual_connection_post_layernorm": False, "slow_but_exact": False},
    ignored=(  # about rounding
        "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "masked_softmax_fusion",
        "attention_softmax_in_fp32", "bias_dropout_fusion",
    ),
)  # fmt: skip
