"""Decoders with layer norms and rotary positions in the Hugging Face format ↔ `headway.models.decoder`: StarCoder 2,
StableLM, Cohere's, GPT-NeoX, Phi and GPT-J. In most of them both sublayers of a block read the same input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.errors import refuse
from headway.hub.config_keys import Field, Keys, NoCounterpart, choice, flag, number, size
from headway.hub.families import windows
from headway.hub.families.decoders import BASE, BIAS, GATE, HEAD_WIDTH, SIZES, foreign, table
from headway.hub.families.foreign import ACTIVATIONS
from headway.hub.families.rotary import LENGTH, turned
from headway.hub.names import Table, below, by_group
from headway.models import arrangements, parts
from headway.models import decoder_parts as own
from headway.models.decoder import DecoderConfig

PLAIN = ACTIVATIONS | {"gelu_fast": parts.Gelu(approximate="tanh"), "silu": parts.Silu(), "swish": parts.Silu()}
TANH_FIRST = {"gelu_pytorch_tanh": parts.Gelu(approximate="tanh")} | PLAIN  # the name that is written
LAYERED = replace(BASE, norm=arrangements.LayerNorm())
BOTH_BIASES = {  # one key for attention and the feed-forward layer
    "bias": flag("use_bias", True, yes="all", no="none"),
    "feed_forward_bias": flag("use_bias", True),
}


def head_size(config: DecoderConfig) -> int:
    return config.head_width or config.width // config.heads


STARCODER2 = foreign(
    "starcoder2", "Starcoder2", LAYERED,
    SIZES | HEAD_WIDTH | BOTH_BIASES | windows.every_layer() | {
        "position": turned(),
        "norm.epsilon": number("norm_epsilon", 1e-5),
        "feed_forward": choice("hidden_act", "gelu_pytorch_tanh", TANH_FIRST),
        "dropout": number("residual_dropout", 0.0, also="embedding_dropout"),
    },
    table({"feed_forward.expand": "mlp.c_fc", "feed_forward.contract": "mlp.c_proj"}),
    {LENGTH: 4096, "num_key_value_heads": 2, "tie_word_embeddings": True}, ignored=("embedding_dropout",),
)  # fmt: skip


def _stablelm_names(config: DecoderConfig) -> Table:
    heads, shared = config.heads, config.shared_heads or config.heads
    return table({
        "attention.query_norm.norm.weight_HK": f"self_attn.q_layernorm.norms.[{heads}].weight",
        "attention.key_norm.norm.weight_HK": f"self_attn.k_layernorm.norms.[{shared}].weight",
    })  # fmt: skip


STABLELM = foreign(
    "stablelm", "StableLm", LAYERED,
    SIZES | GATE | {
        "position": turned(share=0.25),
        "norm.epsilon": number("layer_norm_eps", 1e-5),
        "bias": flag("use_qkv_bias", False, yes="qkv", no="none"),
        "query_key_norm": flag("qk_layernorm", False, yes=arrangements.HeadsNorm(), no=arrangements.NoNorm()),
        "arrangement": flag("use_parallel_residual", False, yes=arrangements.Parallel(1), no=arrangements.Pre()),
        "dropout": number("hidden_dropout", 0.0),
    },
    _stablelm_names, {LENGTH: 4096, "num_key_value_heads": 32},
)  # fmt: skip

COHERE = foreign(
    "cohere", "Cohere", replace(BASE, norm=arrangements.LayerNorm(bias=False), arrangement=arrangements.Parallel(1)),
    SIZES | GATE | HEAD_WIDTH | BIAS | {
        "position": turned(base=500_000.0, neighbours=True),
        "norm.epsilon": number("layer_norm_eps", 1e-5),
        "query_key_norm": flag("use_qk_norm", False, yes=arrangements.HeadsNorm(), no=arrangements.NoNorm()),
        "logits.scale": number("logit_scale", 0.0625),
    },
    table({
        "attention.query_norm.norm.weight_HK": "self_attn.q_norm.weight",
        "attention.key_norm.norm.weight_HK": "self_attn.k_norm.weight",
    }),
    {LENGTH: 8192, "tie_word_embeddings": True},
)  # fmt: skip


def packed(names: dict[str, str], prefix: str, config: DecoderConfig, **how: Any) -> Table:
    """A table with one matrix for queries, keys and values, whose rows lie by groups of heads."""
    order = by_group(config.heads, config.shared_heads or config.heads, head_size(config))
    return table({}, names, prefix=prefix, orders={"decoder.layers.*.attention.qkv": order}, **how)


def _neox_names(config: DecoderConfig) -> Table:
    layer = {
        "attention.qkv": "attention.query_key_value",
        "attention.output": "attention.dense",
        "feed_forward.expand": "mlp.dense_h_to_4h",
        "feed_forward.contract": "mlp.dense_4h_to_h",
    }
    whole = {"embed.table": "gpt_neox.embed_in", "decoder.final": "gpt_neox.final_layer_norm", "output": "embed_out"}
    names = whole | below("decoder.layers.*.", "gpt_neox.layers.*.", layer | NORMS)
    useless = (r"\.attention\.(bias|masked_bias)$", r"\.rotary_emb\.inv_freq$")
    copies = {"embed_out.weight": "gpt_neox.embed_in.weight"}
    endings = {"lm_head.weight": "embed_out.weight"}  # newer programs' name
    return packed(names, "gpt_neox.", config, useless=useless, copies=copies, endings=endings)


NORMS = {
    "around_attention.before": "input_layernorm",
    "around_feed_forward.before": "post_attention_layernorm",
    "before": "input_layernorm",
    "before_feed_forward": "post_attention_layernorm",
}
# Of grouped keys and of another width of a head GPT-NeoX knows nothing.
NEOX_SIZES = {key: field for key, field in SIZES.items() if key != "shared_heads"}
GPT_NEOX = foreign(
    "gpt_neox", "GPTNeoX", replace(LAYERED, feed_forward_bias=True),
    NEOX_SIZES | {
        "position": turned(share=0.25, keys_above=("rotary_emb_base", "rotary_pct")),
        "norm.epsilon": number("layer_norm_eps", 1e-5),
        "bias": flag("attention_bias", True, yes="all", no="none"),
        "arrangement": flag("use_parallel_residual", True, yes=arrangements.Parallel(2), no=arrangements.Pre()),
        "feed_forward": choice("hidden_act", "gelu", PLAIN),
        "dropout": number("hidden_dropout", 0.0),
    },
    _neox_names, {LENGTH: 2048}, ignored=("classifier_dropout",),
)  # fmt: skip

PHI = foreign(
    "phi", "Phi",
    replace(
        LAYERED, bias="all", feed_forward_bias=True, arrangement=arrangements.Parallel(1),
        logits=own.Logits(bias=True),
    ),
    SIZES | {
        "position": turned(share=0.5),
        "norm.epsilon": number("layer_norm_eps", 1e-5),
        "query_key_norm": flag("qk_layernorm", False, yes=arrangements.HeadNorm(), no=arrangements.NoNorm()),
        "feed_forward": choice("hidden_act", "gelu_new", PLAIN),
        "dropout": number("resid_pdrop", 0.0, also="embd_pdrop"),
    },
    table(
        {
            "attention.output": "self_attn.dense",
            "attention.query_norm.norm": "self_attn.q_layernorm",
            "attention.key_norm.norm": "self_attn.k_layernorm",
            "feed_forward.expand": "mlp.fc1",
            "feed_forward.contract": "mlp.fc2",
        },
        {"decoder.final": "model.final_layernorm"},
    ),
    {LENGTH: 2048}, ignored=("embd_pdrop",),
)  # fmt: skip


def _rotary_out(position: Any, config: DecoderConfig) -> dict[str, Any]:
    if not isinstance(position, own.Turned) or replace(position, turned=0) != own.Turned(neighbours=True):
        raise NoCounterpart
    return {"rotary_dim": position.turned or head_size(config)}


def _rotary_in(keys: Keys) -> own.Turned:
    width, count = keys.size("n_embd") // keys.size("n_head"), keys.size("rotary_dim", 64)
    refuse(count > width, f"{keys.where}: rotary_dim is {count}, a head is {width} wide")
    return own.Turned(turned=count % width, neighbours=True)


GPTJ_LAYER = {
    "attention.qkv": "attn.{q,k,v}_proj",
    "attention.output": "attn.out_proj",
    "feed_forward.expand": "mlp.fc_in",
    "feed_forward.contract": "mlp.fc_out",
    "before": "ln_1",
}
GPTJ = foreign(
    "gptj", "GPTJ",
    replace(LAYERED, feed_forward_bias=True, arrangement=arrangements.Parallel(1), logits=own.Logits(bias=True)),
    {
        "layers": size("n_layer", 28),
        "width": size("n_embd", 4096),
        "inner": size("n_inner", 0, least=0),
        "heads": size("n_head", 16),
        "dropout": number("resid_pdrop", 0.0, also="embd_pdrop"),
        "attention_dropout": number("attn_pdrop", 0.0),
        "tied": flag("tie_word_embeddings", False),
        "norm.epsilon": number("layer_norm_epsilon", 1e-5),
        "position": Field(_rotary_in, _rotary_out),
        "feed_forward": choice("activation_function", "gelu_new", PLAIN),
        "max_length": size("n_positions", 2048),
    },
    table(
        {},
        {"embed.table": "transformer.wte", "decoder.final": "transformer.ln_f"}
        | below("decoder.layers.*.", "transformer.h.*.", GPTJ_LAYER),
        prefix="transformer.", copies={"lm_head.weight": "transformer.wte.weight"},
        useless=(r"\.attn\.(bias|masked_bias|embed_positions)$",),
    ),
    # The summary is of a head that headway does not have.
    ignored=("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
             "summary_first_dropout", "n_ctx", "embd_pdrop", "scale_attn_weights", "rotary"),
)  # fmt: skip
