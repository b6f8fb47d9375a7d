"""DeBERTa, versions 2 and 3 (He et al. 2021, 2023) in the Hugging Face format ↔ `headway.models.deberta`. The
convolution of version 2's largest is not held."""

from __future__ import annotations

from typing import Any

from headway.errors import InputError, refuse
from headway.hub.config_keys import Field, Keys, NoCounterpart, flag
from headway.hub.families.bert import BERT_WORDS, FIELDS, FIRST, IDS, LABELS, LAYER, SPANS, SQUARE, names_below
from headway.hub.families.encoder import Kin, Row, classes, foreign, tags, words
from headway.hub.families.foreign import Usual
from headway.models.deberta import DebertaConfig, Distances
from headway.models.head import Map
from headway.models.heads import Classes, MultipleChoice, Vectors, Words
from headway.models.token_heads import Tags

BOTH = ["p2c", "c2p"]  # distances look at content, content at distances
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "relu": "relu", "tanh": "tanh"}


def _distances(keys: Keys) -> Distances | None:
    kinds = keys.take("pos_att_type", [])
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    kinds = sorted(str(kind).strip().lower() for kind in kinds)
    shared, buckets = keys.flag("share_att_key", False), keys.take("position_buckets", -1, int)
    normed = keys.choice("norm_rel_ebd", "none", {"none": False, "layer_norm": True})
    farthest = keys.take("max_relative_positions", -1, int)
    relative = keys.flag("relative_attention", False)
    if kinds != (sorted(BOTH) if relative else []):
        wanted = f"{' and '.join(BOTH)} with relative_attention, none without it"
        raise InputError(f"{keys.where}: pos_att_type is {', '.join(kinds) or 'empty'}, headway has {wanted}")
    if not relative:
        return None
    farthest = farthest if farthest > 0 else keys.size("max_position_embeddings", 512)
    refuse(buckets == 1, f"{keys.where}: position_buckets is 1, it must be at least 2, or -1 for none")
    return Distances(buckets, farthest, normed, shared) if buckets > 0 else Distances(farthest, 0, normed, shared)


def _distances_out(distances: Distances | None, config: DebertaConfig) -> dict[str, Any]:
    if distances is None:
        return {"relative_attention": False, "pos_att_type": None}
    return {
        "relative_attention": True,
        "pos_att_type": BOTH,
        "position_buckets": distances.span if distances.farthest else -1,
        "max_relative_positions": distances.farthest or distances.span,
        "norm_rel_ebd": "layer_norm" if distances.normed else "none",
        "share_att_key": distances.shared,
    }


DEFAULTS = {
    "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24, "intermediate_size": 6144,
    "type_vocab_size": 0, "layer_norm_eps": 1e-7,
}  # fmt: skip
DEBERTA_FIELDS = FIELDS | {
    "types": Field(lambda keys: keys.size("type_vocab_size", 0, least=0), lambda n, config: {"type_vocab_size": n}),
    "absolute": flag("position_biased_input", True),
    "distances": Field(_distances, _distances_out),
}


def _hidden(keys: Keys, config: DebertaConfig) -> Map:
    keys.must("pooler_dropout", 0, 0.0)
    keys.must("pooler_hidden_size", config.width)
    return Map(keys.choice("pooler_hidden_act", "gelu", ACTIVATIONS))


def _hidden_out(head: Any) -> dict[str, Any]:
    names = [name for name, ours in ACTIVATIONS.items() if ours == head.map.activation]
    if not names:
        raise NoCounterpart("head.map")
    return {"pooler_hidden_act": names[0]}


POOLED = {FIRST: "pooler.dense"}
KIN = Kin(
    "deberta-v2", "DebertaV2", "deberta.",
    names_below("deberta", "encoder.layer", LAYER | {
        "attention.qkv": "attention.self.{query,key,value}_proj",
        "attention.distance_key_query": "attention.self.pos_{key,query}_proj",
    }, {"encoder.distances.table": "encoder.rel_embeddings", "encoder.distances.norm": "encoder.LayerNorm"}),
    {
        "Model": Row(Vectors, lambda keys, config: Vectors()),
        "ForMaskedLM": Row(Words, words(), BERT_WORDS),
        "ForSequenceClassification": Row(
            Classes, lambda keys, config: classes(hidden=_hidden(keys, config))(keys, config), POOLED | LABELS,
            "cls_dropout", _hidden_out,
        ),
        "ForTokenClassification": Row(Tags, tags, LABELS),
        "ForQuestionAnswering": SPANS,
        "ForMultipleChoice": Row(
            MultipleChoice, lambda keys, config: MultipleChoice(map=_hidden(keys, config)),
            POOLED | {"head.score": "classifier"}, "cls_dropout", _hidden_out,
        ),
    },
    (IDS, r"^deberta\.embeddings\.position_embeddings\.", r"^deberta\.encoder\.LayerNorm\."),
)  # fmt: skip
DEBERTA = foreign(
    KIN, DebertaConfig(), DEBERTA_FIELDS, Usual(SQUARE), DEFAULTS, must={"legacy": True},
    ignored=("cls_dropout", "num_labels", "pooler_dropout", "pooler_hidden_act", "pooler_hidden_size"),
)  # fmt: skip
