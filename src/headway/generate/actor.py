"""A trained policy: it sees states, and acts so that it reaches the return that is wanted.

R rows, T steps, S width of a state, A width of an action.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Never

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from headway.card import Loaded
from headway.data.steps import StepBatch, StepInputs, Steps, step_inputs, steps_of
from headway.data.trajectories import Asked, Trajectories
from headway.errors import InputError, refuse
from headway.generate.acting import Episode, episodes
from headway.generate.tracing import Answering, checked, trace_of
from headway.generate.watching import Watcher, asked_step, with_episode
from headway.nn import tap
from headway.nn.tap import Choice, chosen
from headway.processors.steps import fits
from headway.traces import Trace, Track
from headway.worlds.catalog import open_world
from headway.worlds.policies import Policy, Seen
from headway.worlds.world import Floats, World

SEVERAL, TOGETHER = 256, 512  # windows, and steps of them, that are answered at a time
EPISODE = 2**31  # steps that no episode has
TRACED = 64  # steps of a trace, of a model that reads a whole episode
CPU = torch.device("cpu")
AT_ONCE = 32  # episodes side by side


class Actor(Answering):
    """`headway.load(folder)` gives one: `model.play(episodes=20, wanted=500)`."""

    vocabulary = 0  # it writes no tokens

    def __init__(self, loaded: Loaded, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> None:
        self.model: Any = loaded.model.eval()
        self.card, self.device, self.dtype = loaded.card, device, dtype
        self.observations, self.actions = loaded.processors["observations"], loaded.processors["actions"]
        steps: Any = self.model.context
        self.limit = TRACED if steps is None else steps * len(self.step_tokens)

    @property
    def tokenizers(self) -> Never:  # type: ignore[override]
        raise InputError("this model acts in a world: it has no tokens")

    @property
    def step_tokens(self) -> tuple[str, ...]:
        return tuple(self.model.encoder.step_tokens)

    @property
    def first_question(self) -> str:
        return "1"

    def places(self, text: str) -> int:
        return int(self.limit)

    @property
    def world(self) -> str:
        return str(self.observations.config.world)

    def tasks(self, world: str = "", command: str = "") -> list[Asked]:
        """What it can be asked for: its world, or another one."""
        refuse(command, "this policy takes no commands")
        return [Asked(world or self.world)]

    def unknown(self, command: str) -> list[str]:
        """The words of a command that it has never read."""
        return []

    @property
    def window(self) -> int:
        """Steps that it reads at once: as many as it was made for, or all of an episode."""
        return int(self.model.context or EPISODE)

    @property
    def told(self) -> bool:
        """Whether it is told the return to reach."""
        return bool(self.model.encoder.told)

    @property
    def most(self) -> float:
        """The highest return that it has learned from."""
        return float(self.observations.config.returns[2])

    def open_worlds(self, count: int, name: str = "") -> list[World]:
        """So many of the world that it was trained for, or of another with the same states and actions."""
        name = name or self.world
        refuse(not name, "the model does not say which world it is for: name one with --world")
        worlds = [open_world(name)]
        self.check(worlds[0], name)
        return [*worlds, *(open_world(name) for _ in range(count - 1))]

    def check(self, world: Any, name: str) -> None:
        """Refuse a world, or trajectories, that it does not fit."""
        observations, actions = self.observations.config, self.actions.config
        own = f"{observations.summary}, {actions.summary}"
        other = f"'{name}' has other states or actions than the model, which is for {own}"
        refuse(not fits(observations, actions, world), other)

    def play(
        self, episodes: int = 10, wanted: float | Sequence[float] | None = None, world: str = "", seed: int = 1,
        sample: bool = False, command: str = "", **how: Any,
    ) -> list[Episode]:  # fmt: skip
        """Episodes of the policy. wanted: the return that each is to reach (default: the highest that it has learned
        from)."""
        worlds = self.open_worlds(min(episodes, AT_ONCE), world)
        try:
            return list(played(worlds, self.policy(wanted, sample, command), episodes, seed, **how))
        finally:
            for one in worlds:
                one.close()

    def policy(
        self, wanted: float | Sequence[float] | None = None, sample: bool = False, command: str = ""
    ) -> ActorPolicy:
        refuse(command, "this policy takes no commands")
        return ActorPolicy(self, self.most if wanted is None else wanted, sample)

    def steps(self, found: Trajectories) -> Steps:
        """Episodes as the model reads them."""
        return steps_of(found, self.observations.encode, self.actions.encode, self.observations.config.scale)

    @torch.inference_mode()
    def trace(
        self, value: Any, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What the model computes at a step of an episode that it plays, over the last steps; and frames of the whole
        episode, with where it looks at each. value: the episode's number, and behind an @ the number of the step
        (default: the last that it reads at once with the first). `layers`, `heads`, `tensors` keep it small (see
        `headway.trace`)."""
        number, at = asked_step(value, self.limit // len(self.step_tokens) - 1)
        refuse(not number.isdigit(), f"a policy is asked with the number of an episode, as in --text 3, not {number!r}")
        choice = checked(self.model, chosen(layers, heads, tensors))
        policy = self.policy()
        watcher, episode = self.watched(policy, self.world, choice, at, int(number))
        with tap.record(self.model, choice) as recorder:
            self.model(watcher.inputs)
        said = {
            "return": [f"return {float(one[0]) * self.observations.config.scale:.4g}" for one in policy.returns],
            "state": [f"state {step}" for step in range(len(episode.rewards))],
            "action": [f"action {np.round(one, 2).tolist()}" for one in episode.actions],
        }
        last = watcher.at + 1
        first = last - watcher.inputs.times_BT.shape[1]
        names = [said[token][step] for step in range(first, last) for token in self.step_tokens]
        track = Track("steps", "steps", tuple(names[-self.limit :]), text=f"episode {value}")
        about = {"world": self.world, "return": episode.total}
        trace = trace_of(self.model, recorder, [track], name=self.name, about=about)
        more = {"asked": number, "wanted": self.most if self.told else None}
        return with_episode(trace, watcher, episode, self.before, more)

    def watched(self, policy: Any, world: str, choice: Choice, at: int, seed: int) -> tuple[Watcher, Episode]:
        [opened] = self.open_worlds(1, world)
        try:
            watcher = Watcher(self, policy, opened, choice, at)
            [episode] = played([opened], watcher, 1, seed, most=watcher.longest)
            watcher.end()
        finally:
            opened.close()
        return watcher, episode

    @property
    def before(self) -> Track:
        """The places that a step may look at: those of the last steps, up to the one at which its action is read."""
        steps = [f"−{step}" if step else "now" for step in reversed(range(self.limit // len(self.step_tokens)))]
        labels = [f"{token} {step}" for step in steps for token in self.step_tokens]
        behind = len(self.step_tokens) - 1 - self.step_tokens.index("state")
        return Track("before", "steps", tuple(labels[: len(labels) - behind]), text="")

    def present(self, name: str, weights_RHTS: Tensor) -> Tensor:
        """(H, S): of the attention over the last steps, that of the place at which the present action is read; a step
        that is not there yet gets none."""
        length, width = weights_RHTS.shape[-1], len(self.before)
        last = length - len(self.step_tokens) + self.step_tokens.index("state")
        row_HS = weights_RHTS[0, :, last, : last + 1][:, -width:]
        return functional.pad(row_HS, (width - row_HS.shape[1], 0))

    @torch.inference_mode()
    def answered(self, inputs: StepInputs) -> Floats:
        """(R, T, C, A): what it would do at every step, and at those behind it."""
        there = inputs.map(lambda tensor: tensor.to(self.device))
        found: Floats = self.model.head.actions(self.model.encode(there)).float().cpu().numpy()
        return found

    def of_steps(self, steps: Steps) -> Iterator[tuple[StepBatch, Floats]]:
        """Batches of windows, which have every step once, and what it would do at each."""
        longest = int(steps.times_K.max()) + 1
        window = min(self.window, longest)
        windows = steps.batches(window, max(1, min(SEVERAL, TOGETHER // window)), whole=True)
        return ((batch, self.answered(batch.inputs)[:, :, 0]) for batch in windows.epoch())


def played(worlds: Sequence[World], policy: Policy, count: int, seed: int, **how: Any) -> Any:
    """Episodes whose first states no collected ones have."""
    return episodes(worlds, policy, count, (seed, 1), **how)


class ActorPolicy:
    """The last steps of each row are read again at every step. wanted: the return to reach, the same for all rows or in
    turn; what was reached is taken off step by step. sample: choices are drawn by their probabilities."""

    name, at_once = "model", AT_ONCE

    def __init__(self, actor: Actor, wanted: float | Sequence[float], sample: bool) -> None:
        self.actor, self.sample = actor, sample
        self.sees = int(actor.observations.config.pixels)
        self.wanted = list(np.atleast_1d(np.asarray(wanted, np.float64)))

    def begin(self, draws: Sequence[np.random.Generator]) -> None:
        rows, actions = len(draws), self.actor.actions.config.size
        self.draws = draws
        self.togo_R = np.resize(np.array(self.wanted), rows)
        self.blank_RA = np.zeros((rows, actions), np.float32)
        self.states: list[Floats] = []
        self.returns: list[Floats] = []
        self.done: list[Floats] = []
        self.plans: list[Floats] = []

    def act(self, rows: Sequence[int], seen: Sequence[Seen]) -> list[Any]:
        actor, at = self.actor, np.asarray(rows)
        self.togo_R[at] -= [one.reward for one in seen]
        states_RS = np.zeros((len(self.togo_R), actor.observations.config.size), np.float32)
        states_RS[at] = actor.observations.encode(np.stack([one.state_S for one in seen]))
        self.states.append(states_RS)
        self.returns.append((self.togo_R / actor.observations.config.scale).astype(np.float32))
        self.done.append(self.blank_RA.copy())
        given_RA = self.blended(at, self.given(at))
        if self.sample and actor.actions.config.space == "choices":
            drawn = [self.draws[row].choice(len(p_A), p=p_A / p_A.sum())
                     for row, p_A in zip(rows, given_RA.astype(np.float64), strict=True)]  # fmt: skip
            given_RA = np.eye(given_RA.shape[1], dtype=np.float32)[drawn]
        chosen = actor.actions.decode(given_RA)
        self.done[-1][at] = actor.actions.encode(np.asarray(chosen))
        return chosen

    def given(self, at_R: Any) -> Floats:
        """(R, C, A): what these rows would do now, and at the steps behind."""
        return self.actor.answered(self.window(at_R))[:, -1]

    def blended(self, at_R: Any, given_RCA: Floats) -> Floats:
        """What is planned for this step now and was at the steps before: a mean, in which the i-th oldest plan counts
        exp(−forget·i) (Zhao et al. 2023, temporal ensembling)."""
        if given_RCA.shape[1] == 1:
            return given_RCA[:, 0]
        plan_RCA = np.zeros((len(self.togo_R), *given_RCA.shape[1:]), np.float32)
        plan_RCA[at_R] = given_RCA
        self.plans = [*self.plans, plan_RCA][-given_RCA.shape[1] :]
        oldest = len(self.plans) - 1
        weights = np.exp(-self.actor.card.head.forget * np.arange(len(self.plans)))
        each = np.stack([plan[at_R, oldest - number] for number, plan in enumerate(self.plans)])
        found: Floats = np.einsum("p,pra->ra", weights / weights.sum(), each).astype(np.float32)
        return found

    def window(self, at_R: Any) -> StepInputs:
        """The last steps of these rows."""
        steps = len(self.states)
        first = max(0, steps - self.actor.window)
        states, done, returns = (np.stack(part[first:], 1)[at_R] for part in (self.states, self.done, self.returns))
        times_BT = np.broadcast_to(np.arange(first, steps), (len(at_R), steps - first)).copy()
        return step_inputs(states, done, returns, times_BT)
