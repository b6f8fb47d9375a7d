"""T5 (Raffel et al. 2020) in the Hugging Face format ↔ `headway.models.t5`. What they keep in the first layer of a
stack, the bias of distances, belongs to all of its layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headway.hub.families.foreign import Foreign, Keys, Usual, refuse
from headway.hub.names import Entry, Table, joined, layered, same
from headway.models import parts
from headway.models.t5 import T5Config

PROJECTIONS: dict[str, Callable[[float], parts.FeedForward]] = {
    "relu": parts.Relu,
    "gelu": parts.Gelu,
    "gated-gelu": partial(parts.Gated, activation="gelu-tanh"),
    "gated-gelu_new": partial(parts.Gated, activation="gelu-tanh"),
    "gated-silu": partial(parts.Gated, activation="silu"),
    "gated-relu": partial(parts.Gated, activation="relu"),
}
HARMLESS = ("classifier_dropout", "dense_act_fn", "is_gated_act", "decoder_start_token_id")


def config_in(facts: dict[str, Any]) -> T5Config:
    """Whether the head is a weight of its own is for `settle` to see: newer programs say that it is tied even where it
    is not, and tell the release apart by whether its input is scaled."""
    keys = Keys(facts)
    keys.ignore(*HARMLESS)
    layers, dropout = keys.size("num_layers", 6), keys.number("dropout_rate", 0.1)
    scaled = keys.flag("scale_decoder_outputs", keys.flag("tie_word_embeddings", True))
    config = T5Config(
        encoder_layers=layers,
        decoder_layers=keys.size("num_decoder_layers", layers),
        width=keys.size("d_model", 512),
        head_width=keys.size("d_kv", 64),
        inner=keys.size("d_ff", 2048),
        heads=keys.size("num_heads", 8),
        dropout=dropout,
        tied=scaled,
        scaled_output=scaled,
        feed_forward=keys.choice("feed_forward_proj", "relu", PROJECTIONS)(dropout),
        position=parts.RelativeBias(
            keys.size("relative_attention_num_buckets", 32), keys.size("relative_attention_max_distance", 128)
        ),
        epsilon=keys.number("layer_norm_epsilon", 1e-6),
        max_length=keys.size("n_positions", 512),
    )
    keys.done()
    return config


def settle(config: T5Config, head: None, folder: Path, weights: Collection[str]) -> tuple[T5Config, None]:
    return replace(config, tied=config.scaled_output or "lm_head.weight" not in weights), head


def vocabularies(facts: dict[str, Any]) -> tuple[int, ...]:
    return (Keys(facts).size("vocab_size"),) * 2


def config_out(config: T5Config, vocabularies: tuple[int, ...]) -> dict[str, Any]:
    feed_forward = config.feed_forward
    projection = next((name for name, part in PROJECTIONS.items() if part(config.dropout) == feed_forward), None)
    refuse("t5", {f"model.feed_forward={feed_forward.name} with its dropout": projection is None})
    return {
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.decoder_layers,
        "d_model": config.width,
        "d_kv": config.head_width,
        "d_ff": config.inner,
        "num_heads": config.heads,
        "dropout_rate": config.dropout,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scaled_output,
        "feed_forward_proj": projection,
        "relative_attention_num_buckets": config.position.buckets,
        "relative_attention_max_distance": config.position.farthest,
        "layer_norm_epsilon": config.epsilon,
        "n_positions": config.max_length,
        "vocab_size": vocabularies[0],
        "is_encoder_decoder": True,
    }


def table(config: T5Config, vocabularies: tuple[int, ...]) -> Table:
    copied = [
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        *(["lm_head.weight"] if config.tied else []),
    ]
    whole = [same("embed_source.table.weight", "shared.weight")]
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        whole.append(same(f"embed_{ours}.position.table.weight", bias))
        whole.append(same(f"{side}.final.0.weight", f"{side}.final_layer_norm.weight"))
    if not config.tied:
        whole.append(same("head.weight", "lm_head.weight"))
    # Early files have a bias of distances for the attention on the source too, which no program uses.
    useless = (r"^decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$",)
    return Table(
        (
            *whole,
            *layered(config.encoder_layers, list(layer("encoder", config))),
            *layered(config.decoder_layers, list(layer("decoder", config))),
        ),
        copies=dict.fromkeys(copied, "shared.weight"), useless=useless,
    )  # fmt: skip


def layer(side: str, config: T5Config) -> Iterator[Entry]:
    ours, theirs = f"{side}.layers.{{n}}.", f"{side}.block.{{n}}.layer."
    inner, last = config.heads * config.head_width, 2 if side == "decoder" else 1

    def beside(name: str, site: str, *maps: str) -> Entry:
        return joined(f"{ours}{name}.weight", {f"{theirs}{site}.{map}.weight": inner for map in maps})

    yield beside("attention.qkv", "0.SelfAttention", "q", "k", "v")
    yield same(f"{ours}attention.output.weight", f"{theirs}0.SelfAttention.o.weight")
    yield same(f"{ours}around_attention.before.weight", f"{theirs}0.layer_norm.weight")
    if side == "decoder":
        yield beside("cross.query", "1.EncDecAttention", "q")
        yield beside("cross.key_value", "1.EncDecAttention", "k", "v")
        yield same(f"{ours}cross.output.weight", f"{theirs}1.EncDecAttention.o.weight")
        yield same(f"{ours}around_cross.before.weight", f"{theirs}1.layer_norm.weight")
    dense = f"{theirs}{last}.DenseReluDense"
    if isinstance(config.feed_forward, parts.Gated):
        two = {f"{dense}.wi_{n}.weight": config.inner for n in range(2)}
        yield joined(f"{ours}feed_forward.expand.weight", two)
    else:
        yield same(f"{ours}feed_forward.expand.weight", f"{dense}.wi.weight")
    yield same(f"{ours}feed_forward.contract.weight", f"{dense}.wo.weight")
    yield same(f"{ours}around_feed_forward.before.weight", f"{theirs}{last}.layer_norm.weight")


USUAL = Usual({"end": "</s>", "unknown": "<unk>", "pad": "<pad>"}, frame=(False, True), split=True, sentinels=100)
T5 = Foreign(
    "t5", "t5", ("T5ForConditionalGeneration",), config_in, config_out, table, vocabularies, settle, usual=USUAL,
    seq2seq=True,
)  # fmt: skip
