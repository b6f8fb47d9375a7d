"""Positions: three doors through which a model may learn where a token stands.

`add` changes the embedding, `rotate` turns queries and keys, `bias` adds to the scores. Each does nothing by
default, so a part opens only the doors it needs.

B batch, T target length, S source length, H heads, D width, K head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from headway.nn.mask import Scene


class Position(nn.Module):
    """No positions: attention then sees a set, not a sequence."""

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        return x_BTD

    def rotate(self, q_BHTK: Tensor, k_BHTK: Tensor, start: int | Tensor = 0) -> tuple[Tensor, Tensor]:
        return q_BHTK, k_BHTK

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor | None:
        return None


def sinusoid(positions: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i+1) = cos(p / base^(2i/D)) (Vaswani et al. 2017, 3.5)."""
    pair = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    angle = positions.double()[..., None] * torch.exp(pair * (-math.log(base) / width))
    table = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return table.flatten(-2)[..., :width]


class Sinusoidal(Position):
    """Adds `sinusoid(p)`. The table is only a cache of the formula: longer inputs make it grow."""

    table_PD: Tensor

    def __init__(self, width: int, base: float = 10_000.0, length: int = 512) -> None:
        super().__init__()
        self.width, self.base = width, base
        self.register_buffer("table_PD", self._rows(length), persistent=False)

    def _rows(self, length: int) -> Tensor:
        return sinusoid(torch.arange(length), self.width, self.base).float()

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        length = x_BTD.shape[1]
        if isinstance(start, Tensor):
            # The caller keeps rows inside the table: a look at the values would stop the device.
            steps_BT = start[:, None] + torch.arange(length, device=start.device)
            return x_BTD + self.table_PD[steps_BT].to(x_BTD.dtype)
        if start + length > len(self.table_PD):
            self.table_PD = self._rows(2 * (start + length)).to(self.table_PD)
        return x_BTD + self.table_PD[start : start + length].to(x_BTD.dtype)


class Learned(Position):
    """Adds a row of a learned table; there is nothing beyond its last row."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        length = x_BTD.shape[1]
        if isinstance(start, Tensor):
            return x_BTD + self.table(start[:, None] + torch.arange(length, device=start.device))
        if start + length > self.table.num_embeddings:
            raise IndexError(f"position {start + length} is beyond the table of {self.table.num_embeddings}")
        return x_BTD + self.table.weight[start : start + length]
