"""The residual connection around a sublayer: one formula with three slots for norms.

B batch, T length, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headway.nn.dropout import Dropout, dropout
from headway.nn.norm import normed


class Residual(nn.Module):
    """y = outside(x + path(dropout(after(f(before(x))))))

    Post-norm (Vaswani et al. 2017) fills `outside`, pre-norm (Xiong et al. 2020) fills `before`, sandwich norm
    fills `before` and `after`. `StochasticDepth` is a `path`, `LayerScale` stands in `after`.
    """

    def __init__(
        self, before: nn.Module | None = None, after: nn.Module | None = None, outside: nn.Module | None = None,
        dropout: float = 0.0, path: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.before, self.after, self.outside = (part or nn.Identity() for part in (before, after, outside))
        self.dropout, self.path = Dropout(dropout), path or nn.Identity()

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor], lengths_B: Tensor | None = None) -> Tensor:
        """`lengths_B`: tokens of each row before its padding, for a norm over the whole batch."""
        y_BTD = normed(self.after, sublayer(normed(self.before, x_BTD, lengths_B)), lengths_B)
        return normed(self.outside, x_BTD + self.path(self.dropout(y_BTD)), lengths_B)


class StochasticDepth(Dropout):
    """x · m / (1 − p) with one m for a whole row: a layer is left out of some rows in training (Huang et al. 2016)."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        if not (self.training and self.p > 0):
            return x_BTD
        return x_BTD * dropout(x_BTD.new_ones(len(x_BTD), 1, 1), self.p)


class LayerScale(nn.Module):
    """x ⊙ λ, λ learned, small at the start (Touvron et al. 2021, "Going deeper with image Transformers")."""

    def __init__(self, width: int, start: float) -> None:
        super().__init__()
        self.scale_D = nn.Parameter(torch.full((width,), start))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD * self.scale_D


class Bare(nn.Module):
    """y = norm(dropout(f(x))): no residual, and a norm only where one is given."""

    def __init__(self, dropout: float = 0.0, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.dropout, self.norm = Dropout(dropout), norm or nn.Identity()

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor], lengths_B: Tensor | None = None) -> Tensor:
        return normed(self.norm, self.dropout(sublayer(x_BTD)), lengths_B)


def pre_norm(norm: Callable[[], nn.Module], dropout: float) -> Callable[[], Residual]:
    return lambda: Residual(before=norm(), dropout=dropout)


def post_norm(norm: Callable[[], nn.Module], dropout: float) -> Callable[[], Residual]:
    return lambda: Residual(outside=norm(), dropout=dropout)
