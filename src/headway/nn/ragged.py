"""Rows of different lengths take a step on a CPU: neighbours that are about equally long attend together, to as many
keys as the longest of them has. One long row then costs the others little.

B batch, H heads, T queries, S keys, K head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

CALL = 1 << 21  # bytes of keys and values that two cores read in the time that one more call takes (measured)


class Span(NamedTuple):
    """Rows from `start` to `stop`, the keys of the longest, and which of them each row sees."""

    start: int
    stop: int
    keys: int
    seen_B11S: Tensor


def spans_of(lengths_B: Tensor, call: int) -> list[Span]:
    """`call`: keys that are read in the time that a call takes."""
    lengths = lengths_B.tolist()
    shortest, found = min(lengths), list[Span]()
    # The rows of the next step are all longer by one: the same cuts are the best.
    for start, stop in _cuts(tuple(length - shortest for length in lengths), call):
        keys = max(lengths[start:stop])
        found.append(Span(start, stop, keys, torch.arange(keys) < lengths_B[start:stop, None, None, None]))
    return found


@lru_cache(maxsize=64)
def _cuts(lengths: tuple[int, ...], call: int) -> list[tuple[int, int]]:
    """Where to cut so that least is read: what is least for the first rows, row by row."""
    least, last = np.zeros(len(lengths) + 1), list[int]()
    for stop in range(1, len(lengths) + 1):
        longest = np.maximum.accumulate(lengths[:stop][::-1])[::-1]
        costs = least[:stop] + np.arange(stop, 0, -1) * longest + call
        last.append(int(costs.argmin()))
        least[stop] = costs[last[-1]]
    cuts, stop = list[tuple[int, int]](), len(lengths)
    while stop:
        cuts.append((last[stop - 1], stop))
        stop = last[stop - 1]
    return cuts[::-1]


def attend_ragged(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, spans: Sequence[Span], scale: float | None = None
) -> Tensor:  # fmt: skip
    """`attend` in which every query of a row sees its first keys."""
    mixed = []
    for start, stop, keys, seen_B11S in spans:
        q, k, v = q_BHTK[start:stop], k_BHSK[start:stop, :, :keys], v_BHSK[start:stop, :, :keys]
        mixed.append(F.scaled_dot_product_attention(q, k, v, seen_B11S, scale=scale))
    return torch.cat(mixed)
