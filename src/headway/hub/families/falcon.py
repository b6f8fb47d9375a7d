"""Falcon (Almazrouei et al. 2023) in the Hugging Face format ↔ `headway.models.decoder`.

It has two architectures. In the older one all heads share one key (`multi_query`) or none, and both sublayers read one
norm, or follow each other. In the newer one groups of heads share keys, and both read one norm each, or one.
"""

from __future__ import annotations

from typing import Any

from headway.errors import refuse
from headway.hub.config_keys import Field, Keys, NoCounterpart, choice, flag, number, size
from headway.hub.families.decoders import foreign
from headway.hub.families.layer_norm_decoders import LAYERED, NORMS, PLAIN, packed
from headway.hub.families.rotary import LENGTH, turned
from headway.hub.names import Table, below
from headway.models import arrangements
from headway.models import decoder_parts as own
from headway.models.decoder import DecoderConfig

NEWER = "new_decoder_architecture"
BIASES = own.KeyBiases("bfloat16", over_root=True)
TURNED = turned()


def _shared_in(keys: Keys) -> int:
    heads = keys.size("num_attention_heads")
    said, one = keys.size("num_kv_heads", heads), keys.flag("multi_query", True)
    if keys.flag(NEWER, False):
        return said
    if one:
        return 1
    refuse(said != heads, f"{keys.where}: num_kv_heads is {said}, the older architecture has one for each head or one")
    return heads


def _shared_out(shared: int, config: DecoderConfig) -> dict[str, Any]:
    count = shared or config.heads
    return {"num_kv_heads": count, "multi_query": count == 1, NEWER: _newer(config)}


def _newer(config: DecoderConfig) -> bool:
    return (config.shared_heads or config.heads) not in (
        1,
        config.heads,
    ) or config.arrangement == arrangements.Parallel(2)


def _arrangement_in(keys: Keys) -> arrangements.Parallel | arrangements.Pre:
    newer, parallel = keys.flag(NEWER, False), keys.flag("parallel_attn", True)
    norms = keys.size("num_ln_in_parallel_attn", 2 if newer else 1)
    refuse(newer and not parallel, f"{keys.where}: {NEWER} is true, so parallel_attn must be")
    refuse(norms > 1 + newer, f"{keys.where}: num_ln_in_parallel_attn is {norms}, which this architecture has not")
    return arrangements.Parallel(2 if norms == 2 else 1) if parallel else arrangements.Pre()


def _arrangement_out(arrangement: Any, config: DecoderConfig) -> dict[str, Any]:
    if isinstance(arrangement, arrangements.Parallel):
        return {"parallel_attn": True, "num_ln_in_parallel_attn": arrangement.norms if _newer(config) else None}
    if arrangement != arrangements.Pre() or _newer(config):
        raise NoCounterpart
    return {"parallel_attn": False, "num_ln_in_parallel_attn": None}


def _position_in(keys: Keys) -> Any:
    turns = TURNED.read(keys)
    return BIASES if keys.flag("alibi", False) else turns


def _position_out(position: Any, config: DecoderConfig) -> dict[str, Any]:
    if position == BIASES:
        return {"alibi": True}
    return {"alibi": False} | TURNED.write(position, config)


def _names(config: DecoderConfig) -> Table:
    two = config.arrangement == arrangements.Parallel(2)
    layer = NORMS | {
        "attention.qkv": "self_attention.query_key_value",
        "attention.output": "self_attention.dense",
        "feed_forward.expand": "mlp.dense_h_to_4h",
        "feed_forward.contract": "mlp.dense_4h_to_h",
    }
    layer |= {"before": "ln_attn", "before_feed_forward": "ln_mlp"} if two else {}
    names = {"embed.table": "transformer.word_embeddings", "decoder.final": "transformer.ln_f"}
    names |= below("decoder.layers.*.", "transformer.h.*.", layer)
    copies = {"lm_head.weight": "transformer.word_embeddings.weight"}
    return packed(names, "transformer.", config, copies=copies)


FALCON = foreign(
    "falcon", "Falcon", LAYERED,
    {
        "layers": size("num_hidden_layers", 32),
        "width": size("hidden_size", 4544),
        "inner": size("ffn_hidden_size", 0, least=0),
        "heads": size("num_attention_heads", 71),
        "shared_heads": Field(_shared_in, _shared_out),
        "dropout": number("hidden_dropout", 0.0),
        "attention_dropout": number("attention_dropout", 0.0),
        "tied": flag("tie_word_embeddings", True),
        "bias": flag("bias", False, yes="all", no="none"),
        "feed_forward_bias": flag("bias", False),
        "norm.epsilon": number("layer_norm_epsilon", 1e-5),
        "arrangement": Field(_arrangement_in, _arrangement_out),
        "position": Field(_position_in, _position_out),
        "feed_forward": choice("activation", "gelu", PLAIN),
        "max_length": size(LENGTH, 2048),
    },
    _names,
)  # fmt: skip
