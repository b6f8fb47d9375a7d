"""Texts with several labels at once, or with a number each: targets, stores and batches.

N texts, B rows, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import Batch, column
from headway.data.batches import Ints
from headway.data.labelled import FramedStore, Labelled, labels_of
from headway.errors import InputError, nearest
from headway.text.framing import Framed

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TargetBatch(Batch):
    """Inputs with L numbers each. weights_BL: what each counts; 0 in an empty row."""

    inputs: Any
    targets_BL: Tensor = column()
    weights_BL: Tensor = column()

    def counted(self) -> dict[str, float]:
        rows = int((self.weights_BL > 0).any(-1).sum())
        return {"loss": rows, "nll": rows}


class TargetStore(FramedStore[TargetBatch]):
    def __init__(self, framed: Sequence[Framed], targets_NL: Floats, weights_NL: Floats, pad: int) -> None:
        super().__init__(framed, pad)
        self.targets_NL, self.weights_NL = targets_NL, weights_NL

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> TargetBatch:
        targets_BL, weights_BL = (torch.from_numpy(one[examples]) for one in (self.targets_NL, self.weights_NL))
        return TargetBatch(self.inputs(examples, lengths[0]), targets_BL, weights_BL, examples=tuple(examples.tolist()))


def set_labels(texts: Sequence[Labelled]) -> tuple[str, ...]:
    """Every label that a text has, in order."""
    return tuple(sorted({label for text in texts for label in labels_of(text.label)}))


def set_targets(labels: Sequence[str], known: Sequence[str], where: str) -> Floats:
    """1 for each label that a text has, 0 for the others."""
    number_of = {label: number for number, label in enumerate(known)}
    targets_NL = np.zeros((len(labels), len(known)), np.float32)
    for text, label in enumerate(labels):
        for one in labels_of(label):
            if one not in number_of:
                raise InputError(f"{where}: text {text + 1} has the label '{one}', which the model does not have"
                                 f"{nearest(one, known)}")  # fmt: skip
            targets_NL[text, number_of[one]] = 1
    return targets_NL


def number_targets(labels: Sequence[str], where: str) -> Floats:
    numbers = [float(label) for label in labels]
    wrong = next((at for at, number in enumerate(numbers, 1) if not math.isfinite(number)), 0)
    if wrong:
        raise InputError(f"{where}: text {wrong} has the number {labels[wrong - 1]}: give finite numbers")
    return np.array(numbers, np.float32)[:, None]


def balanced_sets(targets_NL: Floats) -> Floats:
    """(N − N_l)/N_l for a label that a text has, 1 for one that it has not: what torch calls `pos_weight`."""
    has_L = targets_NL.sum(0)
    positive_L = (len(targets_NL) - has_L) / has_L.clip(min=1)
    return np.where(targets_NL > 0, positive_L.clip(min=1e-6), 1).astype(np.float32)
