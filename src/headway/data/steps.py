"""Windows of trajectories: what a policy saw, did and was still to be given, step after step.

B rows, T steps, S width of a state, A width of an action, K steps of all episodes, E episodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import Batch, column
from headway.data.batches import raw_words
from headway.data.split import hold_out_by_hash
from headway.data.trajectories import Trajectories

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepInputs(Batch):
    """What is known at each step: the state, the return from here to the end (wanted, or reached), the number of the
    step within its episode, and the action, which is known only to later steps. memory_BM: what a policy remembers of
    the steps before these (None: there are none)."""

    states_BTS: Tensor = column()
    actions_BTA: Tensor = column()
    returns_BT: Tensor = column()
    times_BT: Tensor = column()
    memory_BM: Tensor | None = column(default=None)


def step_inputs(states_BTS: Any, actions_BTA: Any, returns_BT: Any, times_BT: Any, memory_BM: Any = None) -> StepInputs:
    """Of arrays."""
    given = {"states_BTS": states_BTS, "actions_BTA": actions_BTA, "returns_BT": returns_BT, "times_BT": times_BT}
    given |= {} if memory_BM is None else {"memory_BM": memory_BM}
    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in given.items()}
    return StepInputs(**tensors)


@dataclass(frozen=True)
class StepBatch(Batch):
    """there_BT: 1 for a step, 0 where a row is filled up. later_BTCA: what was done at each step and at those behind
    it, as far as `later_there_BTC` is 1 (None: nobody asked)."""

    inputs: StepInputs
    there_BT: Tensor = column()
    later_BTCA: Tensor | None = column(default=None)
    later_there_BTC: Tensor | None = column(default=None)

    def counted(self) -> dict[str, float]:
        steps = float(self.there_BT.sum())
        return {"loss": steps, "nll": steps, "tokens": steps}


@dataclass(frozen=True, eq=False)
class Steps:
    """Episodes as a model reads them. togo_K: the sum of the rewards from each step to its episode's end, divided by
    the scale."""

    states_KS: NDArray[np.float32]
    actions_KA: NDArray[np.float32]
    togo_K: NDArray[np.float32]
    times_K: Ints
    ends_K: Ints  # the step behind the last of its episode

    def __len__(self) -> int:
        return len(self.times_K)

    def batches(self, window: int, rows: int, **how: Any) -> StepBatches:
        return StepBatches(self, window, rows, **how)

    @property
    def fingerprint(self) -> str:
        parts = (self.states_KS, self.actions_KA, self.togo_K, self.times_K)
        return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).hexdigest()


def to_go(rewards_K: NDArray[np.float32], begins_E: Ints) -> NDArray[np.float32]:
    """From every step to its episode's end, the sum of the rewards."""
    togo_K = np.zeros(len(rewards_K))
    for begin, end in zip(begins_E, [*begins_E[1:], len(rewards_K)], strict=True):
        togo_K[begin:end] = np.cumsum(rewards_K[begin:end][::-1].astype(np.float64))[::-1]
    return togo_K.astype(np.float32)


def steps_of(found: Trajectories, observe: Callable[[Any], Any], act: Callable[[Any], Any], scale: float) -> Steps:
    lengths_E = found.lengths_E
    return Steps(
        observe(found.states_KS), act(found.actions_K), to_go(found.rewards_K, found.begins_E) / np.float32(scale),
        np.arange(len(found.rewards_K)) - np.repeat(found.begins_E, lengths_E),
        np.repeat(found.begins_E + lengths_E, lengths_E),
    )  # fmt: skip


def those(found: Trajectories, episodes: Any) -> Trajectories:
    """Some of the episodes, in this order."""
    chosen = np.asarray(list(episodes), np.int64)
    lengths_E = found.lengths_E[chosen]
    spans = [np.arange(found.begins_E[one], found.begins_E[one] + found.lengths_E[one]) for one in chosen]
    at_K = np.concatenate(spans) if spans else np.zeros(0, np.int64)
    pictures = None if found.pictures_KPP3 is None else found.pictures_KPP3[at_K]
    return replace(
        found, states_KS=found.states_KS[at_K], actions_K=found.actions_K[at_K], rewards_K=found.rewards_K[at_K],
        begins_E=np.cumsum([0, *lengths_E[:-1]]).astype(np.int64), ended_E=found.ended_E[chosen],
        succeeded_E=found.succeeded_E[chosen], pictures_KPP3=pictures, asked_E=found.task_E[chosen],
    )  # fmt: skip


