"""Reinforcement learning: a policy that learns by acting, from the rewards that its world gives.

R worlds, T steps, B parts of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.batch import Batch, column
from headway.data.batches import permutation
from headway.data.steps import StepInputs, step_inputs
from headway.errors import refuse
from headway.generate.acting import episodes
from headway.generate.rollout import Practice, Rollout
from headway.models.protocols import Terms
from headway.processors.steps import ActionConfig, ObservationConfig
from headway.tasks.files import DataFiles
from headway.tasks.objective import Config, Objective
from headway.tasks.policies import PolicyTask
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Figure
from headway.worlds.catalog import open_world
from headway.worlds.policies import policy_named
from headway.worlds.world import Floats

MEASURED = 1000  # steps of a random policy, by which states are normalised
SHAPED = 8  # rows and steps of a batch are a multiple of it
LEAST = 0.1  # deviation that they are divided by: what hardly changed then may change much later


@dataclass(frozen=True)
class PractisedBatch(Batch):
    """there_BT: 1 for a step, 0 where a row is filled up. log_p_BT: of the action when it was done. gain_BT: how much
    better it was than expected. target_BT: what the state's value should have been."""

    inputs: StepInputs
    there_BT: Tensor = column()
    log_p_BT: Tensor = column()
    gain_BT: Tensor = column()
    target_BT: Tensor = column()

    def counted(self) -> dict[str, float]:
        steps = float(self.there_BT.sum())
        return {"loss": steps, "value": steps, "entropy": steps, "tokens": steps}


class PolicyObjective(Objective):
    """Abstract. The policy's own loss, the squared error of the values, and the entropy, which keeps it trying."""

    def forward(self, batch: PractisedBatch) -> Terms:
        head, config, there_BT = self.model.head, self.config, batch.there_BT
        given_BTA, value_BT = head.both(self.model.encode(batch.inputs))
        log_p_BT = head.out.log_p(given_BTA, batch.inputs.actions_BTA.float())
        loss_BT = self.loss(log_p_BT, batch)
        wrong_BT = (value_BT - batch.target_BT).square() / 2
        return {
            "loss": ((loss_BT * there_BT).sum(), 1.0),
            "value": ((wrong_BT * there_BT).sum(), config.value),
            "entropy": (-(head.out.entropy(given_BTA) * there_BT).sum(), config.entropy),
        }

    def loss(self, log_p_BT: Tensor, batch: PractisedBatch) -> Tensor:
        raise NotImplementedError


@final
class ReinforceObjective(PolicyObjective):
    """−A log p(a | s)"""

    def loss(self, log_p_BT: Tensor, batch: PractisedBatch) -> Tensor:
        return -batch.gain_BT * log_p_BT


@final
class PpoObjective(PolicyObjective):
    """−min(ρA, clip(ρ, 1 − ε, 1 + ε)A), ρ = p(a | s) / p_old(a | s)"""

    def loss(self, log_p_BT: Tensor, batch: PractisedBatch) -> Tensor:
        ratio_BT, clip = (log_p_BT - batch.log_p_BT).exp(), self.config.clip
        near_BT = ratio_BT.clamp(1 - clip, 1 + clip)
        return -torch.minimum(ratio_BT * batch.gain_BT, near_BT * batch.gain_BT)


@dataclass(frozen=True)
class Reinforce(Config):
    """REINFORCE with a baseline (Williams 1992): each rollout is used once. discount: γ. trace: λ of the advantages; 1
    for the whole return. value, entropy: weights."""

    name: ClassVar[str] = "reinforce"
    objective: ClassVar[type[Objective]] = ReinforceObjective
    discount: float = 0.99
    trace: float = 1.0
    value: float = 0.5
    entropy: float = 0.01
    epochs: ClassVar[int] = 1
    parts: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name in ("discount", "trace"):
            value = getattr(self, name)
            refuse(not 0 <= value <= 1, f"objective.{name} must lie between 0 and 1, not {value}")
        for name in ("value", "entropy"):
            value = getattr(self, name)
            refuse(not 0 <= value < float("inf"), f"objective.{name} must be 0 or more, not {value}")


