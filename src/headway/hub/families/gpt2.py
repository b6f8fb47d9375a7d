"""GPT-2 (Radford et al. 2019) in the Hugging Face format ↔ `headway.models.gpt`. Its products are stored transposed."""

from __future__ import annotations

from typing import Any

from headway.hub.families.foreign import Foreign, Keys, Usual, one_vocabulary, refuse
from headway.hub.names import Table, layered, padded, same, transposed
from headway.models import parts
from headway.models.gpt import GPTConfig

ACTIVATIONS = {
    "gelu_new": parts.Gelu(approximate="tanh"),
    "gelu_pytorch_tanh": parts.Gelu(approximate="tanh"),
    "gelu": parts.Gelu(),
    "relu": parts.Relu(),
}


def config_in(facts: dict[str, Any]) -> GPTConfig:
    keys = Keys(facts)
    # The summary is of a head that headway does not have; the last key is about rounding alone.
    keys.ignore("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels")
    keys.ignore("summary_first_dropout", "n_ctx", "reorder_and_upcast_attn", "embd_pdrop")
    keys.must("scale_attn_weights", True)
    keys.must("scale_attn_by_inverse_layer_idx", False)
    config = GPTConfig(
        layers=keys.size("n_layer", 12),
        width=keys.size("n_embd", 768),
        inner=keys.take("n_inner", 0, int),
        heads=keys.size("n_head", 12),
        dropout=keys.number("resid_pdrop", 0.1),
        attention_dropout=keys.number("attn_pdrop", 0.1),
        tied=keys.flag("tie_word_embeddings", True),
        norm=parts.PreNorm(keys.number("layer_norm_epsilon", 1e-5)),
        feed_forward=keys.choice("activation_function", "gelu_new", ACTIVATIONS),
        max_length=keys.size("n_positions", 1024),
    )
    keys.done()
    return config


def config_out(config: GPTConfig, vocabularies: tuple[int, ...]) -> dict[str, Any]:
    """The keys of config.json; a choice without a counterpart is refused by name."""
    activation = next((name for name, part in ACTIVATIONS.items() if part == config.feed_forward), None)
    refuse("gpt2", {
        "model.bias": not config.bias,
        "model.shared_heads": config.shared_heads not in (0, config.heads),
        "model.position": type(config.position) is not parts.Learned,
        "model.norm": type(config.norm) is not parts.PreNorm,
        "model.feed_forward.dropout": config.feed_forward.dropout > 0,
        f"model.feed_forward={config.feed_forward.name}": activation is None,
    })  # fmt: skip
    return {
        "n_layer": config.layers,
        "n_embd": config.width,
        "n_inner": config.inner or None,
        "n_head": config.heads,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": config.tied,
        "layer_norm_epsilon": config.norm.epsilon,
        "activation_function": activation,
        "n_positions": config.max_length,
        "vocab_size": vocabularies[0],
    }


def table(config: GPTConfig, vocabularies: tuple[int, ...]) -> Table:
    ours, theirs = "decoder.layers.{n}.", "transformer.h.{n}."
    layer = [
        transposed(f"{ours}attention.qkv.weight", f"{theirs}attn.c_attn.weight"),
        same(f"{ours}attention.qkv.bias", f"{theirs}attn.c_attn.bias"),
        transposed(f"{ours}attention.output.weight", f"{theirs}attn.c_proj.weight"),
        same(f"{ours}attention.output.bias", f"{theirs}attn.c_proj.bias"),
        transposed(f"{ours}feed_forward.expand.weight", f"{theirs}mlp.c_fc.weight"),
        same(f"{ours}feed_forward.expand.bias", f"{theirs}mlp.c_fc.bias"),
        transposed(f"{ours}feed_forward.contract.weight", f"{theirs}mlp.c_proj.weight"),
        same(f"{ours}feed_forward.contract.bias", f"{theirs}mlp.c_proj.bias"),
        *(
            same(f"{ours}{site}.before.{kind}", f"{theirs}{norm}.{kind}")
            for site, norm in (("around_attention", "ln_1"), ("around_feed_forward", "ln_2"))
            for kind in ("weight", "bias")
        ),
    ]
    whole = [
        padded("embed.table.weight", "transformer.wte.weight", vocabularies[0]),
        same("embed.position.table.weight", "transformer.wpe.weight"),
        same("decoder.final.weight", "transformer.ln_f.weight"),
        same("decoder.final.bias", "transformer.ln_f.bias"),
    ]
    if not config.tied:
        whole.append(padded("output.weight", "lm_head.weight", vocabularies[0]))
    copies = {"lm_head.weight": "transformer.wte.weight"} if config.tied else None
    masks = (r"\.attn\.bias$", r"\.attn\.masked_bias$")
    return Table((*whole, *layered(config.layers, layer)), "transformer.", copies, useless=masks)


USUAL = Usual(dict.fromkeys(("start", "end", "unknown"), "<|endoftext|>"))
GPT2 = Foreign(
    "gpt2", "gpt", ("GPT2LMHeadModel", "GPT2Model"), config_in, config_out, table, one_vocabulary, usual=USUAL
)  # fmt: skip
