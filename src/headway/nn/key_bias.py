"""Linear biases by the key's own position, as Bloom and Falcon have them. H heads, T queries, S keys, K head width."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headway.nn.position import Position, Scene


class KeyBias(Position):
    """slope_h · s for the key at position s (Press et al. 2022): to a softmax the same as −slope_h · distance, which
    differs by a number that all keys of a query share.

    Slopes are powers of a float32, and the products are in `precision`: far out, rounding is part of such a model.
    `scale`: a factor of the products.
    """

    slopes_H: Tensor

    def __init__(self, heads: int, precision: torch.dtype = torch.float32, scale: float = 1.0) -> None:
        super().__init__()
        self.precision, self.scale = precision, scale
        self.register_buffer("slopes_H", _slopes(heads).to(precision), persistent=False)

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor:
        key_S = torch.arange(scene.keys, device=scene.device)
        bias_HS = (self.slopes_H.to(self.precision)[:, None] * key_S).to(q_BHTK.dtype)
        return (bias_HS * self.scale)[None, :, None]


def _slopes(heads: int) -> Tensor:
    """2^(−8h/H); a number of heads between two powers of two adds odd members of the larger one's series."""
    power = 1 << (heads.bit_length() - 1)
    first_H = _root(power) ** torch.arange(1, power + 1, dtype=torch.int32)
    if power == heads:
        return first_H
    return torch.cat([first_H, _root(2 * power) ** torch.arange(1, 2 * (heads - power), 2, dtype=torch.int32)])


def _root(heads: int) -> Tensor:
    return torch.tensor(2.0 ** -(2.0 ** (3 - math.log2(heads))), dtype=torch.float32)
