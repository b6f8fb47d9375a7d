"""Rows of sentences with gaps: [CLS] text [SEP], or [CLS] text [SEP] second text [SEP] for the next sentence as well.

A row begins with a sentence and is filled up with those behind it; the last is cut where the row is full, and the next
row begins with it. Where texts are paired, a row ends with its document, is cut in two at a sentence, and of every two
rows one has a second text from elsewhere (Devlin et al. 2019, 3.1). Otherwise rows run on over the ends of documents,
with a separator between them (FULL-SENTENCES of Liu et al. 2019, 4.2).

The batch of a step is a function of (store, seed, step) alone: what is in a row, its second text and its gaps too.

B rows, T length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import torch

from headway.batch import TextInputs
from headway.data.batches import Ints, permutation, raw_words
from headway.data.masking import MaskedBatch, Masking
from headway.data.sentences import SentenceStore
from headway.errors import refuse

# Seeds of random streams, apart from each other.
DRAWS, PHASE, ORDER = 40, 41, 42
FAR = 1000  # sentences on either side of a row from which no text from elsewhere is taken


@dataclass(frozen=True)
class Marks:
    """The ids that stand around texts, and what fills a row up."""

    first: int
    separator: int
    pad: int


@final
class MaskedRows:
    """Endless batches of `rows` rows of `length` tokens. paired: with second texts."""

    def __init__(
        self, store: SentenceStore, masking: Masking, marks: Marks, rows: int, length: int, seed: int, paired: bool
    ) -> None:
        self.store, self.masking, self.marks, self.seed, self.paired = store, masking, marks, seed, paired
        self.rows, self.length, self.room = rows, length, length - 2 - paired
        self.starts = store.starts
        count = len(self.starts) - 1
        refuse(paired and count < 2, "one sentence has no next one: give more text, or set head=words")
        self.far = min(FAR, count // 4)
        # Behind the last sentence of each part that a row stays inside.
        self.ends = store.documents if paired else np.array([count])
        self._order = lru_cache(maxsize=2)(self._permuted)
        self._next = self._behind()
        self.count = len(self._begun(np.array([0, *self.ends[:-1]])))

    @property
    def per_epoch(self) -> float:
        """Steps."""
        return self.count / self.rows

    def batch(self, step: int) -> MaskedBatch:
        """The batch of training step `step`, counted from 0."""
        numbers = np.arange(step * self.rows, (step + 1) * self.rows)
        epochs, places = numbers // self.count, numbers % self.count
        firsts = [self._order(int(epoch))[place] for epoch, place in zip(epochs, places, strict=True)]
        return self._batch(np.array(firsts), self.seed, step)

    def epoch(self) -> Iterator[MaskedBatch]:
        """Every row once, in order, with the same gaps each time: for validation."""
        firsts = self._begun(np.array([0, *self.ends[:-1]]))
        for number, at in enumerate(range(0, len(firsts), self.rows)):
            yield self._batch(firsts[at : at + self.rows], self.seed, number)

    def _behind(self) -> Ints:
        """For each sentence the one that the next row begins with: the first that is not whole in this row."""
        starts = self.starts[:-1]
        cut = np.searchsorted(self.starts, starts + self.room, "right") - 1
        return np.minimum(np.maximum(cut, np.arange(len(starts)) + 1), self.ends[self._part(np.arange(len(starts)))])

    def _part(self, sentences: Ints) -> Ints:
        return np.searchsorted(self.ends, sentences, "right")

    def _begun(self, begins: Ints) -> Ints:
        """The first sentences of all rows, where the parts' own first ones are these."""
        found: list[int] = []
        for begin, end in zip(begins.tolist(), self.ends.tolist(), strict=True):
            while begin < end:
                found.append(begin)
                begin = int(self._next[begin])
        return np.array(found)

    def _permuted(self, epoch: int) -> Ints:
        """First sentences of an epoch's rows. A part that has several rows begins a little further on in each epoch, so
        that rows are cut elsewhere; the number of rows is the same in all."""
        begins = np.array([0, *self.ends[:-1]])
        room = np.where(self._next[begins] < self.ends, self._next[begins] - begins, 1).astype(np.uint64)
        shifts = (raw_words(len(begins), self.seed, epoch, PHASE) % room).astype(np.int64)
        firsts = self._begun(begins + shifts)
        return np.resize(firsts[permutation(len(firsts), self.seed, epoch, ORDER)], self.count)

    def _batch(self, firsts_B: Ints, seed: int, number: int) -> MaskedBatch:
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, DRAWS, number))))
        begin_B = self.starts[firsts_B]
        stop_B = np.minimum(begin_B + self.room, self._stop(firsts_B))
        nothing_B = np.zeros_like(begin_B)
        texts, pairs_B = ((begin_B, stop_B - begin_B), (nothing_B, nothing_B)), None
        if self.paired:
            texts, pairs_B = self._cut(firsts_B, begin_B, stop_B, random)
        ids_BT, types_BT, lengths_B = self._joined(*texts)
        hidden_BT, places_BP, labels_BP = self.masking.hide(ids_BT, random)
        lengths = None if (lengths_B == self.length).all() else torch.from_numpy(lengths_B)
        types = torch.from_numpy(types_BT) if self.paired else None
        inputs = TextInputs(torch.from_numpy(hidden_BT), lengths, types)
        return MaskedBatch(
            inputs, torch.from_numpy(places_BP), torch.from_numpy(labels_BP),
            None if pairs_B is None else torch.from_numpy(pairs_B), int(lengths_B.sum()),
            examples=tuple(firsts_B.tolist()),
        )  # fmt: skip

    def _stop(self, sentences_B: Ints) -> Ints:
        """Where the text of the part of each sentence ends; a paired row leaves the document's separator out."""
        return self.starts[self.ends[self._part(sentences_B)]] - self.paired

    def _cut(
        self, firsts_B: Ints, begin_B: Ints, stop_B: Ints, random: np.random.Generator
    ) -> tuple[tuple[tuple[Ints, Ints], tuple[Ints, Ints]], Ints]:
        """The places and lengths of the two texts of each row, and whether the second is from elsewhere."""
        behind_B = np.searchsorted(self.starts, stop_B, "left")
        inner_B = behind_B - firsts_B - 1
        at_B, coin_B, place_B = random.random((3, len(firsts_B)))
        cut_B = self.starts[np.minimum(firsts_B + 1 + (at_B * inner_B).astype(np.int64), behind_B - 1)]
        alone_B = inner_B < 1
        cut_B = np.where(alone_B, np.minimum(stop_B, begin_B + self.room // 2), cut_B)
        elsewhere_B = alone_B | (coin_B < 0.5)
        other_B = self._elsewhere(firsts_B, behind_B, place_B)
        room_B = self.room - (cut_B - begin_B)
        other_stop_B = np.minimum(self.starts[other_B] + room_B, self._stop(other_B))
        second_B = np.where(elsewhere_B, self.starts[other_B], cut_B)
        second_stop_B = np.where(elsewhere_B, other_stop_B, stop_B)
        texts = (begin_B, cut_B - begin_B), (second_B, second_stop_B - second_B)
        return texts, elsewhere_B.astype(np.int64)

    def _elsewhere(self, firsts_B: Ints, behind_B: Ints, place_B: np.ndarray) -> Ints:
        """A sentence of another document, or of the same one far from the row."""
        end_B = self.ends[self._part(firsts_B)]
        start_B = np.array([0, *self.ends])[self._part(firsts_B)]
        low_B, high_B = np.maximum(start_B, firsts_B - self.far), np.minimum(end_B, behind_B + self.far)
        left_B = np.maximum(1, len(self.starts) - 1 - (high_B - low_B))
        drawn_B = (place_B * left_B).astype(np.int64)
        return np.minimum(drawn_B + np.where(drawn_B >= low_B, high_B - low_B, 0), len(self.starts) - 2)

    def _joined(self, first: tuple[Ints, Ints], second: tuple[Ints, Ints]) -> tuple[Ints, Ints, Ints]:
        """Ids of a row, which text each is of, and how many there are."""
        (a_B1, size_B1), (b_B1, more_B1) = ((at[:, None], size[:, None]) for at, size in (first, second))
        at_T, marks = np.arange(self.length), self.marks
        lengths_B1 = 2 + self.paired + size_B1 + more_B1
        types_BT = (at_T > size_B1 + 1) & (at_T < lengths_B1) & self.paired
        places_BT = np.where(types_BT, b_B1 + at_T - size_B1 - 2, a_B1 + at_T - 1)
        ids_BT = self.store.at(np.clip(places_BT, 0, self.store.tokens - 1))
        ids_BT = np.where((at_T == size_B1 + 1) | (at_T == lengths_B1 - 1), marks.separator, ids_BT)
        ids_BT = np.where(at_T >= lengths_B1, marks.pad, ids_BT)
        ids_BT[:, 0] = marks.first
        return ids_BT, types_BT.astype(np.int64), lengths_B1[:, 0]
