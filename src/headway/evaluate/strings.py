"""How far written strings are from those that were wanted: the share with any fault, and the edits for each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import InputError, refuse


@dataclass(frozen=True)
class StringErrors:
    """From 0 to 100, lower is better. word_error: the share of strings with any fault. token_error: insertions,
    deletions and replacements of tokens, for each token that was wanted (of phonemes: phoneme error rate)."""

    word_error: float
    token_error: float
    strings: int

    @classmethod
    def of(cls, written: Sequence[str], wanted: Sequence[str]) -> StringErrors:
        """Tokens stand between spaces."""
        if len(written) != len(wanted):
            raise InputError(f"{len(written)} strings and {len(wanted)} that were wanted: there must be one of each")
        refuse(not wanted, "no strings to compare: give at least one")
        pairs = [(one.split(), other.split()) for one, other in zip(written, wanted, strict=True)]
        wrong = sum(one != other for one, other in pairs)
        edits, tokens = sum(edit_distance(*pair) for pair in pairs), sum(len(other) for _, other in pairs)
        return cls(100 * wrong / len(pairs), 100 * edits / max(tokens, 1), len(pairs))

    def lines(self) -> list[str]:
        count = "1 string" if self.strings == 1 else f"{self.strings:,} strings"
        return [f"word error  {self.word_error:.2f} %, {count}", f"token error {self.token_error:.2f} %"]

    def to_dict(self) -> dict[str, Any]:
        return {"word_error": self.word_error, "token_error": self.token_error, "strings": self.strings}


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements that make one of the other (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for i, token in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, wanted in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (token != wanted))
    return row[-1]
