"""Masks in blocks of tokens: of a long text each block sees a few others (Zaheer et al. 2020, "BigBird"). Rules of one
size of block combine with `&` and `|`, and with those of `headway.nn.mask`.

N blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from headway.nn.mask import Everything, Mask, mixed
from headway.nn.position import Scene


@dataclass(frozen=True)
class InBlocks(Mask):
    """Abstract. A rule on blocks of `size` tokens."""

    size: int

    @property
    def tile(self) -> int:  # type: ignore[override]
        return self.size

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return self.allows_block(query // self.size, key // self.size, (scene.keys - 1) // self.size)

    def allows_block(self, query: Tensor, key: Tensor, last: int) -> Tensor:
        """`last`: the number of the last block."""
        raise NotImplementedError

    def tiles(self, size: int, length: int) -> NDArray[np.bool_]:
        assert size == self.size, "blocks of one rule have one size"
        with _disable_current_modes():  # an estimate of a model's cost computes nothing, but it needs these numbers
            number_N = torch.arange(-(-length // size), device="cpu")
            seen_NN = self.allows_block(number_N[:, None], number_N, len(number_N) - 1).expand(len(number_N), -1)
            return seen_NN.numpy()

    def within(self) -> Mask:
        return Everything()


@dataclass(frozen=True)
class NearBlocks(InBlocks):
    """Keys of the query's own block and of `reach` blocks on each side."""

    reach: int = 1

    def allows_block(self, query: Tensor, key: Tensor, last: int) -> Tensor:
        return (query - key).abs() <= self.reach


@dataclass(frozen=True)
class EndBlocks(InBlocks):
    """The first and the last block see every key and are seen by every query."""

    def allows_block(self, query: Tensor, key: Tensor, last: int) -> Tensor:
        return (query == 0) | (query == last) | (key == 0) | (key == last)


@dataclass(frozen=True)
class RandomBlocks(InBlocks):
    """Keys of `count` blocks that are drawn for each block of queries, none of them its neighbour, the first or the
    last: one of each of `count` equal parts of the others. By a hash of the query's block and the seed, so that a
    kernel can compute it."""

    count: int
    seed: int = 0

    def allows_block(self, query: Tensor, key: Tensor, last: int) -> Tensor:
        first = (query - 1).clamp(min=1)  # of the neighbours
        near = (query + 1).clamp(max=last - 1) - first + 1
        others = (last - 1 - near).clamp(min=0)
        found = (query < 0) & (key < 0)
        for part in range(self.count):
            start, end = others * part // self.count, others * (part + 1) // self.count
            drawn = start + mixed(query, query * 0 + part, self.seed) % (end - start).clamp(min=1)
            block = 1 + drawn + near * (1 + drawn >= first)
            found = found | ((key == block) & (start < end))
        return found


@dataclass(frozen=True)
class FirstBlockRepeated(InBlocks):
    """The keys of the first block, as if each were there `times` times, for the queries of all blocks but the first and
    the last."""

    adds = True
    times: int

    def allows_block(self, query: Tensor, key: Tensor, last: int) -> Tensor:
        return (query > 0) & (query < last) & (key == 0)

    def added(self, query: Tensor, key: Tensor, scene: Scene) -> Tensor | None:
        there = self.allows_block(query // self.size, key // self.size, (scene.keys - 1) // self.size)
        return there * math.log(self.times)
