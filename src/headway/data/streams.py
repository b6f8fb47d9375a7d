"""Contiguous streams of text, for training models that carry their state from batch to batch.

A corpus is cut into B rows of equal length, and each step reads the next T tokens of every row, so that row b of a step
continues row b of the step before. Which tokens a step gets is a function of (corpus, seed, step) alone.

B rows, T length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from headway.batch import TokenBatch
from headway.data.batches import Ints, raw_words
from headway.data.token_store import TokenStore
from headway.errors import InputError, refuse

# Seeds of random streams, apart from each other and from those of the windows.
TURN, CUTS = 20, 21
PLACES = 5  # where a cut may fall when it is moved: few lengths, so that captured and compiled steps are used again


@dataclass(frozen=True)
class StreamBatch(TokenBatch):
    """The next columns of some rows, from row `first_row` of the stream on. `fresh` (a single truth value): they begin
    an epoch, so the carried state belongs to another part of the text.

    share: of a window of the usual length. The mean loss is taken over a window of that length, so that every token has
    the same weight and a short window moves the weights less.
    """

    fresh: Tensor | None = None
    first_row: int = 0
    share: float = 1.0

    def counted(self) -> dict[str, float]:
        usual = self.labels_BT.numel() / self.share
        return dict.fromkeys(("loss", "nll", "activation", "change"), usual) | {"tokens": self.labels_BT.numel()}

    def rows(self, start: int, end: int) -> StreamBatch:
        return replace(super().rows(start, end), first_row=self.first_row + start)


class StreamBatches:
    """Endless batches of `rows` rows, `length` tokens a step, from one corpus.

    The text is taken as a ring and turned by another amount each epoch, so that no epoch cuts it at the same places.
    jitter: each cut between two steps is moved by up to this share of a length, to either side (Merity et al. 2018 vary
    the lengths for the same reason: a token that always stands first in its window never has a past to learn from).
    """

    def __init__(
        self, corpora: TokenStore | Sequence[TokenStore], rows: int, length: int, seed: int, jitter: float = 0.0
    ) -> None:
        self.corpora = list(corpora) if isinstance(corpora, Sequence) else [corpora]
        if len(self.corpora) > 1:
            raise InputError(
                f"data.order=stream reads one corpus from front to back, not {len(self.corpora)}: put the files into "
                "one folder, or set data.order=epoch"
            )
        refuse(not 0 <= jitter <= 0.25, f"data.jitter must lie between 0 and 0.25, not {jitter}")
        self.corpus, self.rows, self.length, self.seed = self.corpora[0], rows, length, seed
        self.columns = (self.corpus.tokens - 1) // rows
        self.per_epoch = self.columns // length
        self.moves = [round(place * jitter * length) for place in np.linspace(-1, 1, PLACES)] if jitter else [0]
        if not self.per_epoch:
            raise InputError(
                f"a corpus of {self.corpus.tokens:,} tokens is too small for {rows} rows of {length}: "
                "give more text, or a smaller engine.batch"
            )

    def batch(self, step: int) -> StreamBatch:
        """The batch of training step `step`, counted from 0."""
        epoch, number = divmod(step, self.per_epoch)
        turned = int(raw_words(1, self.seed, epoch, TURN)[0]) * self.corpus.tokens >> 64
        start, end = self._cut(epoch, number), self._cut(epoch, number + 1)
        starts = [(turned + row * self.columns + start) % self.corpus.tokens for row in range(self.rows)]
        window_BT = torch.from_numpy(np.stack([self._around(place, end - start + 1) for place in starts]))
        ids_BT, labels_BT = window_BT[:, :-1].contiguous(), window_BT[:, 1:].contiguous()
        fresh, share = torch.tensor(number == 0), (end - start) / self.length
        return StreamBatch(ids_BT, labels_BT, examples=tuple(starts), fresh=fresh, share=share)

    def where(self, example: int) -> tuple[int, int]:
        """(corpus, place in it) of an example."""
        return 0, example

    def _cut(self, epoch: int, number: int) -> int:
        """Where step `number` of an epoch begins, in columns. The first and the last cut stay where they are."""
        if len(self.moves) == 1 or not 0 < number < self.per_epoch:
            return number * self.length
        word = int(raw_words(1, self.seed, epoch, number, CUTS)[0])
        return number * self.length + self.moves[word * PLACES >> 64]

    def _around(self, start: int, width: int) -> Ints:
        """So many tokens of the ring."""
        before = min(width, self.corpus.tokens - start)
        found = self.corpus.windows([start], before)[0]
        return found if before == width else np.concatenate([found, self.corpus.windows([0], width - before)[0]])
