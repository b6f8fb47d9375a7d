"""How well texts are labelled: accuracy, macro-F1 and Matthews' correlation, from one table of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

Judge = Literal["accuracy", "f1", "matthews", "micro_f1", "pearson", "spearman", "mae", "rmse"]
ERRORS = ("mae", "rmse", "mse")  # figures that are better lower


def ratio(above: NDArray[np.int64], below: NDArray[np.int64]) -> NDArray[np.float64]:
    """0 where there is nothing below."""
    return np.divide(above, below, out=np.zeros(np.shape(below)), where=below > 0)


class NamedFigures:
    """Abstract. names: the figures that it has, and what each is called."""

    names: ClassVar[dict[str, str]]

    def figures(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.names}


@dataclass(frozen=True)
class LabelScores(NamedFigures):
    """counts_TG: how often a text of label t was given label g."""

    names: ClassVar[dict[str, str]] = {"accuracy": "accuracy", "f1": "macro-F1", "matthews": "Matthews' correlation"}
    counts_TG: NDArray[np.int64]

    @classmethod
    def of(cls, true: Sequence[int], given: Sequence[int], labels: int) -> LabelScores:
        """A label of −1 is one that the model does not have: whatever it gives is wrong."""
        labels += min(true, default=0) < 0
        counts_TG = np.zeros((labels, labels), np.int64)
        np.add.at(counts_TG, (np.asarray(true, np.int64), np.asarray(given, np.int64)), 1)
        return cls(counts_TG)

    @property
    def accuracy(self) -> float:
        """The share of texts with their own label."""
        return float(self.counts_TG.trace() / max(self.counts_TG.sum(), 1))

    @property
    def f1(self) -> float:
        """2PR/(P + R) of each label, and their mean, rare labels counting as much as others."""
        right = self.counts_TG.diagonal()
        both = self.counts_TG.sum(0) + self.counts_TG.sum(1)
        return float(np.mean(ratio(2 * right, both)))

    @property
    def matthews(self) -> float:
        """(c·s − Σ tₖgₖ) / √((s² − Σ gₖ²)(s² − Σ tₖ²)), s texts, c of them right (Gorodkin 2004, eq. 8)."""
        s, c = float(self.counts_TG.sum()), float(self.counts_TG.trace())
        t_K, g_K = self.counts_TG.sum(1).astype(float), self.counts_TG.sum(0).astype(float)
        spread = np.sqrt((s * s - g_K @ g_K) * (s * s - t_K @ t_K))
        return float((c * s - t_K @ g_K) / spread) if spread else 0.0

    @property
    def majority(self) -> float:
        """The accuracy of always giving the commonest label."""
        return float(self.counts_TG.sum(1).max() / max(self.counts_TG.sum(), 1))

    @property
    def constant(self) -> int | None:
        """The label that every text was given, where the texts have several."""
        [given], [true] = self.counts_TG.sum(0).nonzero(), self.counts_TG.sum(1).nonzero()
        return int(given[0]) if len(given) == 1 and len(true) > 1 else None
