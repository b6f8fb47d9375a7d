"""Windows over packed documents: what a language model is trained on and measured with.

The ids of all documents stand in one row, END after each; a window is T + 1 of them, T to read and T to predict. Which
ones a step gets is a function of (corpora, seed, step) alone, so the batch of any step can be made without the
ones before it, on every machine.

B rows, T length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from headway.batch import IGNORED, TokenBatch
from headway.data.batches import Ints, permutation, raw_words
from headway.data.token_store import TokenStore, windows_of
from headway.errors import InputError
from headway.text.tokenizer import PAD

# Seeds of random streams, apart from each other.
DRAWS, PHASE, ORDER = 10, 11, 12


class WindowBatches:
    """Endless batches of `rows` windows of `length` tokens, from one corpus or a weighted mixture of several.

    mode: `random` starts each window anywhere, as nanoGPT does; `epoch` cuts a corpus into windows side by side from a
    place that is new each epoch, and gives each of them once, in a new order.
    weights: the share of the windows from each corpus; without them, its share of the tokens. Every window's corpus is
    drawn, so the shares are exact on average. In the mode `epoch` each window of a corpus of weight w is then drawn
    with probability w in an epoch, and never twice.
    segments: number the documents of a row (an END belongs to the document that it begins), for attention that stays
    inside documents.
    """

    def __init__(
        self, corpora: TokenStore | Sequence[TokenStore], rows: int, length: int, seed: int,
        mode: Literal["random", "epoch"] = "random", weights: Sequence[float] | None = None, segments: bool = False,
    ) -> None:  # fmt: skip
        self.corpora = list(corpora) if isinstance(corpora, Sequence) else [corpora]
        self.rows, self.length, self.seed, self.mode, self.segments = rows, length, seed, mode, segments
        sizes = [corpus.tokens for corpus in self.corpora]
        for size in sizes:
            if size <= length:
                raise InputError(
                    f"a corpus of {size} tokens is smaller than one window of {length + 1}: "
                    "give more text, or a smaller model.max_length"
                )
        self.limits = _limits(weights if weights is not None else sizes, len(sizes))
        self.bases = [0, *np.cumsum(sizes).tolist()]
        self.cuts = [max(1, size // length - 1) for size in sizes]
        # Threads that make batches at an epoch's end need two orders of each corpus.
        self._order = lru_cache(maxsize=2 * len(sizes))(self._permuted)

    @property
    def per_epoch(self) -> int:
        """Steps in which the largest corpus would be read once, if it were the only one."""
        return -(-max(self.cuts) // self.rows)

    def batch(self, step: int) -> TokenBatch:
        """The batch of training step `step`, counted from 0."""
        words = raw_words(2 * self.rows, self.seed, step, DRAWS).tolist()
        of_rows = [bisect_right(self.limits, word) for word in words[::2]]
        starts = [
            self._anywhere(corpus, word) if self.mode == "random" else self._in_turn(corpus, step * self.rows + row)
            for row, (corpus, word) in enumerate(zip(of_rows, words[1::2], strict=True))
        ]
        window_BT = windows_of(self.corpora, of_rows, starts, self.length + 1)
        examples = tuple(self.bases[corpus] + start for corpus, start in zip(of_rows, starts, strict=True))
        end = self.corpora[0].end if self.segments else None
        return _token_batch(window_BT, window_BT[:, 1:].copy(), end, examples)

    def where(self, example: int) -> tuple[int, int]:
        """(corpus, place in it) of an example."""
        corpus = int(np.searchsorted(self.bases, example, side="right")) - 1
        return corpus, example - self.bases[corpus]

    def _anywhere(self, corpus: int, word: int) -> int:
        # The upper half of the product: uniform, without the bias of a remainder.
        return word * (self.corpora[corpus].tokens - self.length) >> 64

    def _in_turn(self, corpus: int, number: int) -> int:
        epoch, place = divmod(number, self.cuts[corpus])
        phase, order = self._order(corpus, epoch)
        return phase + int(order[place]) * self.length

    def _permuted(self, corpus: int, epoch: int) -> tuple[int, Ints]:
        """Where the first window of an epoch starts, and the order of the windows."""
        cuts = self.cuts[corpus]
        room = min(self.length, self.corpora[corpus].tokens - cuts * self.length)
        phase = int(raw_words(1, self.seed, epoch, corpus, PHASE)[0]) * room >> 64
        return phase, permutation(cuts, self.seed, epoch, corpus, ORDER)


def evaluation_windows(
    corpus: TokenStore, length: int, stride: int | None = None, rows: int = 8, segments: bool = False
) -> Iterator[TokenBatch]:
    """Windows from front to back in which every token of a corpus is predicted once; an END precedes the first token.

    A window starts `stride` tokens after the one before it and predicts the tokens that are new: each has at least
    `length` − `stride` tokens of context. Without a stride windows do not overlap. A corpus may be shorter than one.
    """
    stride = length if stride is None else stride
    if not 1 <= stride <= length:
        raise InputError(f"the stride is {stride}: it must be at least 1 and at most the window's {length} tokens")
    total = corpus.tokens
    width = min(length, total)
    # Place p of the row with its END in front is place p − 1 of the corpus.
    starts = range(0, total - width + stride, stride)
    for at in range(0, len(starts), rows):
        chosen = starts[at : at + rows]
        yield _token_batch(*_evaluated(corpus, chosen, width, stride), corpus.end if segments else None, tuple(chosen))


def _evaluated(corpus: TokenStore, starts: Sequence[int], length: int, stride: int) -> tuple[Ints, Ints]:
    """Windows that start at these places of END + corpus, and their labels."""
    window_BT = np.full((len(starts), length + 1), PAD, np.int64)
    labels_BT = np.full((len(starts), length), IGNORED, np.int64)
    for row, start in enumerate(starts):
        count = min(length, corpus.tokens - start)
        first = max(0, start - 1)
        ids = corpus.windows([first], start + count - first)[0]
        window_BT[row, : count + 1] = ids if start else [corpus.end, *ids]
        known = length - stride if start else 0
        labels_BT[row, known:count] = window_BT[row, known + 1 : count + 1]
    return window_BT, labels_BT


def _token_batch(window_BT: Ints, labels_BT: Ints, end: int | None, examples: tuple[int, ...]) -> TokenBatch:
    """`end`: the token between documents, where they are numbered as segments."""
    ids_BT = torch.from_numpy(window_BT[:, :-1].copy())
    numbers_BT = None if end is None else (ids_BT == end).cumsum(1)
    return TokenBatch(ids_BT, torch.from_numpy(labels_BT), numbers_BT, examples=examples)


def _limits(weights: Sequence[float], corpora: int) -> list[int]:
    """For each corpus the bound of 64-bit words below which (and not below the one before) it is drawn."""
    if len(weights) != corpora or min(weights) < 0 or not 0 < sum(weights) < np.inf:
        raise InputError(f"the weights are {list(weights)}: expected one for each of {corpora} corpora, none below 0")
    ends = np.cumsum(np.asarray(weights, np.float64))
    return [*(int(end / ends[-1] * 2**64) for end in ends[:-1].tolist()), 2**64]
