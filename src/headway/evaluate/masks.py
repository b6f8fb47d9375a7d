"""How well pixels are labelled: mean intersection over union, and the share of pixels that are right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headway.evaluate.labels import NamedFigures, ratio


@dataclass(frozen=True)
class OverlapScores(NamedFigures):
    """counts_TG: how many pixels of label t were given label g."""

    names: ClassVar[dict[str, str]] = {"mean_iou": "mean IoU", "pixel_accuracy": "pixels that are right"}
    counts_TG: NDArray[np.int64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]], labels: int) -> OverlapScores:
        """Of labels as they are and as they were given, picture by picture or many at once."""
        counts = np.zeros(labels * labels, np.int64)
        for true, given in pairs:
            at = true.astype(np.int64).ravel() * labels + given.astype(np.int64).ravel()
            counts += np.bincount(at, minlength=labels * labels)
        return cls(counts.reshape(labels, labels))

    @property
    def each(self) -> NDArray[np.float64]:
        """|T ∩ G| / |T ∪ G| of every label; 0 where neither has it."""
        right = self.counts_TG.diagonal()
        return ratio(right, self.counts_TG.sum(0) + self.counts_TG.sum(1) - right)

    @property
    def mean_iou(self) -> float:
        """The mean over the labels that some pixel has (Everingham et al. 2010)."""
        there = self.counts_TG.sum(1) > 0
        return float(self.each[there].mean()) if there.any() else 0.0

    @property
    def pixel_accuracy(self) -> float:
        return float(self.counts_TG.trace() / max(self.counts_TG.sum(), 1))
