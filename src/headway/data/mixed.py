"""Pictures with captions, with questions, and with what a robot did: rows of one kind, each a prompt and its answer.

A row is a picture, a state where there is one, a prompt and one answer of several: all of them ids. Of a batch every
source has the same share.

B rows, M rows of a source, N pictures, S width of a state, C channels, H height, W width, T tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import IGNORED, column
from headway.data.annotated import PictureBatch
from headway.data.augment import ImageInputs, generator
from headway.data.batches import order_of, rung
from headway.data.demonstrations import moved
from headway.data.image_files import Bytes
from headway.worlds.world import Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MixedInputs(ImageInputs):
    """Normalised pictures; states, of which those are there whose `acts_B` is 1."""

    states_BS: Tensor = column()
    acts_B: Tensor = column()


class MixedRow(NamedTuple):
    """One picture, for a batch that is made of many."""

    pixels_CHW: NDArray[np.float32]
    states: int
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """All pictures take the same time to read."""
        return 0

    @staticmethod
    def join(rows: Sequence[MixedRow]) -> MixedInputs:
        pixels_BCHW = torch.from_numpy(np.stack([row.pixels_CHW for row in rows])).to(rows[0].dtype)
        return MixedInputs(pixels_BCHW, torch.zeros(len(rows), rows[0].states), torch.zeros(len(rows)))


@dataclass(frozen=True)
class MixedBatch(PictureBatch):
    """kinds: those of the run, and lengths: how many tokens an answer of each has on average; kind_B: which of them a
    row is of. ids_BT: a prompt, the start and an answer; labels_BT: the answer's. The loss counts rows, so that long
    answers weigh no more than short ones."""

    states_BS: Tensor = column()
    acts_B: Tensor = column()
    kind_B: Tensor = column(empty=IGNORED)
    ids_BT: Tensor = column()
    labels_BT: Tensor = column(pad=IGNORED)
    kinds: tuple[str, ...] = ("captions",)
    lengths: tuple[float, ...] = (1.0,)

    @property
    def inputs(self) -> MixedInputs:
        return MixedInputs(super().inputs.pixels_BCHW, self.states_BS, self.acts_B)

    def labels_of(self, kind: int) -> Tensor:
        """(B, T): those of one kind, IGNORED elsewhere."""
        return self.labels_BT.masked_fill((self.kind_B != kind)[:, None], IGNORED)

    def counted(self) -> dict[str, float]:
        rows, predicted = int(self.there_B.sum()), int((self.labels_BT != IGNORED).sum())
        each = {name: int((self.labels_of(kind) != IGNORED).sum()) for kind, name in enumerate(self.kinds)}
        return {"loss": rows, "nll": predicted, **each, "tokens": rows}


@dataclass(frozen=True, eq=False)
class Source:
    """kind: its name. picture_M: the picture of each row. answers: of each row one or several, with their ends.
    shift: pictures are moved by at most so many pixels, flip: they are mirrored half of the times, in training."""

    kind: str
    pixels_NCHW: Bytes
    picture_M: Ints
    prompts: Sequence[Sequence[int]]
    answers: Sequence[Sequence[Sequence[int]]]
    states_MS: Floats | None = None
    shift: int = 0
    flip: bool = False

    def __len__(self) -> int:
        return len(self.picture_M)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(repr((self.kind, self.prompts, self.answers)).encode(), digest_size=16)
        for part in (self.pixels_NCHW, self.picture_M, *(() if self.states_MS is None else (self.states_MS,))):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def length(self, longest: int) -> float:
        """Tokens of an answer, on average."""
        return float(np.mean([min(len(some[0]), longest) for some in self.answers]))

    def pixels(self, at: Ints, seed: Sequence[int]) -> Bytes:
        """(B, C, H, W) of these rows; no seed: as they are."""
        found_BCHW = self.pixels_NCHW[self.picture_M[at]]
        if seed and self.flip:
            mirrored_B = generator(*seed, 1).random(len(at)) < 0.5
            found_BCHW = np.where(mirrored_B[:, None, None, None], found_BCHW[..., ::-1], found_BCHW)
        if seed and self.shift:
            away_B2 = generator(*seed, 2).integers(-self.shift, self.shift + 1, (len(at), 2))
            found_BCHW = moved(found_BCHW[..., None], away_B2)[..., 0]
        return found_BCHW

    def texts(self, at: Ints, seed: Sequence[int]) -> list[tuple[Sequence[int], Sequence[int]]]:
        """A prompt and an answer of each of these rows; no seed: the first answer."""
        draw = generator(*seed, 3) if seed else None
        chosen = [int(draw.integers(len(self.answers[row]))) if draw else 0 for row in at]
        return [(self.prompts[row], self.answers[row][one]) for row, one in zip(at, chosen, strict=True)]


class MixedBatches:
    """Endless batches, a function of the sources, the seed and the step. Every batch has of each source the same number
    of rows; each source has epochs of its own, and the longest of them is called the epoch.

    start: the id between a prompt and its answer. longest: tokens of a row: a prompt keeps its last ones. whole: every
    row of every source once, in order. lengths: as those of a batch, where they are not of these sources.
    """

    def __init__(
        self, sources: Sequence[Source], shares: Sequence[float], rows: int, scale: Any, states: int, start: int,
        longest: int, seed: int = 0, whole: bool = False, lengths: tuple[float, ...] = (),
    ) -> None:  # fmt: skip
        self.sources, self.seed, self.whole, self.states, self.start = sources, seed, whole, states, start
        self.longest = longest
        self.mean_C11, self.std_C11 = map(torch.from_numpy, scale)
        self.rows = dealt_by(shares, rows)
        steps = [-(-len(source) // count) for source, count in zip(sources, self.rows, strict=True)]
        self.per_epoch = sum(steps) if whole else max(steps)
        self.begins = np.cumsum([0, *map(len, sources)])
        self.kinds = tuple(source.kind for source in sources)
        self.lengths = lengths or tuple(source.length(longest) for source in sources)

    def batch(self, step: int) -> MixedBatch:
        """Of training step `step`, counted from 0."""
        return MixedBatch.join([self._part(number, step) for number in range(len(self.sources))])

    def epoch(self, epoch: int = 0) -> Iterator[MixedBatch]:
        if not self.whole:
            return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))
        return (
            self._made(number, np.arange(at, min(at + count, len(source))), ())
            for number, (source, count) in enumerate(zip(self.sources, self.rows, strict=True))
            for at in range(0, len(source), count)
        )

    def _part(self, number: int, step: int) -> MixedBatch:
        """The rows of one source: its order runs on from epoch to epoch, so that every batch is full."""
        count, rows = len(self.sources[number]), self.rows[number]
        places = np.arange(step * rows, (step + 1) * rows)
        at = np.array([order_of(count, self.seed + number, int(one // count))[one % count] for one in places])
        return self._made(number, at, (self.seed, number, step))

    def _made(self, number: int, at: Ints, seed: Sequence[int]) -> MixedBatch:
        source = self.sources[number]
        rows = [labelled(*pair, self.start, self.longest) for pair in source.texts(at, seed)]
        length = min(self.longest, rung(max(len(ids) for ids, _ in rows)))
        ids_BT = np.zeros((len(rows), length), np.int64)
        labels_BT = np.full((len(rows), length), IGNORED, np.int64)
        for row, (ids, labels) in enumerate(rows):
            ids_BT[row, : len(ids)], labels_BT[row, : len(ids)] = ids, labels
        acts, states_MS = source.states_MS is not None, source.states_MS
        states_BS = np.zeros((len(at), self.states), np.float32) if states_MS is None else states_MS[at]
        return MixedBatch(
            self.mean_C11, self.std_C11, torch.from_numpy(np.ascontiguousarray(source.pixels(at, seed))),
            torch.ones(len(at), dtype=torch.uint8), torch.from_numpy(states_BS), torch.full((len(at),), float(acts)),
            torch.full((len(at),), number), torch.from_numpy(ids_BT), torch.from_numpy(labels_BT), self.kinds,
            self.lengths,
            examples=tuple((self.begins[number] + at).tolist()),
        )  # fmt: skip


def prompted(prompt: Sequence[int], start: int, longest: int, behind: int) -> list[int]:
    """A prompt and the start of its answer, of which `behind` tokens must find room: of a prompt that is too long the
    last tokens."""
    return [*list(prompt)[max(0, len(prompt) + behind - longest) :], start]


def labelled(prompt: Sequence[int], answer: Sequence[int], start: int, longest: int) -> tuple[list[int], list[int]]:
    """What is read, and the label behind each token: those of the answer alone. An answer that is too long loses its
    last tokens."""
    answer = list(answer)[:longest]
    read = prompted(prompt, start, longest, len(answer))
    return [*read, *answer[:-1]], [*[IGNORED] * (len(read) - 1), *answer]


def dealt_by(shares: Sequence[float], rows: int) -> list[int]:
    """So many rows, dealt by shares: at least one each."""
    exact = np.array(shares) / sum(shares) * rows
    dealt = np.maximum(np.floor(exact), 1).astype(int)
    for number in np.argsort(-(exact - np.floor(exact)), kind="stable")[: max(0, rows - int(dealt.sum()))]:
        dealt[number] += 1
    while dealt.sum() > rows:  # small shares got one more than theirs
        dealt[dealt.argmax()] -= 1
    return [int(one) for one in dealt]
