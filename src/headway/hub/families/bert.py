"""BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), with XLM-RoBERTa and CamemBERT, and ALBERT (Lan et al. 2020) in
the Hugging Face format ↔ `headway.models.bert`.

ALBERT has no dropout behind its feed-forward network; headway's has that of the config, which is 0 as it was published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import refuse
from headway.hub.config_keys import Field, Keys, NoCounterpart, choice, number, size
from headway.hub.families.encoder import Kin, Row, choice_of, classes, foreign, tags, words
from headway.hub.families.foreign import ACTIVATIONS, Usual
from headway.hub.names import below
from headway.models.bert import BertConfig
from headway.models.heads import Classes, MultipleChoice, NextSentence, Vectors, Words, WordsAndPair
from headway.models.token_heads import Spans, Tags

FIELDS = {
    "layers": size("num_hidden_layers", 12),
    "width": size("hidden_size", 768),
    "inner": size("intermediate_size", 3072),
    "heads": size("num_attention_heads", 12),
    "types": size("type_vocab_size", 2),
    "max_length": size("max_position_embeddings", 512),
    "dropout": number("hidden_dropout_prob", 0.1),
    "attention_dropout": number("attention_probs_dropout_prob", 0.1),
    "norm.epsilon": number("layer_norm_eps", 1e-12),
    "feed_forward": choice("hidden_act", "gelu", ACTIVATIONS),
}
ALBERT_FIELDS = FIELDS | {
    "groups": size("num_hidden_groups", 1),
    "group_layers": size("inner_group_num", 1),
    "narrow": size("embedding_size", 128),
}
ALBERT_DEFAULTS = {
    "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 64, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu_new", "classifier_dropout_prob": 0.1,
}  # fmt: skip


def _first(keys: Keys) -> int:
    """RoBERTa counts from behind its padding's row."""
    return int(keys.take("pad_token_id", 1, int)) + 1


def _rows_behind(keys: Keys) -> int:
    rows = keys.size("max_position_embeddings", 512)
    refuse(_first(keys) >= rows, f"config.json: max_position_embeddings is {rows}, behind the padding's there is none")
    return rows - _first(keys)


def _padding_out(first: int, config: BertConfig) -> dict[str, Any]:
    if not first:
        raise NoCounterpart
    return {"pad_token_id": first - 1}


ROBERTA_FIELDS = FIELDS | {
    "first_position": Field(_first, _padding_out),
    "max_length": Field(
        _rows_behind, lambda length, config: {"max_position_embeddings": length + config.first_position}
    ),
}


# Of training alone; of generation, by models that do not generate; of heads that ALBERT's authors tried.
IGNORED = (
    "layer_norm_eps", "eos_token_ids", "output_past", "num_labels", "down_scale_factor", "gap_size",
    "net_structure_type", "num_memory_blocks", "classifier_dropout", "classifier_dropout_prob",
)  # fmt: skip

EMBEDDING = {
    "table": "word_embeddings",
    "position.table": "position_embeddings",
    "types": "token_type_embeddings",
    "norm": "LayerNorm",
}
LAYER = {
    "around_attention.outside": "attention.output.LayerNorm",
    "around_feed_forward.outside": "output.LayerNorm",
    "attention.qkv": "attention.self.{query,key,value}",
    "attention.output": "attention.output.dense",
    "feed_forward.expand": "intermediate.dense",
    "feed_forward.contract": "output.dense",
}
ALBERT_LAYER = {
    "around_attention.outside": "attention.LayerNorm",
    "around_feed_forward.outside": "full_layer_layer_norm",
    "attention.qkv": "attention.{query,key,value}",
    "attention.output": "attention.dense",
    "feed_forward.expand": "ffn",
    "feed_forward.contract": "ffn_output",
}


def names_below(prefix: str, layers: str, layer: Mapping[str, str], more: Mapping[str, str] = {}) -> dict[str, str]:
    """Of all weights below the head; `more`: of those that others do not have."""
    return {
        **below("encoder.embed.", f"{prefix}.embeddings.", EMBEDDING),
        **below("encoder.encoder.layers.*.", f"{prefix}.{layers}.*.", layer),
        **{ours: f"{prefix}.{theirs}" for ours, theirs in more.items()},
    }


def words_at(place: str, map: str, norm: str, bias: str = "bias") -> dict[str, str]:
    """Where the words' map, norm, output and bias are."""
    bias = f"{place}.{bias}"
    return {"head.map": map, "head.norm": norm, "head.output": f"{place}.decoder", "head.bias_V": bias}


