"""Norms of queries and keys, before positions turn them (Henry et al. 2020).

B batch, T length, H heads, D width, K head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.attention import SelfAttention
from headway.nn.cache import Cache
from headway.nn.view import View


class NormedSelfAttention(SelfAttention):
    """`SelfAttention` with norm(xW^Q) and norm′(xW^K) in place of queries and keys."""

    def __init__(self, width: int, heads: int, norm: Callable[[int, int], nn.Module], **how: Any) -> None:
        """`norm`: of so many heads that are so wide."""
        super().__init__(width, heads, **how)
        self.query_norm, self.key_norm = (norm(count, self.head_width) for count in (heads, self.shared))

    def mixed(self, qkv_BTD: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        q_BTD, k_BTD, v_BTD = qkv_BTD.split(self.sizes, dim=-1)
        return super().mixed(torch.cat([self.query_norm(q_BTD), self.key_norm(k_BTD), v_BTD], dim=-1), view, cache)


class PerHead(nn.Module):
    """norm(x_h) for each head h: one norm for all of them, or one that knows them apart."""

    def __init__(self, heads: int, norm: nn.Module) -> None:
        super().__init__()
        self.heads, self.norm = heads, norm

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.norm(x_BTD.unflatten(-1, (self.heads, -1))).flatten(-2)


class HeadsLayerNorm(nn.Module):
    """(x_h − μ_h) / √(σ_h² + ε) ⊙ w_h: a layer norm of each head with a gain of its own."""

    def __init__(self, heads: int, head_width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon, self.weight_HK = epsilon, nn.Parameter(torch.ones(heads, head_width))

    def forward(self, x_BTHK: Tensor) -> Tensor:
        return F.layer_norm(x_BTHK, x_BTHK.shape[-1:], eps=self.epsilon) * self.weight_HK