@dataclass(frozen=True)
class Ppo(Reinforce):
    """Proximal policy optimisation (Schulman et al. 2017): each rollout is used `epochs` times, in `parts` batches, and
    no action is made much more or less probable than it was (`clip`: ε)."""

    name: ClassVar[str] = "ppo"
    objective: ClassVar[type[Objective]] = PpoObjective
    trace: float = 0.95
    clip: float = 0.2
    epochs: int = 4  # type: ignore[misc]
    parts: int = 4  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(min(self.epochs, self.parts) < 1, "objective.epochs and objective.parts must be at least 1")
        refuse(not 0 < self.clip < 1, f"objective.clip must lie between 0 and 1, not {self.clip}")


@dataclass(frozen=True)
class WorldOptions(DataFiles):
    """A world to act in. rows: how many of it side by side. rollout: steps of each before the policy learns from them.
    judged: episodes by which weights are chosen; episodes: that the finished policy plays. reward: what rewards are
    multiplied by. A batch counts steps, and is as large as rollouts and `objective.parts` make it."""

    name: ClassVar[str] = "world"
    wanted: ClassVar[str] = "nothing: set data.world"
    world: str = "CartPole-v1"
    rows: int = 8
    rollout: int = 128
    judged: int = 10
    episodes: int = 50
    reward: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rows", "rollout", "judged"):
            refuse(getattr(self, name) < 1, f"data.{name} must be at least 1, not {getattr(self, name)}")
        refuse(self.episodes < 0, f"data.episodes must be 0 or more, not {self.episodes}")
        refuse(not np.isfinite(self.reward) or self.reward <= 0, f"data.reward must be above 0, not {self.reward}")
        refuse(self.train or self.valid or self.test, "a policy that learns by acting reads no files: set data.world")

    @property
    def without_files(self) -> str:
        return f"what happens in {self.rows} worlds {self.world}"

    def parts(self) -> dict[str, tuple[str, ...]]:
        return {}


