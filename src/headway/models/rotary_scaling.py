"""How rotary frequencies are changed for texts longer than a model was first trained on, as plain values.

θ_i = base^(−2i/K) are K/2 frequencies, λ_i = 2π/θ_i their wavelengths, L the length of the first training. Everything
is in float32, as the models that have these were trained: in float64 the same formulas give other angles far out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Unscaled:
    """θ_i = base^(−2i/K) (Su et al. 2021)."""

    name: ClassVar[str] = "default"
    gain: ClassVar[float] = 1.0

    def frequencies(self, head_width: int, base: float) -> Tensor:
        return 1.0 / base ** (torch.arange(0, head_width, 2, dtype=torch.float32) / head_width)


@dataclass(frozen=True)
class Linear(Unscaled):
    """θ_i / s: positions move s times closer together (Chen et al. 2023)."""

    name: ClassVar[str] = "linear"
    factor: float = 1.0

    def frequencies(self, head_width: int, base: float) -> Tensor:
        return super().frequencies(head_width, base) / self.factor


@dataclass(frozen=True)
class Dynamic(Unscaled):
    """θ_i as they are up to the model's context; beyond it, where headway does not go, the base would grow with s."""

    name: ClassVar[str] = "dynamic"
    factor: float = 1.0


@dataclass(frozen=True)
class Llama3(Unscaled):
    """θ_i where λ_i < L/high, θ_i / s where λ_i > L/low, a straight line in L/λ_i between them (Llama Team 2024)."""

    name: ClassVar[str] = "llama3"
    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    length: int = 8192

    def frequencies(self, head_width: int, base: float) -> Tensor:
        theta_I = super().frequencies(head_width, base)
        wave_I = 2 * math.pi / theta_I
        share_I = (self.length / wave_I - self.low) / (self.high - self.low)
        between_I = (1 - share_I) * theta_I / self.factor + share_I * theta_I
        far_I = torch.where(wave_I > self.length / self.low, theta_I / self.factor, between_I)
        return torch.where(wave_I < self.length / self.high, theta_I, far_I)


@dataclass(frozen=True)
class Yarn:
    """θ_i · r_i + θ_i/s · (1 − r_i), r_i falling from 1 to 0 between the pairs that turn `fast` and `slow` times in L;
    what was turned is stretched by 0.1 ln s + 1 (Peng et al. 2023, 3.2 to 3.4).

    stretch: that factor, where it is another. whole: the two pairs are rounded to whole numbers.
    """

    name: ClassVar[str] = "yarn"
    factor: float = 1.0
    length: int = 4096
    fast: float = 32.0
    slow: float = 1.0
    stretch: float | None = None
    whole: bool = True

    @property
    def gain(self) -> float:
        if self.stretch is not None:
            return self.stretch
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def frequencies(self, head_width: int, base: float) -> Tensor:
        wave_I = base ** (torch.arange(0, head_width, 2).to(torch.float32) / head_width)
        first, last = (self._pair(turns, head_width, base) for turns in (self.fast, self.slow))
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, head_width - 1)
        width = (last if last != first else last + 0.001) - first
        kept_I = 1 - ((torch.arange(head_width // 2, dtype=torch.float32) - first) / width).clamp(0, 1)
        return 1.0 / (self.factor * wave_I) * (1 - kept_I) + 1.0 / wave_I * kept_I

    def _pair(self, turns: float, head_width: int, base: float) -> float:
        """The pair, not a whole one, that turns so many times in L."""
        return head_width * math.log(self.length / (turns * 2 * math.pi)) / (2 * math.log(base))


Scaling = Unscaled | Linear | Dynamic | Llama3 | Yarn


def angles(scaling: Scaling, head_width: int, base: float, positions_P: Tensor) -> Tensor:
    """p·θ_i, (P, K/2): what `headway.nn.position.Rotary` turns by."""
    return positions_P.to(torch.float32)[:, None] * scaling.frequencies(head_width, base)
