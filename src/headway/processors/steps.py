"""What a policy sees and what it does, into a model and out of it.

K steps, S width of a state, A width of an action: as many as there are choices, or numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from headway.errors import refuse
from headway.worlds.world import Choices, Floats, Space

NO_RETURNS = (0.0, 0.0, 0.0)


class InCard:
    """Abstract. A processor that is all in the card."""

    config: Any

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(repr(self.config).encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        pass


@dataclass(frozen=True)
class ObservationConfig:
    """size: numbers of a state. world: where it was seen ("": not known). mean, std: of each number. scale: what a
    return is divided by. returns: the lowest, the mean and the highest of the episodes that were learned from.

    Of a policy that follows commands: worlds, commands: the worlds, and what each asks for. given: numbers of a state
    in its world, of which the first `size` are read (0: just those). pixels: of a side of the pictures (0: it sees
    none)."""

    name: ClassVar[str] = "observations"
    size: int
    world: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float = 1.0
    returns: tuple[float, float, float] = NO_RETURNS
    worlds: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    given: int = 0
    pixels: int = 0

    def __post_init__(self) -> None:
        refuse(self.size < 1, f"a state has at least one number, not {self.size}")
        for name in ("mean", "std"):
            values = getattr(self, name)
            wrong = len(values) not in (0, self.size) or not np.isfinite(values).all()
            refuse(wrong, f"{name} must have {self.size} finite numbers")
        refuse(min(self.std, default=1.0) <= 0, "std must be above 0")
        refuse(len(self.worlds) != len(self.commands), "worlds and commands must be as many")
        refuse(0 < self.given < self.size, f"of {self.given} numbers {self.size} cannot be read")
        refuse(self.pixels < 0, f"pictures cannot have {self.pixels} pixels a side")
        refuse(not (np.isfinite(self.scale) and self.scale > 0), f"scale must be above 0, not {self.scale}")

    @property
    def width(self) -> int:
        """Numbers of a state in its world."""
        return self.given or self.size

    @property
    def summary(self) -> str:
        where = f" in {len(self.worlds)} worlds" if len(self.worlds) > 1 else f" in {self.world}" if self.world else ""
        return f"states of {self.size} numbers{where}"

    @property
    def title(self) -> str:
        return self.world

    def settings(self, name: str) -> dict[str, Any]:
        return {}

    def open(self, folder: Path, opened: Sequence[Any] = ()) -> ObservationProcessor:
        return ObservationProcessor(self)


@final
class ObservationProcessor(InCard):
    """(state − mean) / std."""

    def __init__(self, config: ObservationConfig) -> None:
        self.config = config
        self.mean_S = np.array(config.mean or (0.0,) * config.size, np.float32)
        self.std_S = np.array(config.std or (1.0,) * config.size, np.float32)

    def encode(self, states_KS: Any) -> Floats:
        read_KS = np.asarray(states_KS, np.float32)[..., : self.config.size]
        return ((read_KS - self.mean_S) / self.std_S).astype(np.float32, copy=False)

    def decode(self, arrays_KS: Any) -> Floats:
        return (np.asarray(arrays_KS, np.float32) * self.std_S + self.mean_S).astype(np.float32, copy=False)


@dataclass(frozen=True)
class ActionConfig:
    """size: how many choices, or numbers. low, high: bounds of numbers (none: there are none)."""

    name: ClassVar[str] = "actions"
    size: int
    space: Literal["choices", "numbers"] = "choices"
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        refuse(self.size < 1, f"there must be at least one action, not {self.size}")
        right = len(self.low) == len(self.high) and len(self.low) in (0, self.size)
        refuse(not right, f"low and high must have {self.size} numbers each")
        wrong = not np.isfinite((*self.low, *self.high)).all() or any(
            not low < high for low, high in zip(self.low, self.high, strict=True)
        )
        refuse(wrong, "low must be below high, and both finite")

    @classmethod
    def of(cls, space: Space) -> ActionConfig:
        if isinstance(space, Choices):
            return cls(space.count)
        bounded = bool(np.isfinite([space.low, space.high]).all())
        low, high = (space.low, space.high) if bounded else ((), ())
        return cls(space.width, "numbers", low, high)

    @property
    def bounded(self) -> bool:
        return bool(self.low)

    def takes(self, space: Space) -> bool:
        """Whether these are the actions of a world."""
        other = ActionConfig.of(space)
        return (self.space, self.size) == (other.space, other.size)

    @property
    def summary(self) -> str:
        return f"{self.size} choices" if self.space == "choices" else f"actions of {self.size} numbers"

    @property
    def title(self) -> str:
        return ""

    def settings(self, name: str) -> dict[str, Any]:
        return {}

    def open(self, folder: Path, opened: Sequence[Any] = ()) -> ActionProcessor:
        return ActionProcessor(self)


@final
class ActionProcessor(InCard):
    """A choice as a row with one 1; numbers between −1 and 1 where they have bounds."""

    def __init__(self, config: ActionConfig) -> None:
        self.config = config
        low, high = (np.array(side or (sign,) * config.size) for side, sign in ((config.low, -1), (config.high, 1)))
        self.middle_A, self.half_A = (low + high) / 2, (high - low) / 2

    def encode(self, actions_K: Any) -> Floats:
        """(K, A)"""
        if self.config.space == "choices":
            return np.eye(self.config.size, dtype=np.float32)[np.asarray(actions_K, np.int64)]
        numbers_KA = np.asarray(actions_K, np.float64).reshape(-1, self.config.size)
        return ((numbers_KA - self.middle_A) / self.half_A).astype(np.float32)

    def decode(self, arrays_KA: NDArray[Any]) -> list[Any]:
        """Actions that a world takes: the choice with the largest value, or numbers within the bounds."""
        if self.config.space == "choices":
            return [int(number) for number in np.asarray(arrays_KA).argmax(-1)]
        numbers_KA = np.asarray(arrays_KA, np.float64)
        inside_KA = np.clip(numbers_KA, -1, 1) if self.config.bounded else numbers_KA
        return list((inside_KA * self.half_A + self.middle_A).astype(np.float32))


def fits(observations: ObservationConfig, actions: ActionConfig, other: Any) -> bool:
    """Whether a world, or trajectories, have states and actions of these sizes."""
    return bool(other.states.width == observations.width and actions.takes(other.actions))
