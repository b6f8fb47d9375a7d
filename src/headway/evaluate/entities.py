"""How well words are labelled: precision, recall and F1 of whole entities, and the accuracy of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from headway.data.tag_schemes import Chunk, chunks

TagJudge = Literal["auto", "f1", "accuracy"]
Labels = Sequence[str]


def entities(labels: Labels) -> set[Chunk]:
    """(type, first word, last word) of each chunk; an I- without a chunk of its type before it begins one."""
    return set(chunks(labels))


@dataclass(frozen=True)
class EntityScores:
    """right: entities found with their words and type, of `given` found and `true` ones. words: of them `agree`."""

    right: int
    given: int
    true: int
    agree: int
    words: int
    constant: ClassVar[None] = None  # a label that all were given alike would find no entity

    @classmethod
    def of(cls, true: Sequence[Labels], given: Sequence[Labels]) -> EntityScores:
        counts = [0] * 5
        for ours, theirs in zip(given, true, strict=True):
            found, wanted = entities(ours), entities(theirs)
            agree = sum(a == b for a, b in zip(ours, theirs, strict=True))
            row = (len(found & wanted), len(found), len(wanted), agree, len(theirs))
            counts = [whole + part for whole, part in zip(counts, row, strict=True)]
        return cls(*counts)

    @property
    def precision(self) -> float:
        return self.right / max(self.given, 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.true, 1)

    @property
    def f1(self) -> float:
        """2PR/(P + R) over the entities of all types, as conlleval and seqeval give it."""
        return 2 * self.right / max(self.given + self.true, 1)

    @property
    def accuracy(self) -> float:
        """The share of words with their own label."""
        return self.agree / max(self.words, 1)

    def figures(self) -> dict[str, float]:
        return {"f1": self.f1, "precision": self.precision, "recall": self.recall, "accuracy": self.accuracy}

    def to_dict(self) -> dict[str, Any]:
        return self.figures() | asdict(self)
