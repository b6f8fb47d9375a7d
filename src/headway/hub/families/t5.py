"""T5 (Raffel et al. 2020) in the Hugging Face format ↔ `headway.models.t5`. What they keep in the first layer of a
stack, the bias of distances, belongs to all of its layers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from headway.hub.config_keys import Field, choice, flag, number, size
from headway.hub.families.foreign import Foreign, Usual
from headway.hub.names import Table, below
from headway.models import parts
from headway.models.t5 import T5Config

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


def names(config: T5Config, head: None) -> Table:
    expand = "wi_{0,1}" if isinstance(config.feed_forward, parts.Gated) else "wi"
    found = {"embed_source.table": "shared", "head": "lm_head"}
    for side, ours, last in (("encoder", "source", 1), ("decoder", "target", 2)):
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        found |= {f"embed_{ours}.position.table": bias, f"{side}.final.*": f"{side}.final_layer_norm"}
        layer = {
            "attention.qkv": "0.SelfAttention.{q,k,v}",
            "attention.output": "0.SelfAttention.o",
            "around_attention.before": "0.layer_norm",
            "cross.query": "1.EncDecAttention.q",
            "cross.key_value": "1.EncDecAttention.{k,v}",
            "cross.output": "1.EncDecAttention.o",
            "around_cross.before": "1.layer_norm",
            "feed_forward.expand": f"{last}.DenseReluDense.{expand}",
            "feed_forward.contract": f"{last}.DenseReluDense.wo",
            "around_feed_forward.before": f"{last}.layer_norm",
        }
        found |= below(f"{side}.layers.*.", f"{side}.block.*.layer.", layer)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    # Early files have a bias of distances for the attention on the source too, which no program uses.
    useless = (r"^decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$",)
    return Table(found, copies=dict.fromkeys(copies, "shared.weight"), useless=useless)


T5 = Foreign(
    "t5", ("T5ForConditionalGeneration",), T5Config(), FIELDS, names, settle=settle, seq2seq=True,
    ignored=("classifier_dropout", "dense_act_fn", "is_gated_act", "decoder_start_token_id"),
    usual=Usual({"end": "</s>", "unknown": "<unk>", "pad": "<pad>"}, frame=(False, True), split=True, sentinels=100),
)  # fmt: skip
