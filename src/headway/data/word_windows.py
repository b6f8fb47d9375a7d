"""Words and the words around them, in tiles: what skip-gram learns from.

A step takes some rows of text from all over the corpus, leaves out frequent words at random, and cuts the rest into
tiles of T consecutive words. A tile has C columns, its own words and a window more on either side, and M words
of noise which all of its words share: so all products of a tile are those of two matrices. The tiles of a step are a
function of (corpora, seed, step) alone.

R rows of text, L their length, P tiles, T words of a tile, C columns of a tile, M words of noise, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import Batch
from headway.data.batches import Ints, permutation
from headway.data.token_store import TokenStore, windows_of
from headway.errors import refuse
from headway.text.tokenizer import END, PAD, SPECIALS

ROW = 512  # tokens of text that stay together
TILE = 32
NOISE = 64  # words of noise of a tile
CHUNK = 1 << 22  # tokens that are counted at once
MEASURED = 10  # batches, of which one reports its loss
# Seeds of random streams, apart from each other.
ORDER, DRAWS = 20, 21


@dataclass(frozen=True)
class Tiles(Batch):
    """near: whether a column's word is in the window of a word. pairs: how many are. tokens_read: of text. measured:
    whether a training step on them reports its loss."""

    words_PT: Tensor
    around_PC: Tensor
    near_PTC: Tensor
    noise_PM: Tensor
    pairs: int
    tokens_read: int = 0
    measured: bool = True

    def counted(self) -> dict[str, float]:
        return {"loss": max(self.pairs, 1), "nll": max(self.pairs, 1), "tokens": self.tokens_read}


def count_words(corpora: Sequence[TokenStore], vocabulary: int) -> Ints:
    """How often each word is there; specials are no words."""
    counts_V = np.zeros(vocabulary, np.int64)
    for corpus in corpora:
        for start in range(0, corpus.tokens, CHUNK):
            ids_L = corpus.windows([start], min(CHUNK, corpus.tokens - start))[0]
            counts_V += np.bincount(ids_L, minlength=vocabulary)
    counts_V[: len(SPECIALS)] = 0
    return counts_V


@final
class WordWindows:
    """The tiles of any step. Every row of text comes once before any comes again."""

    def __init__(
        self, corpora: Sequence[TokenStore], tokens: int, window: int, kept_V: Tensor, noise_V: Tensor, seed: int,
        row: int = ROW, tile: int = TILE, noise: int = NOISE,
    ) -> None:  # fmt: skip
        """About `tokens` of text a step. `kept_V`: the share of a word that is not passed over; `noise_V`: what noise
        is drawn from."""
        self.corpora, self.window, self.seed, self.tile, self.noise = list(corpora), window, seed, tile, noise
        self.row = min(row, tokens, *(corpus.tokens for corpus in corpora))
        self.rows = max(1, tokens // self.row)
        self.kept_V = kept_V.numpy().astype(np.float32)
        up_to_V = np.cumsum(noise_V.double().numpy())
        self.noise_up_to_V = up_to_V / up_to_V[-1]
        # The last row of a corpus begins so early that it is as long as the others.
        starts = [np.minimum(np.arange(0, c.tokens, self.row), c.tokens - self.row) for c in corpora]
        self.start_of = np.concatenate(starts)
        self.corpus_of = np.repeat(np.arange(len(starts)), [len(some) for some in starts])
        refuse(not len(self.start_of), "there is no text to learn words from")

    @property
    def per_epoch(self) -> float:
        """Steps."""
        return len(self.start_of) / self.rows

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.rows * self.row

    def batch(self, step: int) -> Tiles:
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, DRAWS, step))))
        ids_RL = self._rows(step)
        kept_RL = (ids_RL >= len(SPECIALS)) & (generator.random(ids_RL.shape, np.float32) < self.kept_V[ids_RL])
        # No window reaches into another document, nor into another row.
        text_RL = np.cumsum(ids_RL == END, 1) + np.arange(len(ids_RL))[:, None] * (self.row + 1)
        return self._tiles(ids_RL[kept_RL], text_RL[kept_RL], generator, step % MEASURED == 0)

    def _rows(self, step: int) -> Ints:
        wanted = np.arange(step * self.rows, (step + 1) * self.rows)
        epochs, places = wanted // len(self.start_of), wanted % len(self.start_of)
        chosen = [_order(len(self.start_of), self.seed, int(e))[p] for e, p in zip(epochs, places, strict=True)]
        return windows_of(self.corpora, self.corpus_of[chosen].tolist(), self.start_of[chosen].tolist(), self.row)

    def _tiles(self, words_N: Ints, texts_N: Ints, generator: np.random.Generator, measured: bool) -> Tiles:
        T, W = self.tile, self.window
        count = -(-len(words_N) // T)
        more = count * T - len(words_N)
        around_PC = _overlapping(np.pad(words_N, (W, W + more), constant_values=PAD), T, W)
        texts_PC = _overlapping(np.pad(texts_N, (W, W + more), constant_values=-1), T, W)
        words_PT, texts_PT = around_PC[:, W : W + T], texts_PC[:, W : W + T]
        reach_PT = np.pad(generator.integers(1, W + 1, len(words_N)), (0, more)).reshape(count, T)
        apart_TC = np.abs(np.arange(T + 2 * W)[None] - W - np.arange(T)[:, None])
        near_PTC = (apart_TC <= reach_PT[:, :, None]) & (apart_TC > 0) & (texts_PC[:, None] == texts_PT[:, :, None])
        noise_PM = np.searchsorted(self.noise_up_to_V, generator.random((count, self.noise)), "right")
        words, around, near, noise = (torch.from_numpy(np.array(a)) for a in (words_PT, around_PC, near_PTC, noise_PM))
        return Tiles(words, around, near, noise, int(near_PTC.sum()), self.tokens, measured)


def _overlapping(row: Ints, tile: int, window: int) -> NDArray[np.int64]:
    """A padded row as tiles with a window more on either side of each."""
    columns = tile + 2 * window
    return sliding_window_view(row, columns)[::tile] if len(row) >= columns else np.empty((0, columns), np.int64)


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> Ints:
    return permutation(count, seed, ORDER, epoch)
