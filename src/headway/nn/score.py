"""Scores of a query and a key with a scale of their own, or with a bound.

B batch, T target length, S source length, H heads, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ScaledBy:
    """c·QKᵀ."""

    factor: float

    def __call__(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return q_BHTK @ k_BHSK.mT * self.factor


@dataclass(frozen=True)
class Capped(ScaledBy):
    """s·tanh(c·QKᵀ/s), which stays between −s and s (Gemma Team 2024, 2)."""

    cap: float

    def __call__(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return torch.tanh(super().__call__(q_BHTK, k_BHSK) / self.cap) * self.cap
