"""What a policy does while it learns: so many steps in several worlds, whatever episodes begin and end in them.

R worlds, T steps, S width of a state, A width of an action, M numbers that are remembered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.data.batches import raw_words
from headway.data.steps import step_inputs
from headway.worlds.world import Floats, World

Bools = NDArray[np.bool_]
CHANCE = 2.0**-64  # a word of 64 bits becomes a number below 1


@dataclass(frozen=True, eq=False)
class Rollout:
    """values_RT: what each state was thought to be worth. rewards_RT: where an episode was cut, with the worth of the
    state that it was cut at. over_RT: its episode is over behind this step; fresh_RT: it begins with it. last_R: the
    worth of the states behind the last step. memory_RTM: what was remembered before each step."""

    states_RTS: Floats
    actions_RTA: Floats
    log_p_RT: Floats
    values_RT: Floats
    rewards_RT: Floats
    over_RT: Bools
    fresh_RT: Bools
    times_RT: NDArray[np.int64]
    memory_RTM: Floats
    last_R: Floats

    def tensors(self) -> dict[str, Tensor]:
        return {one.name: torch.from_numpy(np.ascontiguousarray(getattr(self, one.name))) for one in fields(self)}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Rollout:
        return cls(**{one.name: tensors[one.name].cpu().numpy() for one in fields(cls)})

    def advantages(self, discount: float, trace: float) -> tuple[Floats, Floats]:
        """Aₜ = δₜ + γλ Aₜ₊₁ with δₜ = rₜ + γ Vₜ₊₁ − Vₜ, nothing behind an episode's end (Schulman et al. 2016); and
        what the values should have been, A + V."""
        found_RT, ahead_R, next_R = np.zeros_like(self.rewards_RT), np.zeros_like(self.last_R), self.last_R
        for t in reversed(range(self.rewards_RT.shape[1])):
            stays_R = ~self.over_RT[:, t]
            delta_R = self.rewards_RT[:, t] + discount * next_R * stays_R - self.values_RT[:, t]
            ahead_R = delta_R + discount * trace * ahead_R * stays_R
            found_RT[:, t], next_R = ahead_R, self.values_RT[:, t]
        return found_RT, found_RT + self.values_RT

    def segments(self, longest: int) -> NDArray[np.int64]:
        """(N, 3): row, first step and length of the parts of episodes, none longer than this."""
        rows, steps = self.rewards_RT.shape
        found = []
        for row in range(rows):
            starts = sorted({0, *np.flatnonzero(self.fresh_RT[row]).tolist()})
            for start, end in zip(starts, [*starts[1:], steps], strict=True):
                found += [(row, at, min(longest, end - at)) for at in range(start, end, longest)]
        return np.array(found, np.int64)


class Practice:
    """Worlds in which a policy acts while it learns. All that is random is a function of the seed and of the number of
    the step or of the episode, so that a run can be resumed to the bit."""

    def __init__(
        self, worlds: Sequence[World], model: Any, observe: Any, act: Any, seed: int, discount: float, factor: float,
        device: torch.device,
    ) -> None:  # fmt: skip
        """factor: of rewards. model: an encoder with a head that has `both`."""
        self.worlds, self.model, self.observe, self.act = list(worlds), model, observe, act
        self.seed, self.discount, self.factor, self.device = seed, discount, factor, device
        rows = len(self.worlds)
        self.episodes = [0] * rows  # that each world has begun
        self.steps, self.times_R = 0, np.zeros(rows, np.int64)
        self.states_RS = np.stack([self._begin(row) for row in range(rows)])
        self.memory_RM = model.encoder.start(rows, device)

    def _begin(self, row: int) -> Floats:
        drawn = np.random.SeedSequence((self.seed, row, self.episodes[row], 2)).generate_state(1)
        self.episodes[row] += 1
        return self.worlds[row].reset(int(drawn[0]))

    @torch.no_grad()
    def gather(self, length: int) -> Rollout:
        """So many steps of every world."""
        training, rows = self.model.training, len(self.worlds)
        self.model.eval()
        kept: dict[str, list[Any]] = {one.name: [] for one in fields(Rollout)}
        for _ in range(length):
            given_RA, value_R, memory_RM = self._seen(self.states_RS, self.memory_RM)
            chance = raw_words(rows * self.model.head.out.draws, self.seed, self.steps, 3).astype(np.float64) * CHANCE
            chance_R = torch.from_numpy(chance.reshape(rows, -1)).float().to(self.device)
            done_RA = self.model.head.out.drawn(given_RA, chance_R)
            log_p_R = self.model.head.out.log_p(given_RA, done_RA)
            moved = [world.step(action) for world, action in
                     zip(self.worlds, self.act.decode(done_RA.cpu().numpy()), strict=True)]  # fmt: skip
            rewards_R = np.array([self.factor * one.reward for one in moved], np.float32)
            over_R = np.array([one.over for one in moved])
            behind_RS = np.stack([one.state_S for one in moved])
            cut_R = np.array([one.cut and not one.ended for one in moved])
            if cut_R.any():  # the world could be continued: its last state is worth something
                rewards_R[cut_R] += self.discount * self._seen(behind_RS, memory_RM)[1].cpu().numpy()[cut_R]
            seen = {
                "states_RTS": self.observe.encode(self.states_RS), "actions_RTA": done_RA.cpu().numpy(),
                "log_p_RT": log_p_R.cpu().numpy(), "values_RT": value_R.cpu().numpy(), "rewards_RT": rewards_R,
                "over_RT": over_R, "fresh_RT": self.times_R == 0, "times_RT": self.times_R.copy(),
                "memory_RTM": self.memory_RM.float().cpu().numpy(),
            }  # fmt: skip
            for name, value in seen.items():
                kept[name].append(value)
            over = torch.from_numpy(over_R).to(self.device)
            self.memory_RM = torch.where(over[:, None], torch.zeros_like(memory_RM), memory_RM)
            self.times_R = np.where(over_R, 0, self.times_R + 1)
            for row in np.flatnonzero(over_R):
                behind_RS[row] = self._begin(int(row))
            self.states_RS, self.steps = behind_RS, self.steps + 1
        last_R = self._seen(self.states_RS, self.memory_RM)[1].cpu().numpy()
        self.model.train(training)
        return Rollout(last_R=last_R, **{name: np.stack(values, 1) for name, values in kept.items() if values})

    def _seen(self, states_RS: Floats, memory_RM: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the actions of one step are drawn from, the worth of the states, and what is remembered behind them."""
        rows, blank = len(states_RS), np.zeros
        inputs = step_inputs(
            self.observe.encode(states_RS)[:, None], blank((rows, 1, self.act.config.size), np.float32),
            blank((rows, 1), np.float32), self.times_R[:, None].copy(),
        ).map(lambda tensor: tensor.to(self.device))  # fmt: skip
        encoded, memory_RM = self.model.encoder.follow(inputs, memory_RM)
        given_RTA, value_RT = self.model.head.both(encoded)
        return given_RTA[:, 0], value_RT[:, 0], memory_RM

    def carried(self) -> dict[str, Tensor]:
        """All that `resume` needs to be where this is, to the bit."""
        facts = {"episodes": self.episodes, "steps": self.steps, "worlds": [world.carried() for world in self.worlds]}
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8).copy()
        return {
            "facts": torch.from_numpy(text), "times": torch.from_numpy(self.times_R.copy()),
            "states": torch.from_numpy(self.states_RS.copy()), "memory": self.memory_RM.clone(),
        }  # fmt: skip

    def resume(self, carried: dict[str, Tensor]) -> None:
        facts = json.loads(carried["facts"].cpu().numpy().tobytes().decode())
        self.episodes, self.steps = facts["episodes"], facts["steps"]
        for world, kept in zip(self.worlds, facts["worlds"], strict=True):
            world.restore(kept)
        self.times_R, self.states_RS = (carried[name].cpu().numpy().copy() for name in ("times", "states"))
        self.memory_RM = carried["memory"].to(self.device)
