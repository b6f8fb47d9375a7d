"""Batches of sequences by token budget: bucketed by length, shuffled from a seed, the same on every machine.

The plan of an epoch is a function of (lengths, seed, epoch) alone, so the batch of any step can be made without the
ones before it. Padded lengths come from a short list, so that compiled code and captured graphs are reused.

B rows, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from headway.batch import IGNORED, Batch, TextInputs, TokenBatch
from headway.data.store import PairStore
from headway.text.tokenizer import END, START

Ints = NDArray[np.int64]
Examples = NDArray[np.integer]  # numbers of examples, four bytes each while that is enough
# For each sequence of an example: the lengths of all examples, and how much longer their frame makes them.
Lengths = tuple[tuple[NDArray[np.int32], int], ...]
Made = TypeVar("Made", bound=Batch)

CHUNK = 1 << 16  # examples that are grouped by length at once


@dataclass(frozen=True)
class Frame:
    """The ids around the two sides of a pair: headway's own, or those of a model from elsewhere.

    before, behind: of a source. start: the first input of the decoder. first: labels before those of a target. end: the
    last one.
    """

    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = (END,)
    start: int = START
    end: int = END
    first: tuple[int, ...] = ()

    @property
    def more(self) -> int:
        """The number of ids that it adds to a source."""
        return len(self.before) + len(self.behind)


OWN_FRAME = Frame()


def rung(length: int) -> int:
    """The padded length for `length`: multiples of 4 up to 32, then 8 up to 64, 16 up to 128, and so on."""
    step = 4
    while length > 8 * step:
        step *= 2
    return -(-length // step) * step


def permutation(count: int, *seed: int) -> Ints:
    """A shuffle that is the same on every machine and version: the order of raw Philox words."""
    return np.argsort(raw_words(count, *seed), kind="stable")


@lru_cache(maxsize=8)
def order_of(count: int, seed: int, epoch: int, shuffle: bool = True) -> Ints:
    """The order of an epoch's examples, remembered: to shuffle 50,000 takes as long as a step of a small model."""
    order = permutation(count, seed, epoch, 0) if shuffle else np.arange(count)
    order.setflags(write=False)
    return order


def raw_words(count: int, *seed: int) -> NDArray[np.uint64]:
    """Random words of 64 bits; the first ones are the same whatever the count."""
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    return np.random.Philox(key=key).random_raw(count)


@dataclass(frozen=True)
class Bucket:
    """Examples that are padded to the same lengths, and how many fit into a batch."""

    lengths: tuple[int, ...]
    examples: Examples
    rows: int


