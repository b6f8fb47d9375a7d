"""Settings and results of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headway.errors import InputError, refuse


@dataclass(frozen=True)
class Search:
    """Beam search; `beam=1` is greedy: its first end is the end, whatever `finish` says.

    A hypothesis of log-probability s and n tokens (its end counted) scores s / nᵅ, α = `length_penalty`.
    `finish="full"` ends a sentence when `beam` hypotheses have ended; `"bound"` continues until none that is
    still open can come among the `best` (with a beam wide enough: the exact answer).
    The longest output has `max_ratio` · source + `max_extra` tokens, or `min_length` where that is more.
    """

    beam: int = 5
    length_penalty: float = 1.0
    best: int = 1
    min_length: int = 0
    max_ratio: float = 2.0
    max_extra: int = 20
    finish: Literal["full", "bound"] = "full"

    def __post_init__(self) -> None:
        refuse(self.beam < 1, f"beam must be at least 1, not {self.beam}")
        refuse(not 1 <= self.best <= self.beam, f"best must lie between 1 and the beam ({self.beam}), not {self.best}")
        for name in ("length_penalty", "max_ratio"):
            refuse(not math.isfinite(getattr(self, name)), f"{name} must be a finite number, not {getattr(self, name)}")
        for name in ("min_length", "max_ratio", "max_extra"):
            refuse(getattr(self, name) < 0, f"{name} must not be negative: {getattr(self, name)}")
        if self.max_ratio + self.max_extra == 0:
            raise InputError("max_ratio and max_extra are both 0: the longest output needs at least one token")

    def longest(self, source_length: int, limit: int) -> int:
        """The most tokens, without the end, that an output may have; `limit` is the model's own."""
        if self.min_length > limit:
            raise InputError(f"min_length is {self.min_length}, this model writes at most {limit} tokens")
        scaled = int(min(limit, self.max_ratio * source_length))  # a huge ratio: the product may be infinite
        return max(1, self.min_length, min(limit, scaled + self.max_extra))


@dataclass(frozen=True)
class Hypothesis:
    """One output: its ids without the end, its score, and the log-probability of each token, the end's last, if it
    has ended."""

    ids: list[int]
    score: float
    token_scores: list[float]
