"""A policy acts in a world, episode after episode.

E episodes, K steps of all of them, S width of a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.data.trajectories import Trajectories
from headway.worlds.policies import Policy
from headway.worlds.world import Bytes, Choices, Floats, World


@dataclass
class Episode:
    """What happened from a first state on. `seed`: of the world and of the policy."""

    seed: int
    states: list[Floats] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    pictures: list[Bytes] = field(default_factory=list)
    ended: bool = False
    succeeded: bool | None = None

    @property
    def total(self) -> float:
        return float(sum(self.rewards))


def acted(
    world: World, policy: Policy, seed: int, *, noise: float = 0.0, pictures: int = 0, most: int | None = None
) -> Episode:
    """One episode. noise: see `shaken` of the world's actions. pictures: pixels of a side, 0 for none. most: steps."""
    draw = np.random.default_rng((seed, 1))  # apart from what the world draws with the same seed
    policy.begin(draw)
    found, state_S = Episode(seed), world.reset(seed)
    while most is None or len(found.rewards) < most:
        if pictures:
            found.pictures.append(world.picture(pictures))
        action = policy.act(state_S)
        action = world.actions.shaken(action, noise, draw) if noise else action
        moved = world.step(action)
        found.states.append(state_S)
        found.actions.append(action)
        found.rewards.append(moved.reward)
        # A world that says it at every step has succeeded if it ever did.
        if moved.succeeded is not None:
            found.succeeded = bool(found.succeeded) or moved.succeeded
        state_S, found.ended = moved.state_S, moved.ended
        if moved.over:
            break
    return found


def episodes(world: World, policy: Policy, count: int, seed: int, **how: Any) -> Iterator[Episode]:
    """Each has a seed of its own: the same call gives the same ones, and another seed others."""
    for seed_of in np.random.SeedSequence(seed).generate_state(count):
        yield acted(world, policy, int(seed_of), **how)


def gathered(world: World, found: list[Episode], policies: tuple[dict[str, Any], ...] = ()) -> Trajectories:
    """Episodes as arrays."""
    lengths = [len(episode.rewards) for episode in found]
    kind = np.int64 if isinstance(world.actions, Choices) else np.float32
    said = {None: -1, False: 0, True: 1}
    pictures = [one for episode in found for one in episode.pictures]
    return Trajectories(
        world.name, world.states, world.actions,
        np.stack([state_S for episode in found for state_S in episode.states]),
        np.array([action for episode in found for action in episode.actions], kind),
        np.array([reward for episode in found for reward in episode.rewards], np.float32),
        np.cumsum([0, *lengths[:-1]]).astype(np.int64), np.array([episode.ended for episode in found]),
        np.array([said[episode.succeeded] for episode in found], np.int8), policies,
        np.stack(pictures) if pictures else None,
    )  # fmt: skip
