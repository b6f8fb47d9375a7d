"""Policies that nobody has to train: random actions, and experts that know their world.

S width of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from headway.errors import refuse
from headway.worlds import meta
from headway.worlds.lane import AHEAD, BENT, HALF, STEEPEST, WHEELBASE
from headway.worlds.world import Bytes, Floats, Space, World

LEAN = 0.25  # rad: of a pole that an expert without skill takes to be upright


class Seen(NamedTuple):
    """What a policy knows before it acts. reward: of the action before, 0 at the first step."""

    state_S: Floats
    reward: float = 0.0
    picture: Bytes | None = None


class Policy(Protocol):
    """Acts in several episodes side by side. at_once: how many are worth it. sees: pixels of a side of the pictures
    that it must be shown (0: none).

    begin: so many episodes start, each with its own random generator; a policy draws from these alone, so that an
    episode is a function of its seed. act: the actions of the rows that are not over; all have had as many steps."""

    name: str
    at_once: int
    sees: int

    def begin(self, draws: Sequence[np.random.Generator]) -> None: ...

    def act(self, rows: Sequence[int], seen: Sequence[Seen]) -> list[Any]: ...


class Random:
    name, at_once, sees = "random", 1, 0

    def __init__(self, actions: Space) -> None:
        self.actions = actions

    def begin(self, draws: Sequence[np.random.Generator]) -> None:
        self.draws = draws

    def act(self, rows: Sequence[int], seen: Sequence[Seen]) -> list[Any]:
        return [self.actions.random(self.draws[row]) for row in rows]


Rule = Callable[[Floats, float], Any]


class Expert:
    """A rule of the state alone. skill: 1 for as well as it can; below that it errs in a way of its own, always in the
    same direction, so that what it does badly can be learned too."""

    name, at_once, sees = "expert", 1, 0

    def __init__(self, rule: Rule, skill: float = 1.0) -> None:
        self.rule, self.skill = rule, skill

    def begin(self, draws: Sequence[np.random.Generator]) -> None:
        pass

    def act(self, rows: Sequence[int], seen: Sequence[Seen]) -> list[Any]:
        return [self.rule(one.state_S, self.skill) for one in seen]


def balance(state_S: Floats, skill: float) -> int:
    """CartPole: push to the side to which the pole falls, and a little so that the cart comes back to the middle. With
    less skill it takes a pole that leans to be upright, and the cart runs away, the sooner the more."""
    place, speed, angle, turning = state_S
    return int(angle + 0.4 * turning + skill * (0.02 * place + 0.06 * speed) > (1 - skill) * LEAN)


def swing_up(state_S: Floats, skill: float) -> Floats:
    """Pendulum: add energy while it is low, then hold it upright. With less skill it has less force."""
    up, side, speed = map(float, state_S)
    angle = np.arctan2(side, up)
    if up > 0.8 and abs(speed) < 6:
        force = -12 * angle - 3 * speed
    else:
        missing = 5 - (speed**2 / 6 + 5 * up)  # of the energy that it has when upright
        force = 2 * np.sign(speed or 1.0) * np.sign(missing)
    return np.array([np.clip(force, -2, 2) * skill], np.float32)


def keep_lane(state_S: Floats, skill: float) -> Floats:
    """Lane keeping: steer as the road bends a little ahead, and against what is left of distance and heading. With less
    skill it keeps to the left of the middle."""
    bend = float(np.interp(3.0, AHEAD, state_S[3:])) * BENT
    wheels = np.arctan(WHEELBASE * bend) - 0.08 * HALF * (float(state_S[0]) - (1 - skill)) - 0.5 * float(state_S[1])
    return np.array([np.clip(wheels / STEEPEST, -1, 1)], np.float32)


EXPERTS: dict[str, Rule] = {
    "CartPole-v0": balance, "CartPole-v1": balance, "Pendulum-v1": swing_up, "lane-keeping": keep_lane,
}  # fmt: skip


def policy_named(name: str, world: World, skill: float = 1.0) -> Policy:
    """`random`, or the `expert` of this world."""
    refuse(skill < 1 and name != "expert", f"--skill is of an expert, not of the policy '{name}'")
    if name == "random":
        return Random(world.actions)
    refuse(name != "expert", f"there is no policy '{name}': write expert, random or a model's folder")
    if world.name.startswith(meta.PREFIX):
        return Expert(meta.expert(world.name), skill)
    known = ", ".join(EXPERTS)
    refuse(world.name not in EXPERTS, f"'{world.name}' has no expert here; these have one: {known}")
    return Expert(EXPERTS[world.name], skill)
