"""Batches of pictures with captions.

B rows, T length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.batch import IGNORED, column
from headway.data.annotated import Annotated, PictureBatch
from headway.data.augment import generator
from headway.data.batches import rung


@dataclass(frozen=True)
class CaptionBatch(PictureBatch):
    """As a `TokenBatch` whose inputs are pictures."""

    ids_BT: Tensor = column()
    labels_BT: Tensor = column(pad=IGNORED)
    segments_BT: Tensor | None = column(default=None)

    def counted(self) -> dict[str, float]:
        predicted = int((self.labels_BT != IGNORED).sum())
        return {"loss": predicted, "nll": predicted, "tokens": int(self.there_B.sum())}


def caption_batch(
    tokenizer: Any, start: int, end: int, longest: int, seed: int, found: Annotated, pictures: Any,
    examples: tuple[int, ...],
) -> CaptionBatch:  # fmt: skip
    """One caption of each picture, drawn by the seed and the numbers of the pictures where there are several; what is
    longer than the model takes is cut."""
    draw = generator(seed, *examples[:1], len(examples), 3)
    texts = [some[int(draw.integers(len(some)))] for some in found.captions]
    rows = [ids[: longest - 1] for ids in tokenizer.encode_batch(texts)]
    length = min(longest, rung(1 + max(map(len, rows))))
    ids_BT = np.zeros((len(rows), length), np.int64)
    labels_BT = np.full((len(rows), length), IGNORED, np.int64)
    for row, ids in enumerate(rows):
        ids_BT[row, : len(ids) + 1] = [start, *ids]
        labels_BT[row, : len(ids) + 1] = [*ids, end]
    return CaptionBatch(
        **pictures, ids_BT=torch.from_numpy(ids_BT), labels_BT=torch.from_numpy(labels_BT), examples=examples
    )
