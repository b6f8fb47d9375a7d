"""What a text is given: one label, several at once, or a number. `KINDS` has them by `head.answer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from headway.data.label_sets import TargetStore, balanced_sets, number_targets, set_labels, set_targets
from headway.data.labelled import Labelled, LabelStore, balanced_weights, labels_in
from headway.errors import InputError, nearest, refuse
from headway.evaluate.label_sets import NumberScores, SetScores
from headway.evaluate.labels import LabelScores
from headway.tasks.task import entropy
from headway.text.framing import Framed

HALF = 0.5
NUMBER = "score"  # what a number is called, where `data.names` does not say it


class OneLabel:
    """A softmax over labels."""

    scores: ClassVar[Any] = LabelScores
    least: ClassVar[int] = 2  # labels that there must be

    @staticmethod
    def written(texts: Sequence[Labelled]) -> tuple[str, ...]:
        return labels_in(texts)

    @staticmethod
    def store(part: str, labels: Sequence[str], known: Sequence[str], framed: Sequence[Framed], pad: int,
              balanced: bool) -> Any:  # fmt: skip
        number_of = {label: number for number, label in enumerate(known)}
        if strange := sorted(set(labels) - number_of.keys()):
            raise InputError(f"{part}: no training text has the label '{strange[0]}'{nearest(strange[0], known)}")
        numbers = [number_of[label] for label in labels]
        weights = balanced_weights(np.array(numbers), len(known)) if balanced else None
        return LabelStore(framed, numbers, pad, weights)

    @staticmethod
    def guess(store: Any) -> float:
        """The loss of knowing only how frequent each label is."""
        return entropy(np.bincount(store.labels))

    @staticmethod
    def chosen(guesses: Sequence[Any]) -> Sequence[Any]:
        """Those that a line shows."""
        return guesses[:1]

    @staticmethod
    def extra(chosen: Sequence[Any]) -> dict[str, Any]:
        """What JSON has beside the probability of every label."""
        return {}

    @staticmethod
    def line(guesses: Sequence[Any]) -> str:
        return "\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in guesses)


class SeveralLabels(OneLabel):
    """A sigmoid for each label: those of at least one half are given."""

    scores: ClassVar[Any] = SetScores
    least = 1

    @staticmethod
    def written(texts: Sequence[Labelled]) -> tuple[str, ...]:
        return set_labels(texts)

    @staticmethod
    def targets(labels: Sequence[str], known: Sequence[str], where: str) -> Any:
        return set_targets(labels, known, where)

    @classmethod
    def store(cls, part: str, labels: Sequence[str], known: Sequence[str], framed: Sequence[Framed], pad: int,
              balanced: bool) -> Any:  # fmt: skip
        targets_NL = cls.targets(labels, known, part)
        weights_NL = balanced_sets(targets_NL) if balanced else np.ones_like(targets_NL)
        return TargetStore(framed, targets_NL, weights_NL, pad)

    @staticmethod
    def guess(store: Any) -> float:
        share_L = store.targets_NL.mean(0).clip(1e-9, 1 - 1e-9)
        return float(-(share_L * np.log(share_L) + (1 - share_L) * np.log(1 - share_L)).mean())

    @staticmethod
    def chosen(guesses: Sequence[Any]) -> Sequence[Any]:
        return [guess for guess in guesses if guess.probability >= HALF]

    @staticmethod
    def extra(chosen: Sequence[Any]) -> dict[str, Any]:
        return {"chosen": [guess.text for guess in chosen]}


class Number(SeveralLabels):
    """The number itself."""

    scores = NumberScores

    @staticmethod
    def written(texts: Sequence[Labelled]) -> tuple[str, ...]:
        return (NUMBER,)

    @staticmethod
    def targets(labels: Sequence[str], known: Sequence[str], where: str) -> Any:
        return number_targets(labels, where)

    @staticmethod
    def guess(store: Any) -> float:
        return float(store.targets_NL.var())

    @staticmethod
    def chosen(guesses: Sequence[Any]) -> Sequence[Any]:
        return guesses

    @staticmethod
    def extra(chosen: Sequence[Any]) -> dict[str, Any]:
        return {}

    @staticmethod
    def line(guesses: Sequence[Any]) -> str:
        if len(guesses) == 1:
            return f"{guesses[0].probability:.4f}"
        return OneLabel.line(guesses)


KINDS: dict[str, type[OneLabel]] = {"one": OneLabel, "several": SeveralLabels, "number": Number}


def check(run: Any) -> None:
    """Refuse settings that mean nothing for what the head answers."""
    answer = getattr(run.head, "answer", "one")
    refuse(answer != "one" and run.objective.one_label, f"objective={run.objective.name} gives one label: set "
           "head.answer=one, or take another recipe")  # fmt: skip
    if answer != "one":
        refuse(run.objective.smoothing, f"objective.smoothing is for one label a text, not head.answer={answer}")
    weighs = run.data.class_weights != "equal"
    refuse(answer == "number" and weighs, "data.class_weights has no meaning for numbers: leave it out")
