"""Marian (Junczys-Dowmunt et al. 2018) and Pegasus (Zhang et al. 2020) in the Hugging Face format ↔
`headway.models.transformer`: one Transformer, the norm after the sum in the first and before the sublayer in the
second. Their sinusoids have all sines first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.hub.families.foreign import Foreign, Keys, Usual, refuse
from headway.hub.names import Entry, Table, both, joined, layered, same, transposed
from headway.models import parts
from headway.models.transformer import TransformerConfig
from headway.nn.position import halved_sinusoid

ACTIVATIONS: dict[str, Callable[[float], parts.FeedForward]] = {
    "relu": parts.Relu,
    "gelu": parts.Gelu,
    "gelu_new": partial(parts.Gelu, approximate="tanh"),
    "swish": parts.Silu,
    "silu": parts.Silu,
}
PLACEMENTS: dict[str, parts.Norm] = {"marian": parts.PostNorm(), "pegasus": parts.PreNorm()}
POSITION = parts.Sinusoidal(order="halves")
# Of training alone, or of heads that headway does not have.
HARMLESS = (
    "encoder_layerdrop", "decoder_layerdrop", "init_std", "classif_dropout", "classifier_dropout", "num_hidden_layers",
    "extra_pos_embeddings", "force_bos_token_to_be_generated", "decoder_start_token_id", "save_step",
)  # fmt: skip


def config_in(facts: dict[str, Any]) -> TransformerConfig:
    keys = Keys(facts)
    keys.ignore(*HARMLESS)
    placement = PLACEMENTS[str(facts.get("model_type"))]
    before = isinstance(placement, parts.PreNorm)
    keys.must("normalize_before", before)
    keys.must("add_final_layer_norm", before)
    keys.must("normalize_embedding", False)
    keys.must("static_position_embeddings", True)
    keys.must("add_bias_logits", False)
    keys.must("tie_word_embeddings", True)
    for size in ("ffn_dim", "attention_heads"):
        keys.must(f"decoder_{size}", facts.get(f"encoder_{size}"))
    shared = keys.flag("share_encoder_decoder_embeddings", True)
    keys.ignore("decoder_vocab_size")
    config = TransformerConfig(
        encoder_layers=keys.size("encoder_layers"),
        decoder_layers=keys.size("decoder_layers"),
        width=keys.size("d_model"),
        inner=keys.size("encoder_ffn_dim"),
        heads=keys.size("encoder_attention_heads"),
        dropout=keys.number("dropout", 0.1),
        attention_dropout=keys.number("attention_dropout", 0.0),
        embeddings="shared" if shared else "tied",
        position=POSITION,
        norm=placement,
        feed_forward=keys.choice("activation_function", "gelu", ACTIVATIONS)(keys.number("activation_dropout", 0.0)),
        max_length=keys.size("max_position_embeddings", 1024),
        scaled=keys.flag("scale_embedding", False),
        output_bias=True,
    )
    keys.done()
    return config


def vocabularies(facts: dict[str, Any]) -> tuple[int, ...]:
    source = Keys(facts).size("vocab_size")
    shared = facts.get("share_encoder_decoder_embeddings", True)
    return source, source if shared else Keys(facts).size("decoder_vocab_size", source)


def config_out(model_type: str, config: TransformerConfig, vocabularies: tuple[int, ...]) -> dict[str, Any]:
    """The keys of config.json; a choice without a counterpart is refused by name."""
    feed_forward = config.feed_forward
    activation = next((name for name, part in ACTIVATIONS.items() if part(feed_forward.dropout) == feed_forward), "")
    refuse(model_type, {
        f"model.norm={config.norm.name}": type(config.norm) is not type(PLACEMENTS[model_type]),
        f"model.norm.epsilon={config.norm.epsilon}": config.norm.epsilon != PLACEMENTS[model_type].epsilon,
        f"model.position={config.position.name}": type(config.position) is not parts.Sinusoidal,
        "model.position (base or order)": type(config.position) is parts.Sinusoidal and config.position != POSITION,
        f"model.feed_forward={config.feed_forward.name}": not activation,
        f"model.embeddings={config.embeddings}": config.embeddings == "separate",
        "two vocabularies": model_type == "pegasus" and config.embeddings != "shared",
        "model.output_bias=false": not config.output_bias,
    })  # fmt: skip
    facts = {
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "d_model": config.width,
        "encoder_ffn_dim": config.inner,
        "decoder_ffn_dim": config.inner,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward.dropout,
        "activation_function": activation,
        "max_position_embeddings": config.max_length,
        "scale_embedding": config.scaled,
        "vocab_size": vocabularies[0],
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }
    if model_type == "marian":
        facts |= {
            "share_encoder_decoder_embeddings": config.embeddings == "shared",
            "decoder_vocab_size": vocabularies[1],
        }
    return facts


def table(config: TransformerConfig, vocabularies: tuple[int, ...]) -> Table:
    before = isinstance(config.norm, parts.PreNorm)
    if config.embeddings == "shared":
        copied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
        tables = [same("embed_source.table.weight", "model.shared.weight")]
        copies = dict.fromkeys(copied, "model.shared.weight")
    else:
        tables = [
            same(f"embed_{ours}.table.weight", f"model.{theirs}.embed_tokens.weight")
            for ours, theirs in (("source", "encoder"), ("target", "decoder"))
        ]
        copies = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    whole = [*tables, transposed("head.rest_VC", "final_logits_bias")]
    if before:
        whole += both("encoder.final", "model.encoder.layer_norm") + both("decoder.final", "model.decoder.layer_norm")
    return Table(
        (
            *whole,
            *layered(config.encoder_layers, list(layer("encoder", config.width, before))),
            *layered(config.decoder_layers, list(layer("decoder", config.width, before))),
        ),
        "model.", copies, useless=(r"embed_positions\.weight$",),
    )  # fmt: skip


def layer(side: str, width: int, before: bool) -> Iterator[Entry]:
    ours, theirs = f"{side}.layers.{{n}}.", f"model.{side}.layers.{{n}}."
    slot = "before" if before else "outside"

    def beside(name: str, site: str, *maps: str) -> Iterator[Entry]:
        for kind in ("weight", "bias"):
            yield joined(f"{ours}{name}.{kind}", {f"{theirs}{site}.{map}_proj.{kind}": width for map in maps})

    yield from beside("attention.qkv", "self_attn", "q", "k", "v")
    yield from both(f"{ours}attention.output", f"{theirs}self_attn.out_proj")
    yield from both(f"{ours}around_attention.{slot}", f"{theirs}self_attn_layer_norm")
    if side == "decoder":
        yield from beside("cross.query", "encoder_attn", "q")
        yield from beside("cross.key_value", "encoder_attn", "k", "v")
        yield from both(f"{ours}cross.output", f"{theirs}encoder_attn.out_proj")
        yield from both(f"{ours}around_cross.{slot}", f"{theirs}encoder_attn_layer_norm")
    yield from both(f"{ours}feed_forward.expand", f"{theirs}fc1")
    yield from both(f"{ours}feed_forward.contract", f"{theirs}fc2")
    yield from both(f"{ours}around_feed_forward.{slot}", f"{theirs}final_layer_norm")


def constants(config: TransformerConfig) -> dict[str, Tensor]:
    table_PD = halved_sinusoid(torch.arange(config.max_length), config.width).float()
    return {f"model.{side}.embed_positions.weight": table_PD.clone() for side in ("encoder", "decoder")}


USUAL = {"marian": Usual({"end": "</s>", "unknown": "<unk>", "pad": "<pad>"}, frame=(False, True)), "pegasus": Usual()}
MARIAN, PEGASUS = (
    Foreign(
        name, "transformer", (architecture,), config_in, partial(config_out, name), table, vocabularies,
        constants=constants, usual=USUAL[name], seq2seq=True,
    )
    for name, architecture in (("marian", "MarianMTModel"), ("pegasus", "PegasusForConditionalGeneration"))
)  # fmt: skip
