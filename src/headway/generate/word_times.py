"""When each word is said, by where the cross-attention looks while it is written.

Some heads follow the speech. Their weights, standardised and smoothed, give for each token how much it belongs to each
moment; dynamic time warping finds the best path through that matrix which never goes back in time, and a token begins
where the path enters its row (Radford et al. 2023's program; Sakoe and Chiba 1978).

H heads, T tokens, S places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SMOOTH = 7  # places of the median filter
DIAGONAL, DOWN, RIGHT = range(3)


def median_filter(x: Tensor, width: int) -> Tensor:
    """The median of `width` neighbours along the last axis, the ends mirrored."""
    half = width // 2
    if x.shape[-1] <= half:
        return x
    padded = torch.cat([x[..., 1 : half + 1].flip(-1), x, x[..., -half - 1 : -1].flip(-1)], -1)
    return padded.unfold(-1, width, 1).sort(-1).values[..., half]


def matches(weights_HTS: Tensor, smooth: int = SMOOTH) -> Tensor:
    """(T, S): the mean over heads of their weights, each place standardised over the tokens, then smoothed."""
    std_H1S, mean_H1S = torch.std_mean(weights_HTS, dim=-2, keepdim=True, unbiased=False)
    standard_HTS = (weights_HTS - mean_H1S) / std_H1S.clamp(min=torch.finfo(weights_HTS.dtype).tiny)
    return median_filter(standard_HTS, smooth).mean(0)


def warp(cost_TS: Floats) -> tuple[Ints, Ints]:
    """The path of least cost from the first to the last cell, one step down, right or both at a time: its rows and its
    columns. D(t, s) = c(t, s) + min(D(t−1, s−1), D(t−1, s), D(t, s−1)), along one diagonal of the matrix at a time."""
    rows, columns = cost_TS.shape
    total_TS = np.full((rows + 1, columns + 1), np.inf)
    total_TS[0, 0] = 0.0
    came_TS = np.full((rows + 1, columns + 1), RIGHT, np.int8)
    came_TS[1:, 0] = DOWN
    for diagonal in range(2, rows + columns + 1):
        t = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        s = diagonal - t
        both, down, right = total_TS[t - 1, s - 1], total_TS[t - 1, s], total_TS[t, s - 1]
        is_both, is_down = (both < down) & (both < right), (down < both) & (down < right)
        came_TS[t, s] = np.where(is_both, DIAGONAL, np.where(is_down, DOWN, RIGHT))
        least = np.where(is_both, both, np.where(is_down, down, right))
        total_TS[t, s] = cost_TS[t - 1, s - 1] + least
    return _back(came_TS)


def _back(came_TS: NDArray[np.int8]) -> tuple[Ints, Ints]:
    t, s = came_TS.shape[0] - 1, came_TS.shape[1] - 1
    path: list[tuple[int, int]] = []
    while t > 0 or s > 0:
        path.append((t - 1, s - 1))
        came = came_TS[t, s]
        t, s = t - (came != RIGHT), s - (came != DOWN)
    found: Ints = np.array(path[::-1], np.int64).T
    return found[0], found[1]


def beginnings(weights_HTS: Tensor, tokens: slice = slice(None)) -> Ints:
    """The place at which each of these tokens begins."""
    rows, columns = warp(-matches(weights_HTS)[tokens].double().cpu().numpy())
    first = np.diff(rows, prepend=-1) > 0
    return columns[first]


def chosen_heads(layers: int, heads: int, named: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(layer, head) of those that are named; of none, all of the upper half of the layers."""
    if named:
        return [(int(layer), int(head)) for layer, head in named]
    return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
