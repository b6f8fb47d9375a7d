"""The columns of tables about encoders and what is learned with them."""

from __future__ import annotations

from formats import Column, code, count, number, share

TEXT_CNN: list[Column] = [
    ("data", "data", str),
    ("vectors", "vectors", str),
    ("batches", "batches", str),
    ("accuracy", "test accuracy", lambda value: f"{value:.3f}"),
    ("published", "quoted from Kim 2014", lambda value: f"{value:.3f}"),
    ("validation", "validation", lambda value: f"{value:.3f}"),
    ("folds", "folds", count),
    ("seconds_each", "s a training", number),
]
DIGITS: list[Column] = [
    ("data", "data", str),
    ("accuracy", "test accuracy", lambda value: f"{value:.3f}"),
    ("spread", "±", lambda value: f"{value:.3f}"),
    ("over", "over its", str),
    ("validation", "validation", lambda value: f"{value:.3f}"),
    ("published", "quoted from Becker et al. 2018", lambda value: f"{value:.3f}"),
    ("parameters", "weights", count),
    ("seconds_each", "s a training", number),
]
TAGGING: list[Column] = [
    ("data", "data", str),
    ("model", "model", str),
    ("head", "head", str),
    ("figure", "figure", str),
    ("test", "test", lambda value: f"{value:.4f}"),
    ("spread", "± over seeds", lambda value: f"{value:.4f}" if value else ""),
    ("published", "quoted from Huang et al. 2015", lambda value: f"{value:.4f}"),
    ("validation", "validation", lambda value: f"{value:.4f}"),
    ("parameters", "weights", count),
    ("seconds_each", "s a training", number),
]
CLASSIFIERS: list[Column] = [
    ("data", "data", str),
    ("rung", "recipe", str),
    ("accuracy", "test accuracy", lambda value: f"{value:.3f}"),
    ("spread", "± over seeds", lambda value: f"{value:.3f}"),
    ("seconds", "s a training", number),
    ("parameters", "parameters", count),
]
AWARENESS: list[Column] = [
    ("data", "data", str),
    ("rung", "recipe", str),
    ("changed", "labels changed by shuffling", share),
    ("shuffled", "accuracy on shuffled texts", lambda value: f"{value:.3f}"),
    ("together", "what two distant words do together", share),
    ("left", "a word's vector changes with words before it", share),
    ("right", "with words behind it", share),
]
LAST_WORDS: list[Column] = [
    ("who", "what stands for the text", str),
    ("first_fifth", "gradient in the first fifth", share),
    ("last_fifth", "in the last fifth", share),
    ("accuracy", "validation accuracy", lambda value: f"{value:.3f}"),
]
TRANSFER: list[Column] = [
    ("recipe", "recipe", code),
    ("learns", "learns", str),
    ("trained", "weights trained", count),
    ("share", "share", lambda value: f"{100 * value:.2f} %"),
    ("figure", "figure", str),
    ("mean", "mean", lambda value: f"{value:.3f}"),
    ("spread", "± (deviation)", lambda value: f"{value:.3f}"),
    ("steps", "steps", count),
    ("peak", "peak rate", number),
    ("seconds", "seconds", count),
]
TRANSFER_POOLING = [column for column in TRANSFER if column[0] not in ("trained", "share", "seconds")]
PRETRAINING_LABELS = TRANSFER_POOLING
PRETRAINING_WORDS: list[Column] = [
    ("who", "masked words", str),
    ("loss", "loss", lambda value: f"{value:.3f}"),
    ("accuracy", "accuracy", lambda value: f"{value:.3f}"),
    ("next_sentence", "next sentence", lambda value: f"{value:.3f}"),
    ("gaps", "gaps", count),
    ("parameters", "parameters", count),
    ("steps", "steps", count),
    ("seconds", "s", count),
]
PRETRAINING_SPEED: list[Column] = [
    ("who", "a training step", str),
    ("rows", "rows", count),
    ("length", "tokens of each", count),
    ("tokens_per_second", "tokens/s", count),
    ("times_transformers", "beside transformers", lambda value: f"{value:.2f} ×"),
]
SPANS: list[Column] = [
    ("reader", "reader", str),
    *(
        (f"{test} {figure}", f"{shown}, {name}", lambda value: f"{100 * value:.1f}")
        for test, shown in (("test", "SQuAD"), ("xquad en", "XQuAD English"), ("xquad de", "XQuAD German"))
        for figure, name in (("f1", "F1"), ("exact", "exact match"))
    ),
    ("parameters", "weights", count),
    ("seconds_each", "seconds", count),
]
