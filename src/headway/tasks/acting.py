"""Acting: a policy that is learned from trajectories, and acts in the world that they are from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from headway.card import Card, Loaded
from headway.data.steps import StepBatch, StepBatches, StepInputs, best_of, hold_out_episodes, steps_of
from headway.data.trajectories import Trajectories, read_trajectories
from headway.errors import InputError, refuse
from headway.evaluate.episodes import EpisodeScores
from headway.generate.actor import AT_ONCE, Actor, played
from headway.plain import to_plain
from headway.processors.steps import ActionConfig, ObservationConfig
from headway.tasks.files import DividedFiles, divided
from headway.tasks.objective import HeadLoss
from headway.tasks.start import RunContext, earlier_model, first_model
from headway.tasks.task import Report, Task, entropy, refuse_unknown


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


class Acting(Task):
    """Judged by the actions of held-out episodes: `headway play` acts."""

    name = "acting"
    data = TrajectoryFiles
    roles = ("encodes",)
    takes = ("observations", "actions")
    objectives = (HeadLoss,)
    unit = "steps"
    verb = "play"
    opens = Actor

    parts: dict[str, Trajectories]

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.parts = divided(run.data, context, read_trajectories, hold_out_episodes)
        self._tell()
        for part in ("train", "valid"):
            self.parts[part] = best_of(self.parts[part], run.data.best)
        observations, actions = self._configs(earlier)
        opened = {"observations": observations.open(context.out), "actions": actions.open(context.out)}
        self.processors = opened
        head = run.head.of_actions(actions)
        self.model = first_model(run, context, (observations.size, actions.size), (), head, earlier)
        configs = {"observations": observations, "actions": actions}
        self.card = Card(run.model.name, run.model, self.name, configs, head, run=to_plain(run))
        self._open_batches(observations.scale)

    def _tell(self) -> None:
        """How much there is; of one world alone."""
        train = self.parts["train"]
        for part, found in self.parts.items():
            other = f"the {part} episodes are of '{found.world}', the training episodes of '{train.world}'"
            refuse(found.world != train.world, other)
            returns = found.returns_E
            said = f"returns {returns.min():.4g} to {returns.max():.4g}, mean {returns.mean():.4g}"
            self.log.say(f"{part}: {len(found):,} episodes, {len(found.rewards_K):,} steps of {found.world}; {said}")
            self.log.event("data", part=part, episodes=len(found), steps=len(found.rewards_K))

    def _configs(self, earlier: Any) -> tuple[ObservationConfig, ActionConfig]:
        """How states and actions are read: measured on the training episodes, or as the earlier model reads them."""
        train = self.parts["train"]
        returns = train.returns_E
        reached = (float(returns.min()), round(float(returns.mean()), 4), float(returns.max()))
        longest = int(train.lengths_E.max())
        actions = ActionConfig.of(train.actions)
        if earlier is not None:
            before, known = earlier.card.processors.values()
            other = f"{self.run.init} is for '{before.world}', these episodes are of '{train.world}'"
            refuse(before.world and before.world != train.world, other)
            fits = before.size == train.states.width and known.takes(train.actions)
            refuse(not fits, f"{self.run.init} has other states or actions than these episodes")
            return replace(before, world=train.world, returns=reached, longest=longest), known
        mean_S, std_S = train.states_KS.mean(0), train.states_KS.std(0).clip(min=1e-6)
        scale = float(max(np.abs(returns).max(), 1e-6))
        mean, std = (tuple(np.round(values.astype(np.float64), 6).tolist()) for values in (mean_S, std_S.clip(1e-5)))
        observations = ObservationConfig(len(mean), train.world, mean, std, scale, reached, longest)
        return observations, actions

    def _open_batches(self, scale: float) -> None:
        run, window = self.run, self.run.model.max_length
        rows = max(1, run.engine.batch // window)
        observe, act = (self.processors[name].encode for name in self.takes)
        steps = {part: steps_of(found, observe, act, scale) for part, found in self.parts.items()}
        self.data_names = {part: found.fingerprint for part, found in steps.items()}
        self.batches = StepBatches(steps["train"], window, rows, run.engine.seed)
        self.held = {
            part: StepBatches(found, window, rows, whole=True) for part, found in steps.items() if part != "train"
        }
        self.valid = self.held["valid"]

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
        count = self.run.data.episodes
        actor = Actor(Loaded(self.model, self.card, self.processors), self.context.device, self.context.dtype)
        try:
            worlds = actor.open_worlds(min(count, AT_ONCE)) if count else []
        except InputError as error:  # a machine that trains need not have the world
            self.log.say(f"it is not played here: {error}")
            return {}
        if not worlds:
            return {}
        found = EpisodeScores.of(list(played(worlds, actor.policy(), count, 1))).figures()
        for world in worlds:
            world.close()
        return {name: round(found[name], 4) for name in ("return", "success") if name in found}

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
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (4, 2)  # of CartPole; the data decide

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> StepBatch:
        window = run.model.max_length
        rows, (states, actions) = max(1, run.engine.batch // window), cls.sizes(run)
        floats = (torch.zeros(rows, window, width, device=device) for width in (states, actions))
        times = torch.zeros(rows, window, dtype=torch.long, device=device)
        inputs = StepInputs(
            states_BTS=next(floats), actions_BTA=next(floats), times_BT=times,
            returns_BT=torch.zeros(rows, window, device=device),
        )  # fmt: skip
        return StepBatch(inputs, torch.ones(rows, window, device=device))

    @classmethod
    def evaluate(cls, model: Actor, files: Sequence[str], options: dict[str, Any]) -> Report:
        """How near its actions are to those of other episodes."""
        refuse_unknown(options, (), "a policy")
        found = read_trajectories(files)
        other = f"{files[0]} is of '{found.world}', the model is for '{model.world}'"
        refuse(model.world and found.world != model.world, other)
        size, actions = model.observations.config.size, model.actions.config
        fits = found.states.width == size and actions.takes(found.actions)
        refuse(not fits, f"{files[0]} has other states or actions than the model")
        scale = model.observations.config.scale
        steps = steps_of(found, model.observations.encode, model.actions.encode, scale)
        near: list[Any] = []
        for batch, given_BTA in model.of_steps(steps):
            there_BT, done_BTA = batch.there_BT.numpy() > 0, batch.inputs.actions_BTA.numpy()
            near.append(cls.nearness(given_BTA, done_BTA, actions.space)[there_BT])
        value = float(np.concatenate(near).mean())
        name = "accuracy" if actions.space == "choices" else "mse"
        values = {name: value, "episodes": len(found), "steps": len(steps)}
        return Report(values, [f"{name:<22}  {value:.4f}", f"{len(found):,} episodes, {len(steps):,} steps"])

    @staticmethod
    def nearness(given_BTA: Any, done_BTA: Any, space: str) -> Any:
        """Of every step: whether the choice is the same, or the mean squared distance of the numbers."""
        if space == "choices":
            return given_BTA.argmax(-1) == done_BTA.argmax(-1)
        return np.square(given_BTA - done_BTA).mean(-1)
