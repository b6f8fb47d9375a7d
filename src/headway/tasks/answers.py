"""What encoders answer to several texts at once: to a text and one that may follow it, to a question and its choices.
Such heads come with checkpoints of other programs; headway does not train them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch

from headway.batch import TextInputs
from headway.errors import InputError
from headway.generate.encoder import Encoder
from headway.generate.one_or_many import is_several, one_or_many
from headway.tasks.encoding import Encoding, answered
from headway.tasks.tagging import Tagging
from headway.tasks.task import Prediction, refuse_unknown


class Chooser(Encoder):
    """An encoder that chooses: `chooser.choose([("The cat sat on", ["a mat", "a plan"])])`."""

    @one_or_many(is_several)
    def choose(self, questions: Sequence[tuple[str, Sequence[str]]], *, truncate: bool = False) -> list[list[float]]:
        """The probability of each choice: a softmax over those of one question."""
        pairs = [(question, choice) for question, choices in questions for choice in choices]

        def answer(rows: list[int], inputs: TextInputs) -> list[float]:
            logits_B = self.model.head.choices(self.model.encode(inputs))
            return [float(logit) for logit in logits_B.float().cpu()]

        logits = iter(self._answers(self._framed(pairs, truncate), answer))
        return [
            torch.tensor([next(logits) for _ in choices]).softmax(0).tolist() if choices else []
            for _, choices in questions
        ]


def parts_of(line: str, number: int, wanted: str, least: int, most: int | None = None) -> tuple[str, ...]:
    """The texts between the tabs of a line; a blank line has none."""
    parts = tuple(line.split("\t"))
    if not line.strip():
        return ()
    if len(parts) < least or (most and len(parts) > most) or not all(part.strip() for part in parts):
        raise InputError(f"line {number} is not {wanted}, with a tab between them")
    return parts


class Answering(Encoding):
    """Abstract. A line is several texts with tabs between them."""

    verb = "predict"
    what: ClassVar[str]
    wanted: ClassVar[str]  # how a line is written
    options: ClassVar[tuple[str, ...]] = ("truncate",)
    most: ClassVar[int | None] = 2

    @classmethod
    def answers(cls, model: Any, asked: list[tuple[str, ...]], truncate: bool) -> list[Any]:
        raise NotImplementedError

    @classmethod
    def prediction(cls, parts: tuple[str, ...], found: Any) -> Prediction:
        raise NotImplementedError

    @classmethod
    def answer(cls, model: Any, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, cls.options, f"a model that {cls.what}")
        given = [parts_of(value, number, cls.wanted, 2, cls.most) for number, value in enumerate(values, 1)]
        found: list[Any] = answered(given, lambda asked: cls.answers(model, asked, "truncate" in options))
        for parts, one in zip(given, found, strict=True):
            yield cls.prediction(parts, one) if parts else Prediction("", {})


class NextSentences(Answering):
    name = "next-sentence"
    what = "says whether a text follows another"
    wanted = "two texts"

    @classmethod
    def answers(cls, model: Encoder, asked: list[Any], truncate: bool) -> list[Any]:
        return model.classify(asked, truncate=truncate)

    @classmethod
    def prediction(cls, parts: tuple[str, ...], found: Any) -> Prediction:
        line = "\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in found)
        labels = {guess.text: round(guess.probability, 6) for guess in found}
        return Prediction(line, {"first": parts[0], "second": parts[1], "labels": labels})


class Choosing(Answering):
    name = "multiple-choice"
    what = "chooses among texts"
    wanted = "a question and its choices"
    most = None
    opens = Chooser

    @classmethod
    def answers(cls, model: Chooser, asked: list[Any], truncate: bool) -> list[Any]:
        return model.choose([(question, choices) for question, *choices in asked], truncate=truncate)

    @classmethod
    def prediction(cls, parts: tuple[str, ...], found: list[float]) -> Prediction:
        pairs = list(zip(parts[1:], found, strict=True))
        line = "\t".join(f"{choice}\t{share:.4f}" for choice, share in sorted(pairs, key=lambda pair: -pair[1]))
        return Prediction(line, {"question": parts[0], "choices": [[text, round(share, 6)] for text, share in pairs]})


class ReplacedTokens(Encoding):
    """Which words of a text are not its own: labels of words, by a discriminator."""

    name = "replaced-tokens"
    verb = "predict"
    answer = Tagging.answer
