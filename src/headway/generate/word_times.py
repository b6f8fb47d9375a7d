"""When each word is said, by where the cross-attention looks while it is written.

Some heads follow the speech. Their weights, standardised and smoothed, give for each token how much it belongs to each
moment; dynamic time warping finds the best path through that matrix which never goes back in time, and a token begins
where the path enters its row (Radford et al. 2023's program; Sakoe and Chiba 1978).

H heads, T tokens, S places.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
One = TypeVar("One")
SMOOTH = 7  # places of the median filter
DIAGONAL, DOWN, RIGHT = range(3)
MARKS = (",", ".", ";", ":", "!", "?")
UNSPACED = ("zh", "yue", "ja", "th", "lo", "my")  # languages that write no spaces between words


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


LOUD = 1e-3  # of the loudest frame around: 30 dB below
AROUND, SHORTEST, NEAR = 0.5, 0.09, 0.3  # seconds: of that, of a pause, and from a boundary to its pause
LATE = 0.08  # seconds: heads look at a word a little after it begins


def pauses(samples_N: NDArray[np.float32], rate: int, hop: int) -> list[tuple[float, float]]:
    """(from, to) in seconds of stretches that are quiet beside what is around them; both ends of a recording are one,
    however short."""
    whole = len(samples_N) / rate
    frames_TN = samples_N[: len(samples_N) // hop * hop].astype(np.float64).reshape(-1, hop)
    power_T = (frames_TN**2).mean(1)
    if not len(power_T) or not power_T.max() > 0:
        return [(0.0, whole)]
    around = max(1, round(AROUND * rate / hop))
    padded = np.pad(power_T, around, mode="edge")
    loudest_T = np.lib.stride_tricks.sliding_window_view(padded, 2 * around + 1).max(1)
    quiet_T = power_T <= LOUD * np.maximum(loudest_T, LOUD * power_T.max())
    edges = np.flatnonzero(np.diff(np.pad(quiet_T.astype(np.int8), 1)))
    found = [(first * hop / rate, last * hop / rate) for first, last in edges.reshape(-1, 2).tolist()]
    found = [(first, last) for first, last in found if last - first >= SHORTEST]
    before = [] if found and found[0][0] == 0.0 else [(0.0, 0.0)]
    behind = [] if found and found[-1][1] >= whole - hop / rate else [(whole, whole)]
    return [*before, *found, *behind]


def moved(
    times: Sequence[float], quiet: Sequence[tuple[float, float]], near: float = NEAR
) -> list[tuple[float, float]]:
    """When each word begins and ends, of the times at which one follows the other: a boundary becomes the pause near
    it, where there is one. Each pause is one boundary's, in order; of all ways, that which moves the boundaries least.

    D(b, p) = min(D(b, p−1), D(b−1, p) + near, D(b−1, p−1) + distance(b, p)), over boundaries b and pauses p."""
    bounds, chosen = len(times), len(quiet)
    early = [time - LATE for time in times]
    apart_BP = np.array([[max(p[0] - time, time - p[1], 0.0) for p in quiet] for time in early]).reshape(bounds, chosen)
    total_BP = np.zeros((bounds + 1, chosen + 1))
    total_BP[:, 0] = np.arange(bounds + 1) * near
    for b, p in np.ndindex(bounds, chosen):
        take = total_BP[b, p] + apart_BP[b, p]
        total_BP[b + 1, p + 1] = min(total_BP[b + 1, p], total_BP[b, p + 1] + near, take)
    found = [(time, time) for time in times]
    b, p = bounds, chosen
    while b and p:
        if total_BP[b, p] == total_BP[b, p - 1]:
            p -= 1
        elif total_BP[b, p] == total_BP[b - 1, p] + near:
            b -= 1
        else:
            b, p = b - 1, p - 1
            found[b] = quiet[p]
    return [(left[1], max(left[1], right[0])) for left, right in zip(found, found[1:], strict=False)]


def spoken(owner: Sequence[int], tokens: Sequence[str]) -> list[int]:
    """The word of each token, a mark between two tokens ending a word too: "0,5" is said as two words."""
    found: list[int] = []
    for at, (number, token) in enumerate(zip(owner, tokens, strict=True)):
        starts = not at or number != owner[at - 1] or (tokens[at - 1][-1:] in MARKS and token[:1].isalnum())
        found.append((found[-1] if found else -1) + starts)
    return found


def unspaced(runs: Sequence[str]) -> list[int]:
    """The word of each run of characters in a language that writes no spaces between words: a run is a word, with the
    marks around it and the vowel signs and accents that are written on it."""
    found: list[int] = []
    for at, run in enumerate(runs):
        joins = at and (_follows(run) or _leads(runs[at - 1]))
        found.append((found[-1] if found else -1) + (not joins))
    return found


def _follows(run: str) -> bool:
    """Whether it belongs to what is before it: a mark, a sign on a letter, or a part of no character."""
    kinds = [unicodedata.category(letter) for letter in run]
    return not kinds or kinds[0][0] == "M" or all(kind in ("Pe", "Pf", "Po", "Pd") for kind in kinds)


def _leads(run: str) -> bool:
    """Whether it belongs to what is behind it: a space, or a mark that opens."""
    return bool(run) and all(unicodedata.category(letter) in ("Ps", "Pi", "Zs") for letter in run)


def grouped(values: Sequence[One], numbers: Sequence[int]) -> list[list[One]]:
    """The values that have the same number, of numbers that never decrease."""
    pairs = groupby(zip(numbers, values, strict=True), key=lambda pair: pair[0])
    return [[value for _, value in some] for _, some in pairs]
