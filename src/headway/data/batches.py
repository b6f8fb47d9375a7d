"""Batches of sentence pairs: by token budget, bucketed by length, shuffled from a seed, the same everywhere.

The plan of an epoch is a function of (lengths, seed, epoch) alone, so the batch of any step can be had without
the ones before it. Padded lengths come from a short ladder, so that compiled code and captured graphs are
reused.

B rows, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.text.tokenizer import END, PAD, START

Ints = NDArray[np.int64]
Examples = NDArray[np.integer]  # numbers of pairs, four bytes each while that is enough

PIECE = 1 << 16  # pairs that are grouped by length at once


class Pairs(Protocol):
    """What a corpus of pairs offers; `PairStore` does."""

    @property
    def source_lengths(self) -> NDArray[np.int32]: ...
    @property
    def target_lengths(self) -> NDArray[np.int32]: ...
    def rows(self, side: str, examples: Ints, width: int) -> Ints: ...


@dataclass(frozen=True)
class Frame:
    """What stands around the two sides of a pair: headway's own ids, or those of a model from elsewhere.

    before, behind: of a source. start: what a decoder is given before the first word. end: what a target ends with.
    nothing: the label where nothing is asked; no id where every id may be a word.
    """

    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = (END,)
    start: int = START
    end: int = END
    nothing: int = PAD

    @property
    def more(self) -> int:
        """How much longer than its words a source is."""
        return len(self.before) + len(self.behind)


HEADWAYS = Frame()


class Batch(Protocol):
    """What training knows of a batch, whatever is in it."""

    @property
    def labels_BT(self) -> Tensor: ...
    @property
    def tokens(self) -> int: ...
    @property
    def examples(self) -> tuple[int, ...]: ...
    @property
    def counts(self) -> dict[str, int]: ...
    def map(self, change: Callable[[Tensor], Tensor]) -> Any: ...
    def rows(self, start: int, end: int) -> Any: ...
    def split(self, parts: int) -> list[Any]: ...


@dataclass(frozen=True)
class PairBatch:
    """Teacher forcing's inputs and labels, right-padded; `tokens` counts the labels that are not padding."""

    source_BS: Tensor
    source_lengths_B: Tensor | None  # None: no row is padded
    target_BT: Tensor
    labels_BT: Tensor
    tokens: int
    examples: tuple[int, ...] = ()
    nothing: int = PAD  # the label where nothing is asked

    @property
    def counts(self) -> dict[str, int]:
        """How much each term of an objective sums over, known before the first forward."""
        return {"loss": self.tokens, "nll": self.tokens}

    def map(self, change: Callable[[Tensor], Tensor]) -> PairBatch:
        """The batch with every tensor changed: moved, pinned, copied."""
        lengths = self.source_lengths_B
        return replace(
            self,
            source_BS=change(self.source_BS),
            source_lengths_B=None if lengths is None else change(lengths),
            target_BT=change(self.target_BT),
            labels_BT=change(self.labels_BT),
        )

    def rows(self, start: int, end: int) -> PairBatch:
        lengths = None if self.source_lengths_B is None else self.source_lengths_B[start:end]
        labels, examples = self.labels_BT[start:end], self.examples[start:end]
        tokens = int((labels != self.nothing).sum())
        return PairBatch(
            self.source_BS[start:end], lengths, self.target_BT[start:end], labels, tokens, examples, self.nothing
        )  # fmt: skip

    def split(self, parts: int) -> list[PairBatch]:
        """Rows dealt to `parts` smaller batches; empty ones are left out."""
        return [self.rows(start, end) for start, end in dealt(len(self.source_BS), parts)]


def dealt(rows: int, parts: int) -> list[tuple[int, int]]:
    """(start, end) of the rows of each part; empty ones are left out."""
    ends = np.linspace(0, rows, parts + 1).round().astype(int).tolist()
    return [(start, end) for start, end in zip(ends, ends[1:], strict=False) if end > start]