def buckets(lengths: Lengths, budget: int, longest: int | None = None) -> list[Bucket]:
    """Group examples by padded lengths; a group smaller than one batch is merged into the next larger one.

    longest: no example is padded beyond it (None: there is no limit)."""
    groups = _by_shape(lengths, longest)
    shapes = sorted(groups, key=lambda shape: (max(shape), *shape[::-1]))
    result: list[Bucket] = []
    padded = (0,) * len(lengths)
    waiting: list[Examples] = []
    for shape in shapes:
        padded = tuple(map(max, padded, shape))
        waiting += groups.pop(shape)
        rows = max(1, budget // max(padded))
        rows = rows // 8 * 8 or rows
        if sum(map(len, waiting)) < rows and shape != shapes[-1]:
            continue
        result.append(Bucket(padded, np.sort(np.concatenate(waiting)), rows))
        padded, waiting = (0,) * len(lengths), []
    return result


def _by_shape(lengths: Lengths, longest: int | None) -> dict[tuple[int, ...], list[Examples]]:
    """The examples of each shape (padded lengths), some at a time: an index or an order of all examples at once would
    take eight bytes for each."""
    most = int(max(some.max() + more for some, more in lengths))
    limit = rung(most) if longest is None else max(longest, most)
    ladder = np.array([min(rung(n), limit) for n in range(most + 1)])
    rungs, rank = np.unique(ladder, return_inverse=True)
    count = len(lengths[0][0])
    narrow = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    sizes = (len(rungs),) * len(lengths)
    groups: dict[tuple[int, ...], list[Examples]] = {}
    for start in range(0, count, CHUNK):
        shapes = np.ravel_multi_index([rank[some[start : start + CHUNK] + more] for some, more in lengths], sizes)
        order = np.argsort(shapes, kind="stable")
        found, starts = np.unique(shapes[order], return_index=True)
        for shape, examples in zip(found.tolist(), np.split(order + start, starts[1:]), strict=True):
            padded = tuple(int(rungs[at]) for at in np.unravel_index(shape, sizes))
            groups.setdefault(padded, []).append(examples.astype(narrow))
    return groups


class BucketedBatches(Generic[Made]):
    """Endless batches over a corpus, epoch after epoch, each epoch in a new order, rows of like length together.

    lengths: see `Lengths`. collate: a batch of these examples at these
    padded lengths. full: every batch of a bucket has the same number of rows, empty ones where examples are missing,
    so that a captured step serves all of them. longest: no row is padded beyond it: the positions of the model.
    """

    def __init__(
        self, lengths: Lengths, collate: Callable[[Ints, tuple[int, ...]], Made], budget: int,
        seed: int, shuffle: bool = True, full: bool = False, longest: int | None = None,
    ) -> None:  # fmt: skip
        self.collate, self.seed, self.shuffle, self.full = collate, seed, shuffle, full
        self.buckets = buckets(lengths, budget, longest)
        self.per_epoch = sum(-(-len(bucket.examples) // bucket.rows) for bucket in self.buckets)
        self._plan: tuple[int, list[tuple[Bucket, Examples]]] | None = None

    def plan(self, epoch: int) -> list[tuple[Bucket, Examples]]:
        """Every batch of an epoch, as its bucket and its examples."""
        held = self._plan  # once: another thread may be at the next epoch
        if held is not None and held[0] == epoch:
            return held[1]
        self._plan = None  # two plans at once would be twice the memory
        cuts = self._cuts(epoch)
        self._plan = (epoch, cuts)
        return cuts

    def _cuts(self, epoch: int) -> list[tuple[Bucket, Examples]]:
        cuts: list[tuple[Bucket, Examples]] = []
        for number, bucket in enumerate(self.buckets):
            order = bucket.examples
            if self.shuffle:
                order = order[permutation(len(order), self.seed, epoch, 1 + number)]
            cuts += [(bucket, order[at : at + bucket.rows]) for at in range(0, len(order), bucket.rows)]
        return [cuts[i] for i in permutation(len(cuts), self.seed, epoch, 0)] if self.shuffle else cuts

    def batch(self, step: int) -> Made:
        """The batch of training step `step`, counted from 0 over all epochs."""
        return self._made(*self.plan(step // self.per_epoch)[step % self.per_epoch])

    def epoch(self, epoch: int = 0) -> Iterator[Made]:
        for bucket, examples in self.plan(epoch):
            yield self._made(bucket, examples)

    def _made(self, bucket: Bucket, examples: Examples) -> Made:
        batch = self.collate(examples.astype(np.int64), bucket.lengths)
        return batch.pad(bucket.rows) if self.full else batch


class MixedBatches(BucketedBatches[Made]):
    """Rows of any lengths together, as many in every batch as fit at the greatest length. Where rows of like length
    share a batch, a batch of long ones has fewer, so each of them weighs more."""

    def __init__(self, lengths: Lengths, *how: Any, **more: Any) -> None:
        super().__init__(lengths, *how, **more)
        self.rows, self.count = min(bucket.rows for bucket in self.buckets), len(lengths[0][0])
        self.per_epoch = -(-self.count // self.rows)
        self.padded = np.empty((self.count, len(lengths)), np.int32)
        for bucket in self.buckets:
            self.padded[bucket.examples] = bucket.lengths

    def _cuts(self, epoch: int) -> list[tuple[Bucket, Examples]]:
        order = order_of(self.count, self.seed, epoch, self.shuffle)
        starts = range(0, self.count, self.rows)
        widest = np.maximum.reduceat(self.padded[order], starts, axis=0).tolist()
        groups = [order[at : at + self.rows] for at in starts]
        return [(Bucket(tuple(most), some, self.rows), some) for most, some in zip(widest, groups, strict=True)]


def pair_batches(
    pairs: PairStore, budget: int, seed: int, shuffle: bool = True, frame: Frame = OWN_FRAME, full: bool = False,
    longest: int | None = None,
) -> BucketedBatches[TokenBatch]:  # fmt: skip
    """Sentence pairs: the sources are the inputs, the targets the tokens to predict."""
    lengths = (pairs.source.lengths, frame.more), (pairs.target.lengths, 1 + len(frame.first))
    return BucketedBatches(lengths, partial(_collate_pairs, pairs, frame), budget, seed, shuffle, full, longest)


def _collate_pairs(pairs: PairStore, frame: Frame, examples: Ints, padded: tuple[int, ...]) -> TokenBatch:
    source_length, target_length = padded
    rows = np.arange(len(examples))
    lengths = pairs.source.lengths[examples].astype(np.int64) + frame.more
    source = pairs.source.rows(examples, source_length - len(frame.before))
    if frame.before:
        source = np.concatenate([np.tile(frame.before, (len(rows), 1)), source], 1)
    for place, word in enumerate(frame.behind):
        source[rows, lengths - len(frame.behind) + place] = word
    ends = pairs.target.lengths[examples] + len(frame.first)
    labels = pairs.target.rows(examples, target_length - len(frame.first))
    if frame.first:
        labels = np.concatenate([np.tile(frame.first, (len(rows), 1)), labels], 1)
    target = np.concatenate([np.full((len(rows), 1), frame.start), labels[:, :-1]], 1)
    labels[rows, ends] = frame.end
    labels[np.arange(target_length) > ends[:, None]] = IGNORED
    even = bool((lengths == source_length).all())
    inputs = TextInputs(torch.from_numpy(source), None if even else torch.from_numpy(lengths))
    ids_BT, labels_BT = torch.from_numpy(target), torch.from_numpy(labels)
    return TokenBatch(ids_BT, labels_BT, inputs=inputs, examples=tuple(examples.tolist()))
