"""What the tasks of policies share: how states and actions are read, the model, and what it reaches in its world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from headway.card import Card, Loaded
from headway.data.trajectories import read_trajectories
from headway.errors import refuse
from headway.evaluate.episodes import EpisodeScores
from headway.generate.actor import Actor, played
from headway.plain import to_plain
from headway.processors.steps import ActionConfig, ObservationConfig, fits
from headway.tasks.start import first_model
from headway.tasks.task import Report, Task, refuse_unknown


class PolicyTask(Task):
    """Abstract. A policy, by an encoder of steps with a head."""

    roles = ("encodes",)
    takes: ClassVar[tuple[str, ...]] = ("observations", "actions")
    unit = "steps"
    verb = "play"
    opens = Actor
    open_episodes: ClassVar[Any] = staticmethod(read_trajectories)

    def begin_policy(self, processors: dict[str, Any], earlier: Any) -> None:
        """The first model, its card and its processors."""
        run, context = self.run, self.context
        self.processors, configs = processors, {name: one.config for name, one in processors.items()}
        head = run.head.of_actions(configs["actions"])
        self.card = Card(run.model.name, run.model, self.name, configs, head, run=to_plain(run))
        self.model = first_model(run, context, self.card.sizes, (), head, earlier)

    def as_before(self, earlier: Any, other: Any, world: str) -> tuple[ObservationConfig, ActionConfig]:
        """How the earlier model reads states and actions; refused where a world, or trajectories, have others."""
        observations, actions = (earlier.card.processors[name] for name in ("observations", "actions"))
        refuse(not fits(observations, actions, other), f"{self.run.init} has other states or actions than '{world}'")
        return observations, actions

    def actor(self) -> Actor:
        """The present weights, ready to act."""
        self.model.eval()
        loaded, context = Loaded(self.model, self.card, self.processors), self.context
        ready: Actor = type(self).opens(loaded, context.device, context.dtype)
        return ready

    @staticmethod
    def reached(policy: Any, worlds: Sequence[Any], count: int, seed: int) -> dict[str, float]:
        """The mean return of so many episodes, and how often it succeeded, where the world says that."""
        found = EpisodeScores.of(list(played(worlds, policy, count, seed))).figures()
        return {name: found[name] for name in ("return", "success") if name in found}

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (4, 2)  # of CartPole; the data decide

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data

    @classmethod
    def evaluate(cls, model: Actor, files: Sequence[str], options: dict[str, Any]) -> Report:
        """How near its actions are to those of episodes in files."""
        refuse_unknown(options, (), "a policy")
        found = cls.open_episodes(files)
        other = f"{files[0]} is of '{found.world}', the model is for '{model.world}'"
        refuse(model.world and found.world not in (model.world, *model.observations.config.worlds), other)
        model.check(found, files[0])
        space, steps = model.actions.config.space, model.steps(found)
        near: list[Any] = []
        for batch, given_BTA in model.of_steps(steps):
            there_BT, done_BTA = batch.there_BT.numpy() > 0, batch.inputs.actions_BTA.numpy()
            near.append(NEAR[space](given_BTA, done_BTA)[there_BT])
        value, name = float(np.concatenate(near).mean()), FIGURES[space]
        values = {name: value, "episodes": len(found), "steps": len(steps)}
        return Report(values, [f"{name:<22}  {value:.4f}", f"{len(found):,} episodes, {len(steps):,} steps"])


# Of every step: whether the choice is the same, or the mean squared distance of the numbers.
NEAR = {
    "choices": lambda given_BTA, done_BTA: given_BTA.argmax(-1) == done_BTA.argmax(-1),
    "numbers": lambda given_BTA, done_BTA: np.square(given_BTA - done_BTA).mean(-1),
}
FIGURES = {"choices": "accuracy", "numbers": "mse"}