def rung(length: int) -> int:
    """The padded length for `length`: multiples of 4 up to 32, then 8 up to 64, 16 up to 128, and so on."""
    step = 4
    while length > 8 * step:
        step *= 2
    return -(-length // step) * step


def permutation(count: int, *seed: int) -> Ints:
    """A shuffle that is the same on every machine and version: the order of raw Philox words."""
    return np.argsort(raw_words(count, *seed), kind="stable")


def raw_words(count: int, *seed: int) -> NDArray[np.uint64]:
    """Random words of 64 bits; the first ones are the same whatever the count."""
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    return np.random.Philox(key=key).random_raw(count)


@dataclass(frozen=True)
class Bucket:
    """Examples that are padded to the same two lengths, and how many fit into a batch."""

    source_length: int
    target_length: int
    examples: Examples
    rows: int


def buckets(pairs: Pairs, budget: int, frame: Frame = HEADWAYS) -> list[Bucket]:
    """Group examples by padded lengths; a group too small for one batch joins the next larger one."""
    groups = _by_shape(pairs.source_lengths, pairs.target_lengths, frame.more)
    shapes = sorted(groups, key=lambda shape: (max(shape), shape[1], shape[0]))
    result: list[Bucket] = []
    s = t = 0
    waiting: list[Examples] = []
    for shape in shapes:
        s, t = max(s, shape[0]), max(t, shape[1])
        waiting += groups.pop(shape)
        rows = max(1, budget // max(s, t))
        rows = rows // 8 * 8 or rows
        if sum(map(len, waiting)) < rows and shape != shapes[-1]:
            continue
        result.append(Bucket(s, t, np.sort(np.concatenate(waiting)), rows))
        s = t = 0
        waiting = []
    return result


def _by_shape(source: NDArray[np.int32], target: NDArray[np.int32], more: int) -> dict[tuple[int, int], list[Examples]]:
    """The examples of each (padded source length, padded target length), what stands around them counted, in pieces.

    Piece by piece, because an index or an order of all examples at once takes eight bytes for each.
    """
    ladder = np.array([rung(n) for n in range(int(max(source.max() + more, target.max() + 1)) + 1)])
    rungs, rank = np.unique(ladder, return_inverse=True)
    narrow = np.int32 if len(source) <= np.iinfo(np.int32).max else np.int64
    groups: dict[tuple[int, int], list[Examples]] = {}
    for start in range(0, len(source), PIECE):
        piece = slice(start, start + PIECE)
        shapes = rank[source[piece] + more] * len(rungs) + rank[target[piece] + 1]
        order = np.argsort(shapes, kind="stable")
        found, starts = np.unique(shapes[order], return_index=True)
        for shape, examples in zip(found.tolist(), np.split(order + start, starts[1:]), strict=True):
            s, t = divmod(shape, len(rungs))
            groups.setdefault((int(rungs[s]), int(rungs[t])), []).append(examples.astype(narrow))
    return groups


class PairBatches:
    """Endless batches over a corpus, epoch after epoch, each epoch in a new order."""

    def __init__(
        self, pairs: Pairs, budget: int, seed: int, shuffle: bool = True, frame: Frame = HEADWAYS
    ) -> None:  # fmt: skip
        self.pairs, self.seed, self.shuffle, self.frame = pairs, seed, shuffle, frame
        self.buckets = buckets(pairs, budget, frame)
        self.per_epoch = sum(-(-len(bucket.examples) // bucket.rows) for bucket in self.buckets)
        self._plan: tuple[int, list[tuple[Bucket, Examples]]] | None = None

    def plan(self, epoch: int) -> list[tuple[Bucket, Examples]]:
        """Every batch of an epoch, as its bucket and its examples."""
        held = self._plan  # once: another thread may be at the next epoch
        if held is not None and held[0] == epoch:
            return held[1]
        self._plan = None  # two plans at once would be twice the memory
        cuts: list[tuple[Bucket, Examples]] = []
        for number, bucket in enumerate(self.buckets):
            order = bucket.examples
            if self.shuffle:
                order = order[permutation(len(order), self.seed, epoch, 1 + number)]
            cuts += [(bucket, order[at : at + bucket.rows]) for at in range(0, len(order), bucket.rows)]
        if self.shuffle:
            cuts = [cuts[i] for i in permutation(len(cuts), self.seed, epoch, 0)]
        self._plan = (epoch, cuts)
        return cuts

    def batch(self, step: int) -> PairBatch:
        """The batch of training step `step`, counted from 0 over all epochs."""
        bucket, examples = self.plan(step // self.per_epoch)[step % self.per_epoch]
        return collate(self.pairs, examples, bucket.source_length, bucket.target_length, self.frame)

    def from_step(self, step: int) -> Iterator[PairBatch]:
        while True:
            yield self.batch(step)
            step += 1

    def epoch(self, epoch: int = 0) -> Iterator[PairBatch]:
        for bucket, examples in self.plan(epoch):
            yield collate(self.pairs, examples, bucket.source_length, bucket.target_length, self.frame)


def collate(
    pairs: Pairs, examples: Examples, source_length: int, target_length: int, frame: Frame = HEADWAYS
) -> PairBatch:
    rows, wide = np.arange(len(examples)), examples.astype(np.int64)
    lengths = pairs.source_lengths[wide].astype(np.int64) + frame.more
    source = pairs.rows("source", wide, source_length - len(frame.before))
    if frame.before:
        source = np.concatenate([np.tile(frame.before, (len(rows), 1)), source], 1)
    for place, word in enumerate(frame.behind):
        source[rows, lengths - len(frame.behind) + place] = word
    ends = pairs.target_lengths[wide]
    labels = pairs.rows("target", wide, target_length)
    target = np.concatenate([np.full((len(rows), 1), frame.start), labels[:, :-1]], 1)
    labels[rows, ends] = frame.end
    if frame.nothing != PAD:
        labels[np.arange(target_length) > ends[:, None]] = frame.nothing
    even = bool((lengths == source_length).all())
    return PairBatch(
        torch.from_numpy(source),
        None if even else torch.from_numpy(lengths),
        torch.from_numpy(target),
        torch.from_numpy(labels),
        int(ends.sum()) + len(rows),
        tuple(wide.tolist()),
        frame.nothing,
    )


def pad_rows(batch: PairBatch, rows: int) -> PairBatch:
    """The same batch with empty rows behind, so that its shape is one of few; the padding counts nowhere."""
    missing = rows - len(batch.source_BS)
    lengths = batch.source_lengths_B
    if lengths is None:
        lengths = torch.full((len(batch.source_BS),), batch.source_BS.shape[1])
    if missing <= 0:
        return replace(batch, source_lengths_B=lengths)

    def extend(ids: Tensor, value: int) -> Tensor:
        return torch.cat([ids, ids.new_full((missing, *ids.shape[1:]), value)])

    return replace(
        batch,
        source_BS=extend(batch.source_BS, END),
        source_lengths_B=extend(lengths, 1),
        target_BT=extend(batch.target_BT, START),
        labels_BT=extend(batch.labels_BT, batch.nothing),
    )
