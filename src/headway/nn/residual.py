"""The residual connection around a sublayer: one formula with three slots for norms."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from headway.nn.dropout import Dropout
from headway.nn.norm import normed


class Residual(nn.Module):
    """y = outside(x + dropout(after(f(before(x)))))

    Post-norm (Vaswani et al. 2017) fills `outside`, pre-norm (Xiong et al. 2020) fills `before`, sandwich norm
    fills `before` and `after`.
    """

    def __init__(
        self, before: nn.Module | None = None, after: nn.Module | None = None, outside: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.before, self.after, self.outside = (part or nn.Identity() for part in (before, after, outside))
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor], lengths_B: Tensor | None = None) -> Tensor:
        """`lengths_B`: tokens of each row before its padding, for a norm over the whole batch."""
        y_BTD = normed(self.after, sublayer(normed(self.before, x_BTD, lengths_B)), lengths_B)
        return normed(self.outside, x_BTD + self.dropout(y_BTD), lengths_B)


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
