"""Tagging: a label of each word of a text, by an encoder with a head for words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headway.generate.encoder import Encoder
from headway.tasks.encoding import Encoding, answered
from headway.tasks.task import Prediction, refuse


class Tagging(Encoding):
    name = "tagging"
    verb = "predict"

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse(options, ("truncate",), "a model that labels words")
        found = answered(values, lambda texts: model.tag(texts, truncate="truncate" in options))
        for text, words in zip(values, found, strict=True):
            labels = [
                {"text": word.text, "start": word.start, "end": word.end, "label": word.label,
                 "probability": round(word.probability, 6)}
                for word in words
            ]  # fmt: skip
            yield Prediction(" ".join(f"{word.text}/{word.label}" for word in words), {"text": text, "labels": labels})
