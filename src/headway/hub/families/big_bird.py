"""BigBird (Zaheer et al. 2020) in the Hugging Face format ↔ `headway.models.bert` with a pattern of blocks.

transformers draws random blocks only in training; otherwise it reads the first block in their place, which is what
`resting="first"` says. Its head for questions is another network, which headway has not."""

from __future__ import annotations

from typing import Any

from headway.hub.config_keys import Field, Keys, NoCounterpart
from headway.hub.families.bert import (
    BERT_WORDS,
    FIELDS,
    FIRST,
    IDS,
    IGNORED,
    LABELS,
    LAYER,
    OWN_LABELS,
    SQUARE,
    TAGS,
    names_below,
)  # fmt: skip
from headway.hub.families.encoder import MUST, Kin, Row, activation_of, choice_of, classes, foreign, words
from headway.hub.families.foreign import Usual
from headway.models.bert import BertConfig
from headway.models.head import Map
from headway.models.heads import Classes, MultipleChoice, Vectors, Words, WordsAndPair
from headway.models.parts import Blocks, Whole

KINDS = {"block_sparse": Blocks, "original_full": Whole}


def _pattern(keys: Keys) -> Blocks | Whole:
    kind = keys.choice("attention_type", "block_sparse", KINDS)
    size, random = keys.size("block_size", 64), keys.size("num_random_blocks", 3, least=0)
    return Blocks(size, random, "first") if kind is Blocks else Whole()


def _pattern_out(pattern: Any, config: BertConfig) -> dict[str, Any]:
    if isinstance(pattern, Whole):
        return {"attention_type": "original_full"}
    if pattern.random and pattern.resting != "first":
        raise NoCounterpart("pattern.resting")
    return {"attention_type": "block_sparse", "block_size": pattern.size, "num_random_blocks": pattern.random}


def _classes(keys: Keys, config: BertConfig) -> Any:
    return classes(twice=True, hidden=Map(activation_of(config)))(keys, config)


POOLED = {FIRST: "bert.pooler"}
KIN = Kin(
    "big_bird", "BigBird", "bert.", names_below("bert", "encoder.layer", LAYER),
    {
        "Model": Row(Vectors, lambda keys, config: Vectors(first=True), POOLED),
        "ForMaskedLM": Row(Words, words(), BERT_WORDS),
        "ForPreTraining": Row(
            WordsAndPair, words(WordsAndPair), BERT_WORDS | POOLED | {"head.pair": "cls.seq_relationship"}
        ),
        "ForSequenceClassification": Row(Classes, _classes, OWN_LABELS, "classifier_dropout"),
        "ForTokenClassification": TAGS,
        "ForMultipleChoice": Row(MultipleChoice, choice_of(), POOLED | {"head.score": LABELS["head.labels"]}),
    },
    (IDS, r"^bert\.pooler\.", r"^cls\.seq_relationship\."),
)  # fmt: skip
BIG_BIRD = foreign(
    KIN, BertConfig(), FIELDS | {"pattern": Field(_pattern, _pattern_out)}, Usual(SQUARE),
    {"hidden_act": "gelu_new", "max_position_embeddings": 4096},
    must=MUST | {"use_bias": True, "rescale_embeddings": False}, ignored=IGNORED,
)  # fmt: skip
