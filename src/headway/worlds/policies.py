"""Policies that nobody has to train: random actions, and experts that know their world.

S width of a state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from headway.errors import refuse
from headway.worlds.lane import AHEAD, BENT, HALF, STEEPEST, WHEELBASE
from headway.worlds.world import Floats, Space, World


class Policy(Protocol):
    """begin: an episode starts. A policy may draw from `draw` alone, so that an episode is a function of its seed."""

    name: str

    def begin(self, draw: np.random.Generator) -> None: ...

    def act(self, state_S: Floats) -> Any: ...


class Random:
    name = "random"

    def __init__(self, actions: Space) -> None:
        self.actions = actions

    def begin(self, draw: np.random.Generator) -> None:
        self.draw = draw

    def act(self, state_S: Floats) -> Any:
        return self.actions.random(self.draw)


class Expert:
    """A rule of the state alone."""

    name = "expert"

    def __init__(self, rule: Callable[[Floats], Any]) -> None:
        self.rule = rule

    def begin(self, draw: np.random.Generator) -> None:
        pass

    def act(self, state_S: Floats) -> Any:
        return self.rule(state_S)


def balance(state_S: Floats) -> int:
    """CartPole: push to the side to which the pole falls, and a little so that the cart comes back to the middle."""
    place, speed, angle, turning = state_S
    return int(angle + 0.4 * turning + 0.02 * place + 0.06 * speed > 0)


def swing_up(state_S: Floats) -> Floats:
    """Pendulum: add energy while it is low, then hold it upright."""
    up, side, speed = map(float, state_S)
    angle = np.arctan2(side, up)
    if up > 0.8 and abs(speed) < 6:
        force = -12 * angle - 3 * speed
    else:
        missing = 5 - (speed**2 / 6 + 5 * up)  # of the energy that it has when upright
        force = 2 * np.sign(speed or 1.0) * np.sign(missing)
    return np.array([np.clip(force, -2, 2)], np.float32)


def keep_lane(state_S: Floats) -> Floats:
    """Lane keeping: steer as the road bends a little ahead, and against what is left of distance and heading."""
    bend = float(np.interp(3.0, AHEAD, state_S[3:])) * BENT
    wheels = np.arctan(WHEELBASE * bend) - 0.08 * HALF * float(state_S[0]) - 0.5 * float(state_S[1])
    return np.array([np.clip(wheels / STEEPEST, -1, 1)], np.float32)


EXPERTS: dict[str, Callable[[Floats], Any]] = {
    "CartPole-v0": balance, "CartPole-v1": balance, "Pendulum-v1": swing_up, "lane-keeping": keep_lane,
}  # fmt: skip


def policy_named(name: str, world: World) -> Policy:
    """`random`, or the `expert` of this world."""
    if name == "random":
        return Random(world.actions)
    refuse(name != "expert", f"there is no policy '{name}': write expert or random")
    known = ", ".join(EXPERTS)
    refuse(world.name not in EXPERTS, f"'{world.name}' has no expert here; these have one: {known}")
    return Expert(EXPERTS[world.name])
