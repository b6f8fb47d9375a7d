"""Acting: a policy that is learned from trajectories, and acts in the world that they are from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from headway.data.steps import StepBatch, StepInputs, best_of, hold_out_episodes
from headway.data.trajectories import Trajectories
from headway.errors import InputError, refuse
from headway.generate.actor import AT_ONCE
from headway.processors.steps import ActionConfig, ObservationConfig
from headway.tasks.files import DividedFiles, divided
from headway.tasks.objective import HeadLoss
from headway.tasks.policies import PolicyTask
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import entropy


@dataclass(frozen=True)
class TrajectoryFiles(DividedFiles):
    """Episodes that `headway collect` has written. Without `valid`, the share `hold_out` of the training episodes is.
    best: the share of the episodes, those with the highest returns, that is learned from and validated with (1: all).
    episodes: how many the finished policy plays, where its world is installed. A batch of a run counts steps."""

    name: ClassVar[str] = "trajectories"
    wanted: ClassVar[str] = "EPISODES.npz (headway collect writes it)"
    best: float = 1.0
    episodes: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.episodes < 0, f"data.episodes must be 0 or more, not {self.episodes}")
        refuse(not 0 < self.best <= 1, f"data.best must be above 0 and at most 1, not {self.best}")


class Acting(PolicyTask):
    """Judged by the actions of held-out episodes: `headway play` acts."""

    name = "acting"
    data = TrajectoryFiles
    objectives = (HeadLoss,)

    parts: dict[str, Trajectories]

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.parts = divided(run.data, context, self.open_episodes, hold_out_episodes)
        self._tell()
        for part in ("train", "valid"):
            self.parts[part] = best_of(self.parts[part], run.data.best)
        self.begin_policy(self.open_processors(earlier), earlier)
        self._open_batches(earlier)

    def _tell(self) -> None:
        """How much there is; of one world alone."""
        train = self.parts["train"]
        for part, found in self.parts.items():
            known = {task.world for task in train.tasks}
            for task in found.tasks:
                other = f"the {part} episodes are of '{task.world}', the training episodes of '{train.world}'"
                refuse(task.world not in known, other)
            returns, count = found.returns_E, len(found.tasks)
            said = f"returns {returns.min():.4g} to {returns.max():.4g}, mean {returns.mean():.4g}"
            where = f"{count} worlds" if count > 1 else found.world
            self.log.say(f"{part}: {len(found):,} episodes, {len(found.rewards_K):,} steps of {where}; {said}")
            self.log.event("data", part=part, episodes=len(found), steps=len(found.rewards_K))

    def open_processors(self, earlier: Any) -> dict[str, Any]:
        """How states and actions are read: measured on the training episodes, or as the earlier model reads them."""
        observations, actions = self._configs(earlier)
        return {"observations": observations.open(self.context.out), "actions": actions.open(self.context.out)}

    def _configs(self, earlier: Any) -> tuple[ObservationConfig, ActionConfig]:
        train = self.parts["train"]
        returns = train.returns_E
        reached = (float(returns.min()), round(float(returns.mean()), 4), float(returns.max()))
        if earlier is not None:
            before, actions = self.as_before(earlier, train, train.world)
            another = f"{self.run.init} is for '{before.world}', not for '{train.world}'"
            refuse(before.world and train.world not in (before.world, *before.worlds), another)
            return replace(before, world=train.world, returns=reached), actions
        mean_S, std_S = train.states_KS.mean(0), train.states_KS.std(0).clip(min=1e-5)
        mean, std = (tuple(np.round(values.astype(np.float64), 6).tolist()) for values in (mean_S, std_S))
        scale = float(max(np.abs(returns).max(), 1e-6))
        return ObservationConfig(len(mean), train.world, mean, std, scale, reached), ActionConfig.of(train.actions)

    def _open_batches(self, earlier: Any) -> None:
        run, window, ahead = self.run, self.run.model.max_length, self.card.head.ahead
        rows, actor = max(1, run.engine.batch // window), self.actor()
        steps = {part: actor.steps(found) for part, found in self.parts.items()}
        self.data_names |= {part: found.fingerprint for part, found in steps.items()}
        self.batches = steps["train"].batches(window, rows, seed=run.engine.seed, ahead=ahead, **self.training())
        self.held = {
            part: found.batches(window, rows, whole=True, ahead=ahead)
            for part, found in steps.items() if part != "train"
        }  # fmt: skip
        self.valid = self.held["valid"]
        if earlier is None or earlier.card.head != self.card.head:
            self.model.head.fit(torch.from_numpy(steps["train"].actions_KA).to(self.context.device))

    def training(self) -> dict[str, Any]:
        """More of the batches that are learned from."""
        return {}

    def final_figures(self) -> dict[str, Any]:
        test = {"test loss": round(self.test_loss(), 4)} if "test" in self.held else {}
        return test | self.played()

    @torch.no_grad()
    def test_loss(self) -> float:
        sums = np.zeros(2)
        self.model.eval()
        for batch in self.held["test"].epoch():
            there = batch.map(lambda tensor: tensor.to(self.context.device))
            loss = self.model.head.losses(self.model.encode(there.inputs), there)["loss"][0]
            sums += float(loss), float(batch.counts["loss"])
        return float(sums[0] / sums[1])

    def played(self) -> dict[str, Any]:
        """What it reaches in its world when it is asked for the most that it has learned from."""
        actor = self.actor()
        return self.played_in(actor.world, actor, actor.policy())

    def played_in(self, world: str, actor: Any, policy: Any) -> dict[str, Any]:
        count = self.run.data.episodes
        if not count:
            return {}
        worlds: list[Any] = []
        try:
            worlds = actor.open_worlds(min(count, AT_ONCE), world)
            found = self.reached(policy, worlds, count, 1)
        except InputError as error:  # a machine that trains need not have the world, nor be able to draw it
            self.log.say(f"it is not played here: {error}")
            return {}
        finally:
            for one in worlds:
                one.close()
        return {name: round(value, 4) for name, value in found.items()}

    def guess(self) -> float:
        """Of choices; numbers are not guessed by how frequent they are."""
        train = self.parts["train"]
        if self.card.processors["actions"].space != "choices":
            return float("inf")
        return entropy(np.bincount(train.actions_K))

    def shown(self, example: int) -> str:
        train = self.parts["train"]
        episode = int(np.searchsorted(train.begins_E, example, "right")) - 1
        return f"episode {episode}, step {example - int(train.begins_E[episode])}"

    @classmethod
    def check(cls, run: Any) -> None:
        refuse(run.engine.batch < run.model.max_length, "engine.batch counts steps: at least model.max_length of them")

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> StepBatch:
        window = run.model.max_length
        rows, (states, actions) = max(1, run.engine.batch // window), cls.sizes(run)[:2]
        floats = (torch.zeros(rows, window, width, device=device) for width in (states, actions))
        times = torch.zeros(rows, window, dtype=torch.long, device=device)
        inputs = StepInputs(
            states_BTS=next(floats), actions_BTA=next(floats), times_BT=times,
            returns_BT=torch.zeros(rows, window, device=device),
        )  # fmt: skip
        there, ahead = torch.ones(rows, window, device=device), run.head.ahead
        later: dict[str, Any] = {"later_BTCA": inputs.actions_BTA[:, :, None].repeat(1, 1, ahead, 1),
                 "later_there_BTC": there[..., None].repeat(1, 1, ahead)} if ahead else {}  # fmt: skip
        return StepBatch(inputs, there, **later)