def best_of(found: Trajectories, share: float) -> Trajectories:
    """The share of the episodes that reached the highest returns, at least one; of several worlds, that of each."""
    if share == 1:
        return found
    best: list[int] = []
    for task in range(len(found.tasks)):
        [own] = np.nonzero(found.task_E == task)
        order = np.argsort(-found.returns_E[own], kind="stable")
        best += own[order[: max(1, round(share * len(own)))]].tolist()
    return those(found, sorted(best))


def hold_out_episodes(found: Trajectories, share: float) -> tuple[Trajectories, Trajectories]:
    """The training and the held-out episodes, chosen by a hash of what happened in them."""
    ends_E = found.begins_E + found.lengths_E
    contents = [
        b"".join(part[begin:end].tobytes() for part in (found.states_KS, found.actions_K, found.rewards_K))
        for begin, end in zip(found.begins_E, ends_E, strict=True)
    ]
    train, held = hold_out_by_hash(range(len(found)), contents, share, "episodes")
    return those(found, train), those(found, held)


class StepBatches:
    """Endless batches of windows, a function of the steps, the seed and the step of training: any step may be the first
    of a window, and one that passes its episode's end is filled up. An epoch predicts as many steps as there are.

    whole: windows that have every step once, in order, to judge by. ahead: of `later_BTCA`.
    """

    def __init__(self, steps: Any, window: int, rows: int, seed: int = 0, whole: bool = False, ahead: int = 0) -> None:
        self.steps, self.window, self.rows, self.seed, self.ahead = steps, window, rows, seed, ahead
        self.whole = np.flatnonzero(steps.times_K % window == 0) if whole else None
        taken = len(steps) // window if self.whole is None else len(self.whole)
        self.per_epoch = max(1, -(-taken // rows))

    def batch(self, step: int) -> StepBatch:
        if self.whole is None:
            return self.of((raw_words(self.rows, self.seed, step, 0) % len(self.steps)).astype(np.int64), step)
        at = step % self.per_epoch
        return self.of(self.whole[at * self.rows : (at + 1) * self.rows])

    def of(self, starts_B: Ints, step: int = 0) -> StepBatch:
        """The windows that begin with these steps."""
        ends_B1 = self.steps.ends_K[starts_B][:, None]
        at_BT = starts_B[:, None] + np.arange(self.window)
        there_BT = at_BT < ends_B1
        at_BT = np.where(there_BT, at_BT, starts_B[:, None])
        later: dict[str, Any] = {}
        if self.ahead:
            at_BTC = at_BT[..., None] + np.arange(self.ahead)
            there_BTC = (at_BTC < ends_B1[..., None]) & there_BT[..., None]
            done_BTCA = self.steps.actions_KA[np.where(there_BTC, at_BTC, at_BT[..., None])]
            later = {"later_BTCA": done_BTCA, "later_there_BTC": there_BTC.astype(np.float32)}
        return StepBatch(
            self.inputs(at_BT, step), torch.from_numpy(there_BT.astype(np.float32)),
            **{name: torch.from_numpy(array) for name, array in later.items()}, examples=tuple(starts_B.tolist()),
        )  # fmt: skip

    def inputs(self, at_BT: Ints, step: int) -> StepInputs:
        """What is known at these steps of all. step: that of training, for what is drawn."""
        steps = self.steps
        parts = (steps.states_KS, steps.actions_KA, steps.togo_K, steps.times_K)
        return step_inputs(*(part[at_BT] for part in parts))

    def epoch(self, epoch: int = 0) -> Iterator[StepBatch]:
        return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))
