"""How well texts are given several labels at once, or a number.

N texts, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headway.evaluate.labels import NamedFigures, ratio

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SetScores(NamedFigures):
    """true_NL, given_NL: whether a text has a label, and whether it was given it."""

    names: ClassVar[dict[str, str]] = {"accuracy": "all labels right", "f1": "macro-F1", "micro_f1": "micro-F1"}
    constant: ClassVar[None] = None
    true_NL: NDArray[np.bool_]
    given_NL: NDArray[np.bool_]

    @classmethod
    def of(cls, true_NL: Floats, share_NL: Floats) -> SetScores:
        """share_NL: the probability of each label; from one half on it is given."""
        return cls(true_NL > 0.5, share_NL >= 0.5)

    @property
    def accuracy(self) -> float:
        """The share of texts that were given their labels, no more and no fewer."""
        return float((self.true_NL == self.given_NL).all(1).mean()) if len(self.true_NL) else 0.0

    @property
    def f1(self) -> float:
        """2PR/(P + R) of each label, and their mean."""
        both_L = self.true_NL.sum(0) + self.given_NL.sum(0)
        return float(np.mean(ratio(2 * (self.true_NL & self.given_NL).sum(0), both_L)))

    @property
    def micro_f1(self) -> float:
        """2PR/(P + R) of all labels of all texts together."""
        both = self.true_NL.sum() + self.given_NL.sum()
        return float(ratio(2 * (self.true_NL & self.given_NL).sum(), both))


@dataclass(frozen=True)
class NumberScores(NamedFigures):
    """Of each text the true number and the one that was given."""

    names: ClassVar[dict[str, str]] = {
        "pearson": "Pearson's r",
        "spearman": "Spearman's ρ",
        "mse": "mean squared error",
        "rmse": "root mean squared error",
        "mae": "mean absolute error",
    }
    constant: ClassVar[None] = None
    true_N: Floats
    given_N: Floats

    @classmethod
    def of(cls, true_NL: Floats, number_NL: Floats) -> NumberScores:
        return cls(np.ravel(true_NL).astype(float), np.ravel(number_NL).astype(float))

    @property
    def pearson(self) -> float:
        """cov(true, given)/(σ σ); 0 where one of them is constant."""
        return correlation(self.true_N, self.given_N)

    @property
    def spearman(self) -> float:
        """Pearson's r of the ranks, equal numbers sharing the mean of theirs."""
        return correlation(ranks(self.true_N), ranks(self.given_N))

    @property
    def mse(self) -> float:
        return float(np.mean((self.true_N - self.given_N) ** 2))

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.mse))

    @property
    def mae(self) -> float:
        return float(np.mean(np.abs(self.true_N - self.given_N)))


def correlation(a_N: Floats, b_N: Floats) -> float:
    a_N, b_N = a_N - a_N.mean(), b_N - b_N.mean()
    spread = np.sqrt((a_N @ a_N) * (b_N @ b_N))
    return float(a_N @ b_N / spread) if spread > 0 else 0.0


def ranks(values_N: Floats) -> Floats:
    _, which_N, counts = np.unique(values_N, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which_N]
