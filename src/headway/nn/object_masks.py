"""Masks of objects, each drawn from a query's vector: the parts of DETR's mask head (Carion et al. 2020, 4.4).

B batch, P queries, H heads, S places of the encoder, R rows and C columns of places, D width, K head width, N channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 8  # of channels that a norm takes together
UPWARDS = 2  # doublings of a front end that has no finer maps
Activation = Callable[[Tensor], Tensor]


class AttentionMap(nn.Module):
    """softmax(qW^Q(xW^K)ᵀ/√K), over the places of all heads together: where a query looks, without values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        for part in (self.query, self.key):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)

    def forward(self, q_PD: Tensor, at_PD: Tensor, x_BSD: Tensor, from_SD: Tensor, row_P: Tensor) -> Tensor:
        """(P, H, S). at_PD, from_SD: where queries and places are, which is not used here. row_P: the picture of each
        query."""
        q_PHK, k_BSHK = (part.unflatten(-1, (self.heads, -1)) for part in (self.query(q_PD), self.key(x_BSD)))
        scores_PHS = torch.einsum("phk,pshk->phs", q_PHK, k_BSHK[row_P]) / math.sqrt(q_PHK.shape[-1])
        return scores_PHS.flatten(1).softmax(-1).view_as(scores_PHS)


class PlacedAttentionMap(AttentionMap):
    """The same of q + p and x + r, p and r where queries and places are: as in every other attention of the model. The
    vector of a query that is a box need not say where it is."""

    def forward(self, q_PD: Tensor, at_PD: Tensor, x_BSD: Tensor, from_SD: Tensor, row_P: Tensor) -> Tensor:
        return super().forward(q_PD + at_PD, at_PD, x_BSD + from_SD, from_SD, row_P)


class GroupedConvolution(nn.Module):
    """f(norm(w * x)), of 3 × 3 places; the norm is over groups of channels (Wu and He 2018): a picture's own."""

    def __init__(self, channels: int, to: int, activation: Activation) -> None:
        super().__init__()
        self.convolution = convolution(channels, to, 3)
        self.norm = nn.GroupNorm(to if to < GROUPS else math.gcd(to, GROUPS), to)
        self.activation = activation

    def forward(self, x_PNRC: Tensor) -> Tensor:
        return self.activation(self.norm(self.convolution(x_PNRC)))


class Joined(nn.Module):
    """f(norm(w * (up(x) + vm))), m a finer feature map of the front end: a step of a feature pyramid (Lin et al. 2017,
    "Feature pyramid networks")."""

    def __init__(self, finer: int, channels: int, to: int, activation: Activation) -> None:
        super().__init__()
        self.join, self.refine = convolution(finer, channels, 1), GroupedConvolution(channels, to, activation)

    def forward(self, x_PNRC: Tensor, finer_BNRC: Tensor, row_P: Tensor) -> Tensor:
        large_PNRC = F.interpolate(x_PNRC, size=finer_BNRC.shape[-2:], mode="nearest")
        found_PNRC: Tensor = self.refine(self.join(finer_BNRC)[row_P] + large_PNRC)
        return found_PNRC


class Doubled(nn.Module):
    """f(norm(w * up(x))): a step without a finer map."""

    def __init__(self, channels: int, to: int, activation: Activation) -> None:
        super().__init__()
        self.refine = GroupedConvolution(channels, to, activation)

    def forward(self, x_PNRC: Tensor, finer_BNRC: None, row_P: Tensor) -> Tensor:
        found_PNRC: Tensor = self.refine(F.interpolate(x_PNRC, scale_factor=2.0, mode="nearest"))
        return found_PNRC


class MaskConvolutions(nn.Module):
    """From a picture's vectors and a query's attention map to the logits of a mask: two convolutions at the places, and
    one at each finer resolution, with half as many channels each time.

    finer: channels of the maps that are joined on the way, the coarsest first; without any, the sides are doubled
    `UPWARDS` times.
    """

    def __init__(self, width: int, heads: int, finer: Sequence[int], activation: Activation) -> None:
        super().__init__()
        steps = len(finer) or UPWARDS
        widths = [max(width >> number, 1) for number in range(1, steps + 2)]
        self.first = GroupedConvolution(width + heads, width + heads, activation)
        self.second = GroupedConvolution(width + heads, widths[0], activation)
        pairs = list(zip(widths, widths[1:], strict=False))
        every: list[nn.Module] = [Joined(join, *pair, activation) for join, pair in zip(finer, pairs, strict=False)]
        every = every or [Doubled(*pair, activation) for pair in pairs]
        self.steps = nn.ModuleDict({f"step{number}": step for number, step in enumerate(every, 1)})
        self.output = convolution(widths[-1], 1, 3)

    def forward(self, x_BDRC: Tensor, weights_PHRC: Tensor, finer: Sequence[Tensor], row_P: Tensor) -> Tensor:
        """(P, R', C'), at the finest resolution."""
        x_PNRC = self.second(self.first(torch.cat([x_BDRC[row_P], weights_PHRC], 1)))
        for step, map_BNRC in zip(self.steps.values(), finer or (None,) * len(self.steps), strict=True):
            x_PNRC = step(x_PNRC, map_BNRC, row_P)
        logits_PRC: Tensor = self.output(x_PNRC)[:, 0]
        return logits_PRC


def convolution(channels: int, to: int, size: int) -> nn.Conv2d:
    found = nn.Conv2d(channels, to, size, padding=size // 2)
    nn.init.kaiming_uniform_(found.weight, a=1)
    nn.init.zeros_(found.bias)  # type: ignore[arg-type]
    return found
