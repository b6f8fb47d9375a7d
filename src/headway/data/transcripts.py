"""Recordings with what is said in them: batches of spectrograms and tokens.

N recordings, B rows, C channels (one), H mel bands, W frames, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import IGNORED, Batch, TokenBatch
from headway.data.augment import DrawnPictures, ImageInputs
from headway.data.batches import order_of

FEW_SHAPES = 8  # lengths are rounded up to a multiple


@dataclass(frozen=True)
class DrawnInputs(Batch):
    """Spectrograms that are changed where the model is, whenever it reads them."""

    pictures: DrawnPictures
    mean_C11: Tensor
    std_C11: Tensor

    @property
    def pixels_BCHW(self) -> Tensor:
        return self.pictures.pixels(self.mean_C11, self.std_C11)


@final
class TranscriptBatches:
    """Endless batches, epoch after epoch, each in a new order: a function of the recordings, the seed and the step.

    texts: the ids of each, with its end. opening: ids before every text; of these the last predicts its first token,
    the others predict nothing. draws: what training spectrograms go through, None for nothing. full: every batch
    has the same number of rows, empty ones where recordings are missing.
    """

    def __init__(
        self, values_NCHW: NDArray[np.float32], texts: Sequence[Sequence[int]], opening: Sequence[int],
        scale: tuple[Any, Any], rows: int, seed: int, shuffle: bool = True, full: bool = False, draws: Any = None,
    ) -> None:  # fmt: skip
        self.values_NCHW, self.texts, self.opening, self.draws = values_NCHW, texts, list(opening), draws
        self.mean_C11, self.std_C11 = map(torch.from_numpy, scale)
        self.rows, self.seed, self.shuffle, self.full = rows, seed, shuffle, full
        self.per_epoch = -(-len(texts) // rows)

    def batch(self, step: int) -> TokenBatch:
        """The batch of training step `step`, counted from 0 over all epochs."""
        epoch, at = divmod(step, self.per_epoch)
        count = len(self.texts)
        order = order_of(count, self.seed, epoch, self.shuffle)
        examples = order[at * self.rows : (at + 1) * self.rows]
        batch = TokenBatch(*self._ids(examples), inputs=self._inputs(examples, step), examples=tuple(examples.tolist()))
        return batch.pad(self.rows) if self.full else batch

    def epoch(self, epoch: int = 0) -> Iterator[TokenBatch]:
        return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))

    def _ids(self, examples: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """What is read, and what is predicted from it: the same, one position further on."""
        before = len(self.opening) - 1
        longest = before + max(len(self.texts[i]) for i in examples)
        shape = len(examples), -(-longest // FEW_SHAPES) * FEW_SHAPES
        ids_BT, labels_BT = np.zeros(shape, np.int64), np.full(shape, IGNORED, np.int64)
        for row, i in enumerate(examples):
            text = self.texts[i]
            ids_BT[row, : before + len(text)] = [*self.opening, *text[:-1]]
            labels_BT[row, before : before + len(text)] = text
        return torch.from_numpy(ids_BT), torch.from_numpy(labels_BT)

    def _inputs(self, examples: NDArray[np.int64], step: int) -> ImageInputs | DrawnInputs:
        values_BCHW = self.values_NCHW[examples]
        if self.draws is None:
            return ImageInputs((torch.from_numpy(values_BCHW) - self.mean_C11) / self.std_C11)
        return DrawnInputs(self.draws.pictures(values_BCHW, self.seed, step, 1), self.mean_C11, self.std_C11)
