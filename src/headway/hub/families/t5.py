"""T5 (Raffel et al. 2020), mT5 (Xue et al. 2021) and umT5 (Chung et al. 2023) in the Hugging Face format ↔
`headway.models.t5`, whole or the encoder alone. What T5 and mT5 keep in the first layer of a stack, the bias of
distances, belongs to all of its layers; in umT5 each layer has its own.

umT5's output is scaled where config.json says that the head is tied, as it was trained; transformers 5 takes every umT5
for tied.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headway.hub.config_keys import Field, NoCounterpart, choice, flag, number, size
from headway.hub.families.encoder import settle as settle_vectors
from headway.hub.families.foreign import Foreign, Usual
from headway.hub.names import Table, below
from headway.models import parts
from headway.models.heads import Vectors
from headway.models.t5 import T5Config, T5EncoderConfig

PROJECTIONS: dict[str, parts.FeedForward] = {
    "relu": parts.Relu(),
    "gelu": parts.Gelu(),
    "gated-gelu": parts.Gated(activation="gelu-tanh"),
    "gated-gelu_new": parts.Gated(activation="gelu-tanh"),
    "gated-silu": parts.Gated(activation="silu"),
    "gated-relu": parts.Gated(activation="relu"),
}


TIED = flag("tie_word_embeddings", True)
# Newer programs say that the head is tied even where it is not, and tell the release apart by this; `settle` sees it.
SCALED = flag("scale_decoder_outputs", TIED.read)
FIELDS = {
    "encoder_layers": size("num_layers", 6),
    "decoder_layers": size("num_decoder_layers", lambda keys: keys.size("num_layers", 6)),
    "width": size("d_model", 512),
    "head_width": size("d_kv", 64),
    "inner": size("d_ff", 2048),
    "heads": size("num_heads", 8),
    "dropout": number("dropout_rate", 0.1),
    "tied": Field(SCALED.read, TIED.write),
    "scaled_output": SCALED,
    "feed_forward": choice("feed_forward_proj", "relu", PROJECTIONS),
    "feed_forward.dropout": number("dropout_rate", 0.1),
    "position.buckets": size("relative_attention_num_buckets", 32),
    "position.farthest": size("relative_attention_max_distance", 128),
    "epsilon": number("layer_norm_epsilon", 1e-6),
    "max_length": size("n_positions", 512),
}


def settle(config: T5Config, head: None, folder: Path, weights: Collection[str]) -> tuple[T5Config, None]:
    """Whether the head is a weight of its own."""
    return replace(config, tied=config.scaled_output or "lm_head.weight" not in weights), head


IGNORED = ("classifier_dropout", "dense_act_fn", "is_gated_act", "decoder_start_token_id")
# Early files have a bias of distances for the attention on the source too, which no program uses.
USELESS = (r"^decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$",)
BIAS = "0.SelfAttention.relative_attention_bias"


def _layers(config: T5Config | T5EncoderConfig, side: str, last: int) -> dict[str, str]:
    """The names of one stack; `last`: the number of the feed-forward network in a layer."""
    expand = "wi_{0,1}" if isinstance(config.feed_forward, parts.Gated) else "wi"
    layer = {
        "attention.qkv": "0.SelfAttention.{q,k,v}",
        "attention.output": "0.SelfAttention.o",
        "attention.distances.table": BIAS,
        "around_attention.before": "0.layer_norm",
        "cross.query": "1.EncDecAttention.q",
        "cross.key_value": "1.EncDecAttention.{k,v}",
        "cross.output": "1.EncDecAttention.o",
        "around_cross.before": "1.layer_norm",
        "feed_forward.expand": f"{last}.DenseReluDense.{expand}",
        "feed_forward.contract": f"{last}.DenseReluDense.wo",
        "around_feed_forward.before": f"{last}.layer_norm",
    }
    return {f"{side}.final.*": f"{side}.final_layer_norm"} | below(
        f"{side}.layers.*.", f"{side}.block.*.layer.", layer
    )  # fmt: skip


def names(config: T5Config, head: None) -> Table:
    found = {"embed_source.table": "shared", "head": "lm_head"}
    for side, ours, last in (("encoder", "source", 1), ("decoder", "target", 2)):
        found |= {f"embed_{ours}.position.table": f"{side}.block.0.layer.{BIAS}"} | _layers(config, side, last)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    return Table(found, copies=dict.fromkeys(copies, "shared.weight"), useless=USELESS)


def encoder_names(config: T5EncoderConfig, head: Vectors) -> Table:
    found = {"encoder.embed.table": "shared", "encoder.embed.position.table": f"encoder.block.0.layer.{BIAS}"}
    found |= {f"encoder.{ours}": theirs for ours, theirs in _layers(config, "encoder", 1).items()}
    copies = {"encoder.embed_tokens.weight": "shared.weight"}
    return Table(found, copies=copies, useless=(r"^decoder\.", r"^lm_head\."))  # of the whole model


def _vectors_out(architecture: str, head: Any, config: T5EncoderConfig) -> dict[str, Any]:
    if not isinstance(head, Vectors) or head.first:
        raise NoCounterpart("head")
    return {"architectures": [architecture], "is_encoder_decoder": False}


T5 = Foreign(
    "t5", ("T5ForConditionalGeneration",), T5Config(), FIELDS, names, settle=settle, seq2seq=True, ignored=IGNORED,
    usual=Usual({"end": "</s>", "unknown": "<unk>", "pad": "<pad>"}, frame=(False, True), split=True, sentinels=100),
)  # fmt: skip
MT5_FIELDS = {path: one for path, one in FIELDS.items() if path != "scaled_output"} | {"tied": TIED}
MT5_DEFAULTS = {"d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
MT5 = replace(
    T5, model_type="mt5", architectures=("MT5ForConditionalGeneration",), base=T5Config(scaled_output=False),
    fields=MT5_FIELDS, defaults=MT5_DEFAULTS, usual=replace(T5.usual, sentinels=0),
)  # fmt: skip
UMT5 = replace(
    MT5, model_type="umt5", architectures=("UMT5ForConditionalGeneration",), base=T5Config(own_distances=True),
    fields=FIELDS | {"tied": TIED, "scaled_output": TIED},
    must={**MT5.must, "tie_word_embeddings": True},  # transformers ties it whatever the file says
)  # fmt: skip
KEPT = ("width", "head_width", "inner", "heads", "dropout", "feed_forward", "feed_forward.dropout", "position.buckets",
        "position.farthest", "epsilon", "max_length")  # fmt: skip
T5_ENCODER, MT5_ENCODER, UMT5_ENCODER = (
    replace(
        whole, architectures=(architecture,), base=T5EncoderConfig(own_distances=whole.base.own_distances),
        fields={"layers": FIELDS["encoder_layers"]} | {path: FIELDS[path] for path in KEPT}, names=encoder_names,
        seq2seq=False, settle=settle_vectors, head_in=lambda keys, config: Vectors(),
        head_out=partial(_vectors_out, architecture),
        ignored=(*IGNORED, "num_decoder_layers", "tie_word_embeddings", "scale_decoder_outputs"),
    )
    for whole, architecture in ((T5, "T5EncoderModel"), (MT5, "MT5EncoderModel"), (UMT5, "UMT5EncoderModel"))
)  # fmt: skip
