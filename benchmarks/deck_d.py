"""Deck D's examples: its sentences, and the tables that counting makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headway.explore.mask_trace import BOUNDARY, SENTENCES
from headway.models.counts import Ints
from headway.models.ngram import NGram, NGramConfig
from headway.models.skips import SkipPairs, learn_scores, mask_of
from headway.models.smoothing import MaximumLikelihood


@dataclass(frozen=True)
class Sentences:
    """Sentences with their counts. Words have ids in alphabetical order, after that of the boundary."""

    counted: tuple[tuple[str, int], ...]

    @cached_property
    def words(self) -> list[str]:
        return sorted({word for text, _ in self.counted for word in text.split()})

    def ids(self, text: str) -> list[int]:
        return [self.words.index(word) + 1 for word in text.split()]

    @cached_property
    def stream(self) -> Ints:
        """One after the other, the boundary before each and at the end."""
        rows = [[BOUNDARY, *self.ids(text)] for text, times in self.counted for _ in range(times)]
        return np.array([*(i for row in rows for i in row), BOUNDARY])

    def chain(self, order: int) -> NGram:
        """A Markov chain of this order: n-grams of one word more, as they were counted."""
        config = NGramConfig(order + 1, MaximumLikelihood(), boundary=BOUNDARY, never=())
        return NGram.count(config, len(self.words) + 1, self.stream)

    def table(self, histories: Sequence[str]) -> Tensor:
        """p(next word | history), a row for each history, a column for each word."""
        order = len(histories[0].split())
        ids_RT = torch.tensor([self.ids(history) for history in histories])
        logits_RTV, _ = self.chain(order)(ids_RT)
        # What was never counted behind a history that was is −∞; the boundary is no word of the deck's.
        return logits_RTV[:, -1, 1:].exp()


SHOW_ME = Sentences(
    (("show me my directories please", 2), ("show me my files please", 3), ("show me my photos please", 5))
)  # fmt: skip
BATTERY = Sentences((("check whether the battery ran down please", 4), ("check whether the program ran please", 6)))
PAIRS = ("battery ran", "check whether", "program ran", "the battery", "the program", "ran down", "whether the")

LOG = Sentences(tuple((text, 1) for text in SENTENCES))
PROGRAM_CASE = "check the program log and find out whether it ran"
BATTERY_CASE = "check the battery log and find out whether it ran"


@dataclass(frozen=True)
class Votes:
    """What the words before "ran" vote for: their table, the learned mask, and both beginnings before and after."""

    pairs: SkipPairs
    mask_VV: Tensor

    def of(self, beginning: str, masked: bool) -> dict[str, float]:
        votes_V = self.pairs.votes(LOG.ids(beginning), self.mask_VV if masked else None)
        return {word: float(votes_V[i]) for i, word in enumerate(LOG.words, 1) if votes_V[i] > 0}


def count_votes() -> Votes:
    pairs = SkipPairs.count(LOG.stream, len(LOG.words) + 1, BOUNDARY)
    return Votes(pairs, mask_of(pairs, learn_scores(pairs, LOG.stream)))
