"""Convolutions over the tokens of a row: one map of every window of neighbours.

    y_t = W [x_{t·s − l}; x_{t·s − l + d}; …; x_{t·s − l + (w−1)·d}] + b   window w, stride s, dilation d, left margin l

The vectors of a window stand side by side, as Kim (2014, eq. 2) writes it: so a convolution is one matrix product, and
faster than torch's own convolution on a CPU. Before the first token and behind the last stand zeros.

B batch, R rows, T length, S length with what stands around it, D width of the input, O width of the output, W window,
M maps, K maps of all tokens of a window.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.pooling import own_tokens
from headway.nn.slots import Values, last_of

Padding = Literal["narrow", "wide", "same", "causal"]


class Sliding(nn.Module):
    """Abstract. The same map of every window. `padding` says how far windows reach out of a row of n tokens:

        narrow   not at all: n − span outputs, where span = (w − 1)·d
        wide     by all but one token on both sides: n + span outputs (Kalchbrenner et al. 2014)
        same     by half on each side: n outputs
        causal   to the left alone: n outputs, none of which knows a later token

    With a stride only every s-th of these outputs is computed. A row that is shorter than a window is filled up to one.
    """

    def __init__(self, window: int, padding: Padding = "narrow", stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        if min(window, stride, dilation) < 1:
            raise ValueError(f"window, stride and dilation must be at least 1, not {window}, {stride} and {dilation}")
        self.window, self.stride, self.dilation, self.span = window, stride, dilation, (window - 1) * dilation
        half = self.span // 2
        span = self.span
        margins = {"narrow": (0, 0), "wide": (span, span), "same": (half, span - half), "causal": (span, 0)}
        self.left, self.right = margins[padding]
        self.reach = max(self.left, self.right) or self.span  # positions that one call carries information over

    def outputs(self, length: Any) -> Any:
        """How many outputs a row of this length has, a number or a tensor of them."""
        fitting = (length + self.left + self.right - self.span - 1) // self.stride + 1
        return fitting.clamp(min=1) if isinstance(fitting, Tensor) else max(1, fitting)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The outputs and how many of them are each row's own. What padding holds changes none of those."""
        if lengths_B is not None:
            x_BTD = x_BTD.masked_fill(~own_tokens(x_BTD, lengths_B), 0.0)
        right = max(self.right, self.span + 1 - self.left - x_BTD.shape[1])
        y_BTO = self.over(F.pad(x_BTD, (0, 0, self.left, right)) if self.left or right else x_BTD)
        return y_BTO, None if lengths_B is None else self.outputs(lengths_B)

    def over(self, x_BSD: Tensor) -> Tensor:
        """The outputs of all windows inside these rows; nothing is added around them."""
        outputs = (x_BSD.shape[1] - self.span - 1) // self.stride + 1
        last = (outputs - 1) * self.stride + 1
        starts = range(0, self.span + 1, self.dilation)
        return self.mapped([x_BSD[:, start : start + last : self.stride] for start in starts])

    def mapped(self, tokens_WBTD: list[Tensor]) -> Tensor:
        """The outputs, from the first token of every window, the second of every window, …"""
        raise NotImplementedError


class Convolution(Sliding):
    """W [x_1; …; x_w] + b of every window. (Kim 2014, eq. 2)."""

    def __init__(self, inputs: int, outputs: int, window: int, padding: Padding = "narrow", **how: Any) -> None:
        super().__init__(window, padding, **how)
        self.map = nn.Linear(window * inputs, outputs)

    def mapped(self, tokens_WBTD: list[Tensor]) -> Tensor:
        y_BTO: Tensor = self.map(torch.cat(tokens_WBTD, -1) if self.window > 1 else tokens_WBTD[0])
        return y_BTO


class SeparableConvolution(Sliding):
    """W(Σ_i v_i ⊙ x_i) + b of every window: each number is convolved alone, then a map mixes them. w·D + D·O weights
    instead of w·D·O (Chollet 2017; for translation: Kaiser et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, window: int, padding: Padding = "narrow", **how: Any) -> None:
        super().__init__(window, padding, **how)
        self.each_WD = nn.Parameter(torch.empty(window, inputs).uniform_(-(window**-0.5), window**-0.5))
        self.map = nn.Linear(inputs, outputs)

    def mapped(self, tokens_WBTD: list[Tensor]) -> Tensor:
        mixed = (one_BTD * weight_D for one_BTD, weight_D in zip(tokens_WBTD, self.each_WD, strict=True))
        y_BTO: Tensor = self.map(sum(mixed))
        return y_BTO


class FoldedRows(Sliding):
    """Σ_i v_i x_i of every window along each of the R rows of a sentence's matrix alone, with filters of the row's own;
    then each two rows are added (folding: Kalchbrenner et al. 2014, 3.4). Wide.

    A row has several maps below and above, which stand side by side: (B, T, R·M) becomes (B, T', R/2·O).
    """

    def __init__(self, rows: int, maps: int, outputs: int, window: int) -> None:
        super().__init__(window, "wide")
        if rows % 2:
            raise ValueError(f"{rows} rows cannot be folded: take an even number")
        self.rows, spread = rows, (window * maps) ** -0.5
        self.weight_RKO = nn.Parameter(torch.empty(rows, window * maps, outputs).uniform_(-spread, spread))

    def mapped(self, tokens_WBTD: list[Tensor]) -> Tensor:
        x_BTRK = torch.cat([one_BTD.unflatten(-1, (self.rows, -1)) for one_BTD in tokens_WBTD], -1)
        y_BTRO = torch.einsum("btrk,rko->btro", x_BTRK, self.weight_RKO)
        return y_BTRO.unflatten(2, (-1, 2)).sum(3).flatten(2)


class Gated(nn.Module):
    """a ⊙ σ(b), where [a b] is a convolution of twice the width (gated linear unit: Dauphin et al. 2017)."""

    def __init__(self, convolution: Sliding) -> None:
        super().__init__()
        self.convolution, self.reach = convolution, 0

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        y_BTO, lengths_B = self.convolution(x_BTD, lengths_B)
        return F.glu(y_BTO, -1), lengths_B

    def after(self, x_RTD: Tensor, slot: Before, lengths_R: Tensor | None = None) -> Tensor:
        """Causal: of the tokens behind those that `slot` has kept."""
        return F.glu(self.convolution.over(slot.joined(x_RTD, lengths_R)), -1)


class Before(Values):
    """The last inputs of a causal convolution, as many as it looks back: zeros before the first token."""

    @classmethod
    def start(cls, rows: int, span: int, width: int, like: Tensor) -> Before:
        """With the type and device of `like`."""
        return cls(like.new_zeros(rows, span, width))

    def joined(self, x_RTD: Tensor, lengths_R: Tensor | None = None) -> Tensor:
        """(R, span + T, D): what was kept, and these; the last of them are kept. Rows that are padded on the right
        continue from their own last token."""
        (before_RSD,) = self.tensors
        all_RSD = torch.cat([before_RSD, x_RTD], 1)
        self.tensors = (last_of(all_RSD, before_RSD.shape[1], lengths_R),)
        return all_RSD
