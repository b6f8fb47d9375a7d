"""GPT-2 (Radford et al. 2019) in the Hugging Face format ↔ `headway.models.gpt`. Its products are stored transposed."""

from __future__ import annotations

from headway.hub.config_keys import choice, flag, number, size
from headway.hub.families.foreign import ACTIVATIONS, Foreign, Usual
from headway.hub.names import Table, below
from headway.models.gpt import GPTConfig

FIELDS = {
    "layers": size("n_layer", 12),
    "width": size("n_embd", 768),
    "inner": size("n_inner", 0, least=0),
    "heads": size("n_head", 12),
    "dropout": number("resid_pdrop", 0.1, also="embd_pdrop"),
    "attention_dropout": number("attn_pdrop", 0.1),
    "tied": flag("tie_word_embeddings", True),
    "norm.epsilon": number("layer_norm_epsilon", 1e-5),
    "feed_forward": choice("activation_function", "gelu_new", ACTIVATIONS),
    "max_length": size("n_positions", 1024),
}
# The summary is of a head that headway does not have; the last is about rounding alone.
IGNORED = (
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "n_ctx", "embd_pdrop", "reorder_and_upcast_attn",
)  # fmt: skip
LAYER = {
    "attention.qkv": "attn.c_attnᵀ",
    "attention.output": "attn.c_projᵀ",
    "feed_forward.expand": "mlp.c_fcᵀ",
    "feed_forward.contract": "mlp.c_projᵀ",
    "around_attention.before": "ln_1",
    "around_feed_forward.before": "ln_2",
}
TABLE = Table(
    {
        "embed.table": "transformer.wte",
        "embed.position.table": "transformer.wpe",
        "decoder.final": "transformer.ln_f",
        "output": "lm_head",
        **below("decoder.layers.*.", "transformer.h.*.", LAYER),
    },
    prefix="transformer.", copies={"lm_head.weight": "transformer.wte.weight"},
    useless=(r"\.attn\.bias$", r"\.attn\.masked_bias$"),
)  # fmt: skip
GPT2 = Foreign(
    "gpt2", ("GPT2LMHeadModel", "GPT2Model"), GPTConfig(), FIELDS, lambda config, head: TABLE, ignored=IGNORED,
    must={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    usual=Usual(dict.fromkeys(("start", "end", "unknown"), "<|endoftext|>")),
)  # fmt: skip