# Masks in older files, and heads that checkpoints carry without need.
IDS = r"embeddings\.(position|token_type)_ids$"
FIRST, LABELS = "head.first.layer.map", {"head.labels": "classifier"}
SPANS = Row(Spans, lambda keys, config: Spans(), {"head.ends": "qa_outputs"})
TAGS = Row(Tags, tags, LABELS, "classifier_dropout")


def pooled(pooler: str, dropout: str) -> dict[str, Row]:
    """Heads on the map of the first token."""
    first = {FIRST: pooler}
    return {
        "Model": Row(Vectors, lambda keys, config: Vectors(first=True), first),
        "ForSequenceClassification": Row(Classes, classes(), first | LABELS, dropout),
        "ForTokenClassification": replace(TAGS, dropout=dropout),
        "ForQuestionAnswering": SPANS,
        "ForMultipleChoice": Row(MultipleChoice, choice_of(), first | {"head.score": "classifier"}, dropout),
    }


BERT_WORDS = words_at(
    "cls.predictions", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
)  # fmt: skip
PAIR = {FIRST: "bert.pooler.dense", "head.pair": "cls.seq_relationship"}
BERT_KIN = Kin(
    "bert", "Bert", "bert.", names_below("bert", "encoder.layer", LAYER),
    pooled("bert.pooler.dense", "classifier_dropout") | {
        "ForMaskedLM": Row(Words, words(), BERT_WORDS),
        "ForPreTraining": Row(WordsAndPair, words(WordsAndPair), BERT_WORDS | PAIR),
        "ForNextSentencePrediction": Row(
            NextSentence, lambda keys, config: NextSentence(),
            {FIRST: "bert.pooler.dense", "head.labels": "cls.seq_relationship"},
        ),
    },
    (IDS, r"^bert\.pooler\.dense\.", r"^cls\.seq_relationship\."),
)  # fmt: skip
ALBERT_WORDS = words_at("predictions", "predictions.dense", "predictions.LayerNorm")
ALBERT_KIN = Kin(
    "albert", "Albert", "albert.",
    names_below("albert", "encoder.albert_layer_groups", ALBERT_LAYER,
           {"encoder.embed.widen": "encoder.embedding_hidden_mapping_in"}),
    pooled("albert.pooler", "classifier_dropout_prob") | {
        "ForMaskedLM": Row(Words, words(), ALBERT_WORDS),
        "ForPreTraining": Row(
            WordsAndPair, words(WordsAndPair),
            ALBERT_WORDS | {FIRST: "albert.pooler", "head.pair": "sop_classifier.classifier"},
        ),
    },
    (IDS, r"^albert\.pooler\.", r"^sop_classifier\.classifier\."),
    lambda config, layer: "{}.albert_layers.{}".format(*divmod(layer, config.group_layers)),
)  # fmt: skip
OWN_LABELS = {FIRST: "classifier.dense", "head.labels": "classifier.out_proj"}
ROBERTA_ROWS = pooled("roberta.pooler.dense", "classifier_dropout") | {
    "ForMaskedLM": Row(Words, words(activation="gelu"), words_at("lm_head", "lm_head.dense", "lm_head.layer_norm")),
    "ForSequenceClassification": Row(Classes, classes(twice=True), OWN_LABELS, "classifier_dropout"),
    "ForMultipleChoice": Row(
        MultipleChoice, choice_of(), {FIRST: "roberta.pooler.dense", "head.score": "classifier"}
    ),
}  # fmt: skip
ROBERTA_KIN = Kin(
    "roberta", "Roberta", "roberta.", names_below("roberta", "encoder.layer", LAYER), ROBERTA_ROWS,
    (IDS, r"^roberta\.pooler\.dense\."),
)  # fmt: skip
SQUARE = {"unknown": "[UNK]", "pad": "[PAD]", "mask": "[MASK]", "first": "[CLS]", "separator": "[SEP]"}
ANGLE = {"start": "<s>", "end": "</s>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>", "first": "<s>",
         "separator": "</s>"}  # fmt: skip
BERT = foreign(BERT_KIN, BertConfig(), FIELDS, Usual(SQUARE), ignored=IGNORED)
ROBERTA = foreign(ROBERTA_KIN, BertConfig(), ROBERTA_FIELDS, Usual(ANGLE, enclosed=True), ignored=IGNORED)
ALBERT = foreign(ALBERT_KIN, BertConfig(), ALBERT_FIELDS, Usual(), ALBERT_DEFAULTS, ignored=IGNORED)
XLM_ROBERTA, CAMEMBERT = (
    foreign(replace(ROBERTA_KIN, kind=kind, name=name), BertConfig(), ROBERTA_FIELDS, Usual(ANGLE), ignored=IGNORED)
    for kind, name in (("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert"))
)
