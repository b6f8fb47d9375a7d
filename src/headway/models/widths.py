"""How the rate of a weight, and its value at the start, follow the model's width.

D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from headway.errors import refuse
from headway.nn.block import Stack


@dataclass(frozen=True)
class SameRate:
    """The same for all weights of all models: the best rate then falls with the width, about as its root."""

    name: ClassVar[str] = "same"

    def begin(self, decoder: Stack, width: int) -> None:
        """Change the drawn weights of a model's blocks."""

    def rates(self, decoder: Stack, width: int) -> dict[str, float]:
        """What the rates of the blocks' weights are multiplied by, where that is not 1."""
        return {}

    def peak(self, peak: float, chosen_at: int, width: int) -> float:
        """The highest rate, from the best one at another width."""
        return peak * math.sqrt(chosen_at / width)


@dataclass(frozen=True)
class Carried:
    """μP (Yang et al. 2021): the rate that is best for a model of width `base` is so for every other.

    Matrices of the blocks start with √(base/D) times the deviation and learn at base/D times the rate; logits are
    base/D times as large. For Adam a factor of the logits is the same as that gain of the last norm, learned at that
    share of the rate, so the model itself stays what it is. Heads must keep their width: else the scores would change
    with it.
    """

    name: ClassVar[str] = "carried"
    base: int = 128

    def __post_init__(self) -> None:
        refuse(self.base < 1, f"model.widths.base must be at least 1, not {self.base}")

    @torch.no_grad()
    def begin(self, decoder: Stack, width: int) -> None:
        plain = type(decoder.final) in (nn.LayerNorm, nn.RMSNorm)
        refuse(not plain, "model.widths=carried needs a norm with a gain behind the last layer, as of model.norm=pre")
        ratio = self.base / width
        decoder.final.weight.mul_(ratio)  # type: ignore[operator]
        for weight in decoder.layers.parameters():
            if weight.dim() >= 2:
                weight.mul_(math.sqrt(ratio))

    def rates(self, decoder: Stack, width: int) -> dict[str, float]:
        slow = {name for name, weight in decoder.layers.named_parameters(prefix="layers") if weight.dim() >= 2}
        slow |= {name for name, _ in decoder.final.named_parameters(prefix="final")}
        return dict.fromkeys(sorted(slow), self.base / width)

    def peak(self, peak: float, chosen_at: int, width: int) -> float:
        return peak


Widths = SameRate | Carried
