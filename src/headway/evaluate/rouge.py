"""ROUGE (Lin 2004): what a summary shares with what people wrote. Words as the package rouge-score has them: in lower
case, letters and digits alone; there is no stemming."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import InputError, refuse

NOT_WORD = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Rouge:
    """F1, from 0 to 100, of words, of pairs of words, and of the longest common subsequence; means over texts, of each
    text the best of its references."""

    one: float
    two: float
    longest: float
    texts: int

    @classmethod
    def of(cls, written: Sequence[str], references: Sequence[Sequence[str]]) -> Rouge:
        if len(written) != len(references):
            raise InputError(f"{len(written)} summaries and {len(references)} references: there must be one of each")
        refuse(not written, "no summaries to compare: give at least one")
        found = [_best(text, some) for text, some in zip(written, references, strict=True)]
        one, two, longest = (100 * sum(scores) / len(found) for scores in zip(*found, strict=True))
        return cls(one, two, longest, len(found))

    def figures(self) -> dict[str, float]:
        return {"ROUGE-1": self.one, "ROUGE-2": self.two, "ROUGE-L": self.longest}

    def lines(self) -> list[str]:
        return [*(f"{name}  {value:.2f}" for name, value in self.figures().items()), f"{self.texts:,} texts"]

    def to_dict(self) -> dict[str, Any]:
        return self.figures() | {"texts": self.texts}


def words_of(text: str) -> list[str]:
    return NOT_WORD.sub(" ", text.lower()).split()


def _best(text: str, references: Sequence[str]) -> tuple[float, ...]:
    words = words_of(text)
    each = [_scores(words, words_of(reference)) for reference in references]
    return tuple(max(scores) for scores in zip(*each, strict=True))


def _scores(words: list[str], wanted: list[str]) -> tuple[float, float, float]:
    counted = [(_grams(words, n), _grams(wanted, n)) for n in (1, 2)]
    one, two = (_f1((mine & theirs).total(), mine.total(), theirs.total()) for mine, theirs in counted)
    return one, two, _f1(common(words, wanted), len(words), len(wanted))


def _grams(words: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def _f1(shared: int, written: int, wanted: int) -> float:
    return 2 * shared / (written + wanted) if shared else 0.0


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for j, wanted in enumerate(other, 1):
            before, row[j] = row[j], before + 1 if word == wanted else max(row[j], row[j - 1])
    return row[-1]