class Reinforcement(PolicyTask):
    """Judged by the returns of episodes whose first states are the same every time."""

    name = "reinforcement"
    data = WorldOptions
    objectives = (Reinforce, Ppo)
    headline = ("return", True)
    acts = True

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        refuse(context.ranks.count > 1, "a policy that learns by acting is trained by one process")
        data, earlier = run.data, earlier_model(run)
        self.worlds = [open_world(data.world) for _ in range(data.rows)]
        observations, actions = self._configs(earlier)
        configs: dict[str, Any] = {"observations": observations, "actions": actions}
        self.begin_policy({name: config.open(context.out) for name, config in configs.items()}, earlier)
        self.data_names = {"world": data.world}
        self.log.say(f"{data.rows} worlds {data.world}: {observations.summary}, {actions.summary}")
        observe, act = self.processors["observations"], self.processors["actions"]
        self.practice = Practice(
            self.worlds, self.model, observe, act, run.engine.seed, run.objective.discount, data.reward, context.device
        )
        self.rollout: Rollout | None = None
        self._judged: list[Any] = []

    def _configs(self, earlier: Any) -> tuple[ObservationConfig, ActionConfig]:
        """States as a random policy finds them, or as the earlier model reads them."""
        world = self.worlds[0]
        if earlier is not None:
            observations, actions = self.as_before(earlier, world, world.name)
            if observations.world != world.name:
                self.log.say(f"{self.run.init} has learned in {observations.world or 'an unknown world'}")
            return replace(observations, world=world.name), actions
        states: list[Any] = []
        for episode in episodes([world], policy_named("random", world), MEASURED, (0,), most=MEASURED):
            states += episode.states
            if len(states) >= MEASURED:
                break
        found_KS = np.stack(states[:MEASURED]).astype(np.float64)
        mean, std = (tuple(np.round(values, 6).tolist()) for values in (found_KS.mean(0), found_KS.std(0).clip(LEAST)))
        return ObservationConfig(world.states.width, world.name, mean, std), ActionConfig.of(world.actions)

    @property
    def per_rollout(self) -> int:
        """Training steps that one rollout is used for."""
        return int(self.run.objective.epochs * self.run.objective.parts)

    def batch(self, step: int) -> PractisedBatch:
        number, at = divmod(step, self.per_rollout)
        if at == 0 or self.rollout is None:
            self.rollout = self.practice.gather(self.run.data.rollout)
        epoch, part = divmod(at, self.run.objective.parts)
        segments_N3 = self.rollout.segments(self.run.model.max_length)
        order = permutation(len(segments_N3), self.run.engine.seed, number, epoch, 5)
        return self._of(segments_N3[np.array_split(order, self.run.objective.parts)[part]])

    def _of(self, segments_B3: Any) -> PractisedBatch:
        """These parts of the rollout, side by side."""
        rollout, objective = self.rollout, self.run.objective
        assert rollout is not None
        gains_RT, targets_RT = _worth(rollout, objective.discount, objective.trace)
        rows_B1, starts_B1, lengths_B1 = (segments_B3[:, [at]] for at in range(3))
        steps_T = np.arange(_even(int(lengths_B1.max(initial=1))))
        there_BT = steps_T < lengths_B1
        at_BT = np.where(there_BT, starts_B1 + steps_T, starts_B1)
        inputs = step_inputs(
            rollout.states_RTS[rows_B1, at_BT], rollout.actions_RTA[rows_B1, at_BT],
            np.zeros(at_BT.shape, np.float32), rollout.times_RT[rows_B1, at_BT],
            rollout.memory_RTM[rows_B1[:, 0], starts_B1[:, 0]],
        )  # fmt: skip
        others = (there_BT, rollout.log_p_RT[rows_B1, at_BT], gains_RT[rows_B1, at_BT], targets_RT[rows_B1, at_BT])
        batch = PractisedBatch(inputs, *(torch.from_numpy(one.astype(np.float32)) for one in others))
        return batch.pad(_even(len(batch)))

    def carried(self) -> dict[str, Tensor]:
        kept = {f"practice.{name}": tensor for name, tensor in self.practice.carried().items()}
        if self.rollout is not None:
            kept |= {f"rollout.{name}": tensor for name, tensor in self.rollout.tensors().items()}
        return kept

    def resume(self, carried: dict[str, Tensor]) -> None:
        def of(kind: str) -> dict[str, Tensor]:
            return {name.removeprefix(kind): tensor for name, tensor in carried.items() if name.startswith(kind)}

        self.practice.resume(of("practice."))
        self.rollout = Rollout.of(rolled) if (rolled := of("rollout.")) else None

    # Judged by acting.

    def valid_losses(self, objective: Any) -> dict[str, float]:
        found = self.scores(self.run.data.judged, 0)
        return {"loss": -found["return"]} | found

    def scores(self, count: int, seed: int) -> dict[str, float]:
        """What the present weights reach in other worlds than those they practise in."""
        while len(self._judged) < min(count, self.run.data.judged):
            self._judged.append(open_world(self.run.data.world))
        return self.reached(self.actor().policy(), self._judged, count, seed)

    def shown_losses(self, losses: dict[str, float]) -> dict[str, float]:
        return {name: losses[name] for name in ("loss", "success") if name in losses}

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "return", Figure(losses["return"], True, 2)

    def final_figures(self) -> dict[str, Any]:
        if not self.run.data.episodes:
            return {}
        found = self.scores(self.run.data.episodes, 1)
        steps = self.practice.steps * self.run.data.rows
        figures = {f"test {name}": round(value, 4) for name, value in found.items()}
        return figures | {"world steps": steps}

    def epochs(self, steps: int) -> float:
        return 0.0

    @classmethod
    def check(cls, run: Any) -> None:
        refuse(not run.model.practises, f"a {run.model.name} learns from episodes that were collected: it does not act "
               "while it learns")  # fmt: skip

    @classmethod
    def tokens_a_step(cls, run: Any) -> int:
        return max(1, int(run.data.rows * run.data.rollout // run.objective.parts))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> PractisedBatch:
        rows, window = max(1, cls.tokens_a_step(run) // run.model.max_length), run.model.max_length
        states, actions = cls.sizes(run)
        zero_BT = torch.zeros(rows, window, device=device)
        inputs = StepInputs(
            states_BTS=torch.zeros(rows, window, states, device=device), times_BT=zero_BT.long(), returns_BT=zero_BT,
            actions_BTA=F.one_hot(zero_BT.long(), actions).float(),
        )  # fmt: skip
        return PractisedBatch(inputs, zero_BT + 1, zero_BT, zero_BT, zero_BT)


@lru_cache(maxsize=1)
def _worth(rollout: Rollout, discount: float, trace: float) -> tuple[Floats, Floats]:
    """Advantages of mean 0 and deviation 1, and what the values should have been; once for all batches of a rollout."""
    gains_RT, targets_RT = rollout.advantages(discount, trace)
    return (gains_RT - gains_RT.mean()) / (gains_RT.std() + 1e-8), targets_RT


def _even(count: int) -> int:
    """So many or a few more: kernels are made anew for every shape of a batch."""
    return -(-count // SHAPED) * SHAPED
