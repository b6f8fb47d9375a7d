"""Train a module of one's own on one's own batches with headway's loop: checkpoints that resume exactly, logs, several
processes, captured steps. Nothing of it has to be registered anywhere."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from safetensors.torch import save_file
from torch import Tensor, nn

from headway.atomic import replaced_folder
from headway.batch import Batch
from headway.errors import InputError
from headway.folder import FORMAT, WEIGHTS
from headway.models.protocols import Terms
from headway.plain import change, finite, to_plain
from headway.tasks.objective import Config, Objective
from headway.tasks.start import RunContext
from headway.tasks.task import Figure, Task
from headway.train.job import Outcome, train
from headway.train.log import Log
from headway.train.optimiser import AdamW, Optimiser
from headway.train.run import Engine, Validation
from headway.train.schedule import Cosine, Schedule
from headway.train.sealed import sealed_steps

Loss = Callable[[Any, Any], Terms]  # the model and a batch → named sums with their weights
Score = Callable[[Any], float]


@dataclass(frozen=True)
class OwnRun:
    """What `run.json` holds: the settings of the loop. Module, data and loss are the caller's code."""

    recipe: str = "own"
    optimiser: Optimiser = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=lambda: Cosine(peak=1e-3, warmup=100))
    validation: Validation = field(default_factory=lambda: Validation(every=100, score_every=100))
    engine: Engine = field(default_factory=lambda: Engine(steps=1000, average=0, checkpoint=100, log=20))

    task: ClassVar[Any]
    objective: ClassVar[Any]


class OwnObjective(Objective):
    def forward(self, batch: Batch) -> Terms:
        terms: Terms = self.config.loss(self.model, batch)
        return terms


@dataclass(frozen=True)
class OwnLoss(Config):
    objective: ClassVar[type[Objective]] = OwnObjective
    loss: Loss


class OwnTask(Task):
    """The caller's module, batches and score as the loop knows them."""

    name = "own"
    verb = "plot"

    def __init__(
        self, run: Any, context: RunContext, model: nn.Module, batch: Callable[[int], Batch],
        valid: Callable[[], Iterable[Batch]], score: Score | None,
    ) -> None:  # fmt: skip
        super().__init__(run, context)
        self.model, self.score = model.to(context.device, context.dtype), score
        self.batches, self.valid = SimpleNamespace(batch=batch, per_epoch=math.inf), SimpleNamespace(epoch=valid)

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return super().judge(losses) if self.score is None else ("score", Figure(self.score(self.model), True))

    def write(self, folder: Path, weights: dict[str, Tensor], scores: dict[str, Any]) -> None:
        with replaced_folder(folder) as place:
            save_file(weights, place / WEIGHTS)
            facts = {"format": FORMAT, "family": self.name, "score": scores, "run": to_plain(self.run)}
            (place / "headway.json").write_text(json.dumps(finite(facts), indent=1) + "\n", encoding="utf-8")


def fit(
    model: nn.Module, loss: Loss, batch: Callable[[int], Batch], valid: Callable[[], Iterable[Batch]], out: str | Path,
    *, score: Score | None = None, settings: Iterable[str] = (), quiet: bool = False,
) -> Outcome:  # fmt: skip
    """Train `model`, or resume the training in the folder `out`, and leave its best weights in it.

    loss(model, batch): each loss term as (sum over the batch, weight); `loss` is one of them, and the batch counts it.
    batch(step): the training batch of any step, a function of the step alone, so that a resumed run gets the same.
    valid(): the validation batches. score(model): a figure by which the best weights are chosen, higher is better
    (without it, the validation loss). settings: as after `--set`, for example "engine.steps=500", "schedule.peak=1e-3".
    """

    def opened(run: Any, context: RunContext) -> OwnTask:
        return OwnTask(run, context, model, batch, valid, score)

    run: Any = change(OwnRun(), list(settings))
    for name, value in (("task", opened), ("objective", OwnLoss(loss))):
        object.__setattr__(run, name, value)
    if "loss" not in next(iter(valid())).counts:
        raise InputError("a batch must count the term `loss`: give its class a method `counted`")
    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    resume = bool(sealed_steps(place / "checkpoints"))
    first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts
    with closing(Log(place if first else None, run.engine.tensorboard, quiet=quiet)) as log:
        return train(run, place, log, resume=resume)
