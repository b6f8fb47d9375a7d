"""A policy acts in a world, episode after episode.

E episodes, K steps of all of them, S width of a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.data.trajectories import Trajectories
from headway.worlds.policies import Policy, Seen
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
    worlds: Sequence[World], policy: Policy, seeds: Sequence[int], *, noise: float = 0.0, pictures: int = 0,
    most: int | None = None, intended: bool = False,
) -> list[Episode]:  # fmt: skip
    """An episode in each world, side by side. noise: see `shaken` of the world's actions; intended: what is kept is the
    action before that (Laskey et al. 2017). pictures: pixels of a side, 0 for none. most: steps."""
    # Apart from what the worlds draw with the same seeds.
    draws = [np.random.default_rng((seed, 1)) for seed in seeds]
    policy.begin(draws)
    found = [Episode(seed) for seed in seeds]
    seen = [Seen(world.reset(seed)) for world, seed in zip(worlds, seeds, strict=True)]
    rows = list(range(len(seeds)))
    while rows and (most is None or len(found[rows[0]].rewards) < most):
        for row in rows if pictures else ():
            found[row].pictures.append(worlds[row].picture(pictures))
        for row in rows if policy.sees else ():
            same = policy.sees == pictures
            seen[row] = seen[row]._replace(
                picture=found[row].pictures[-1] if same else worlds[row].picture(policy.sees)
            )
        over = set()
        for row, chosen in zip(rows, policy.act(rows, [seen[row] for row in rows]), strict=True):
            space = worlds[row].actions
            chosen = space.bounded(chosen)
            action = space.shaken(chosen, noise, draws[row]) if noise else chosen
            moved, episode = worlds[row].step(action), found[row]
            episode.states.append(seen[row].state_S)
            episode.actions.append(chosen if intended else action)
            episode.rewards.append(moved.reward)
            # A world that says it at every step has succeeded if it ever did.
            if moved.succeeded is not None:
                episode.succeeded = bool(episode.succeeded) or moved.succeeded
            seen[row], episode.ended = Seen(moved.state_S, moved.reward), moved.ended
            if moved.over:
                over.add(row)
        rows = [row for row in rows if row not in over]
    return found


def episodes(worlds: Sequence[World], policy: Policy, count: int, seed: Sequence[int], **how: Any) -> Iterator[Episode]:
    """As many at a time as there are worlds. Each has a seed of its own: the same call gives the same ones, and another
    seed others."""
    seeds = [int(one) for one in np.random.SeedSequence(seed).generate_state(count)]
    for begin in range(0, count, len(worlds)):
        some = seeds[begin : begin + len(worlds)]
        yield from acted(worlds[: len(some)], policy, some, **how)


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
        np.stack(pictures) if pictures else None, world.command,
    )  # fmt: skip
