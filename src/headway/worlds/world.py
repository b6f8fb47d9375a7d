"""What a policy acts in: a world gives a state, takes an action, and gives the next state and a reward.

S width of a state, A width of an action, H height and W width of a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headway.errors import refuse

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Choices:
    """One of `count` actions, numbered from 0."""

    kind: ClassVar[str] = "choices"
    count: int

    def bounded(self, action: Any) -> Any:
        return action

    def random(self, draw: np.random.Generator) -> Any:
        return int(draw.integers(self.count))

    def shaken(self, action: Any, noise: float, draw: np.random.Generator) -> Any:
        """With the probability `noise` any action instead."""
        return self.random(draw) if draw.random() < noise else action

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "count": self.count}


@dataclass(frozen=True)
class Numbers:
    """So many numbers, each between its bounds, which may be infinite."""

    kind: ClassVar[str] = "numbers"
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def width(self) -> int:
        return len(self.low)

    def bounded(self, values: Any) -> Floats:
        return np.clip(np.asarray(values, np.float32), np.array(self.low, np.float32), np.array(self.high, np.float32))

    def random(self, draw: np.random.Generator) -> Any:
        refuse(not np.isfinite([self.low, self.high]).all(), "random actions need bounds, and these have none")
        return draw.uniform(self.low, self.high).astype(np.float32)

    def shaken(self, action: Any, noise: float, draw: np.random.Generator) -> Any:
        """With a normal disturbance added, whose deviation is `noise` of half the range."""
        half_A = (np.array(self.high) - np.array(self.low)) / 2
        return self.bounded(action + noise * half_A * draw.standard_normal(self.width))

    def plain(self) -> dict[str, Any]:
        """JSON has no infinity: None stands for a bound that is none."""
        bounds = ([value if np.isfinite(value) else None for value in side] for side in (self.low, self.high))
        return {"kind": self.kind, **dict(zip(("low", "high"), bounds, strict=True))}


Space = Choices | Numbers


def space_of(plain: Any) -> Space:
    """What `plain` has written."""
    if plain["kind"] == Choices.kind:
        return Choices(int(plain["count"]))
    low = tuple(-np.inf if value is None else float(value) for value in plain["low"])
    high = tuple(np.inf if value is None else float(value) for value in plain["high"])
    return Numbers(low, high)


class Moved(NamedTuple):
    """What an action led to. ended: there is no next state. cut: the world stops here, though it could be continued.
    succeeded: None where the world does not say."""

    state_S: Floats
    reward: float
    ended: bool
    cut: bool
    succeeded: bool | None = None

    @property
    def over(self) -> bool:
        return self.ended or self.cut


class World(Protocol):
    """`carried` is all that `restore` needs to be where the world was, to the bit: numbers, texts and lists of them."""

    @property
    def name(self) -> str: ...

    @property
    def states(self) -> Numbers: ...

    @property
    def actions(self) -> Space: ...

    @property
    def command(self) -> str:
        """What it asks for, in words ("": it does not say)."""

    def reset(self, seed: int) -> Floats:
        """The first state of an episode, a function of the seed."""

    def step(self, action: Any) -> Moved: ...

    def picture(self, size: int) -> Bytes:
        """(size, size, 3): what a camera sees now."""

    def carried(self) -> dict[str, Any]: ...

    def restore(self, carried: dict[str, Any]) -> Floats: ...

    def close(self) -> None: ...
