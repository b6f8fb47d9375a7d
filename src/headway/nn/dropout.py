"""Dropout (Srivastava et al. 2014), with a cheaper draw where drawing is dear."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS = 4  # 16-bit words in one 64-bit draw
STEPS = 1 << 16


class Dropout(nn.Module):
    """x ⊙ m / (1 − p), m ~ Bernoulli(1 − p), in training; x otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must lie in [0, 1), not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return cheap_dropout(x, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def cheap_dropout(x: Tensor, p: float) -> Tensor:
    """Four decisions from each draw: a CPU spends more on drawing than on all else here.

    p is rounded to a multiple of 2⁻¹⁶, and the scale is that of the rounded p.
    """
    cut = min(round(p * STEPS), STEPS - 1)
    draws = torch.empty(-(-x.numel() // WORDS), dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= cut - STEPS // 2
    return x * (kept * (STEPS / (STEPS - cut))).to(x.dtype)
