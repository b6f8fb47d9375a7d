"""Learning rates: a linear warm-up, then one of several ways down, or none. Steps count from 1.

`Linear` and `Cosine` come down by the run's last step, and leave at least half of the steps for that; the others do not
depend on how many there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar


class Shape:
    """Abstract. What every schedule has."""

    def rate(self, step: int, steps: int) -> float:
        raise NotImplementedError

    def stretched(self, factor: float) -> Any:
        """For a run that is so many times as long: lengths that count steps keep their share of it."""
        return self


@dataclass(frozen=True)
class InverseRoot(Shape):
    """peak · min(step/warmup, √(warmup/step)) (Vaswani et al. 2017, eq. 3)."""

    name: ClassVar[str] = "inverse-root"
    peak: float = 1e-3
    warmup: int = 4000

    def rate(self, step: int, steps: int) -> float:
        warmup = max(self.warmup, 1)
        return self.peak * min(step / warmup, math.sqrt(warmup / step))


def _progress(step: int, steps: int, warmup: int) -> tuple[float, float]:
    """The shares of the way up and of the way down that lie behind a step; at most half of a run goes up."""
    warmup = min(warmup, steps // 2)
    if step < warmup:
        return step / warmup, 0.0
    return 1.0, min(1.0, (step - warmup) / max(steps - warmup, 1))


@dataclass(frozen=True)
class Linear(Shape):
    """Up to the peak, then straight down to `floor` · peak at the last step."""

    name: ClassVar[str] = "linear"
    peak: float = 1e-3
    warmup: int = 400
    floor: float = 0.0

    def rate(self, step: int, steps: int) -> float:
        up, down = _progress(step, steps, self.warmup)
        return self.peak * up * (self.floor + (1 - self.floor) * self.left(down))

    def left(self, down: float) -> float:
        """The height above the floor when the share `down` of the way down is behind."""
        return 1 - down


@dataclass(frozen=True)
class Cosine(Linear):
    """Up to the peak, then half a cosine down to `floor` · peak (Loshchilov and Hutter 2017)."""

    name: ClassVar[str] = "cosine"

    def left(self, down: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * down))


@dataclass(frozen=True)
class Staircase(Shape):
    """peak · factor^⌈(step − hold)/every⌉: the peak for `hold` steps, then multiplied by `factor` every so many
    (Zaremba et al. 2014). A factor of 1 keeps it at the peak."""

    name: ClassVar[str] = "staircase"
    peak: float = 1.0
    warmup: int = 0
    hold: int = 8000
    every: int = 1300
    factor: float = 1 / 1.2

    def rate(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return self.peak * step / self.warmup
        return self.peak * self.factor ** max(0, -(-(step - self.hold) // max(self.every, 1)))

    def stretched(self, factor: float) -> Staircase:
        hold, every = (max(1, round(value * factor)) for value in (self.hold, self.every))
        return replace(self, hold=hold, every=every)


Schedule = InverseRoot | Linear | Cosine | Staircase
