"""A run: one frozen value of plain fields with every setting of a training, written as `run.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headway.atomic import replaced
from headway.errors import InputError, refuse
from headway.generate.search import Search
from headway.models import FAMILIES, ModelConfig, configs, format_1
from headway.models.heads import HEADS, HeadConfig
from headway.outside import read_object
from headway.plain import differences, from_plain, to_plain
from headway.tasks import BY_DATA, Data, Objective
from headway.tasks.objective import CrossEntropy
from headway.tasks.task import Task
from headway.train.adapters import Lora
from headway.train.optimiser import Adam, Optimiser
from headway.train.parametrisation import Parametrisation, Standard
from headway.train.schedule import InverseRoot, Schedule


@dataclass(frozen=True)
class Validation:
    """When and how a run is validated.

    Every `every` steps the loss; every `score_every` steps BLEU with the run's own search, over `sentences`
    of them (0: all). `patience` stops after that many scores without a better one (0: never).
    """

    every: int = 1000
    score_every: int = 2000
    sentences: int = 0
    patience: int = 0
    tokenize: str = "13a"


@dataclass(frozen=True)
class Engine:
    """How a run is carried out.

    batch: tokens of a global batch on its longer side, padding counted; `accumulate` cuts it into that many parts.
    seconds: the run ends after so many of training and validation, wherever it then is; schedules that come down by the
    last step come down by then (0: never).
    average: the model is the mean of the last so many snapshots, taken every `snapshot` steps (0 or 1: no mean).
    speed: `plain` launches kernels one by one; `graphs` captures the step for each shape of batch as a CUDA graph
    (no compile time: best for small models and short runs); `compile` captures what torch.compile made of it (a
    minute or more at the start, best for large ones); `auto` chooses by device, size and steps.
    dtype: `tf32` is float32 with products in TensorFloat-32 (GPU only); `bfloat16` keeps float32 masters.
    checkpoint: every so many steps all that is needed to resume is written in the background; the last
    `keep` stay, and every one whose step is a multiple of `keep_every` (0: none).
    skips, astray: a batch whose loss or gradient is not finite is skipped, `skips` in a row end the run; so do
    `astray` consecutive log lines whose loss has diverged (defined in `Health`; 0: never).
    parallel: how several processes (torchrun) share the work: `ddp` (each has all weights), `fsdp` (each has its
    rows of them). frozen: weights that stay as they are, by the beginning of their names (`embed`, `encoder.layers.0`)
    or a pattern (`encoder.layers.[0-3].*`). last_layers: only the last so many layers and what stands on them (a head)
    are trained. rates: what the rate of some weights is multiplied by, named as in `frozen`. layer_decay: the rate of
    each layer is that of the one above it times this; the head has the whole rate.
    parametrisation: `mup` keeps the rate that was chosen for a model of one width for models of all widths.
    adapters: `lora` trains a few new weights beside the frozen linear maps of the layers; the model that is written has
    them merged.
    recompute: blocks compute their activations again for the gradient (less memory).
    deterministic: only algorithms that give the same bits each time (a GPU is slower then).
    workers: threads that prepare batches.
    """

    steps: int = 10_000
    seconds: float = 0.0
    batch: int = 4096
    accumulate: int = 1
    clip: float = 0.0
    seed: int = 1
    device: str = "auto"
    dtype: Literal["auto", "float32", "tf32", "bfloat16", "float64"] = "auto"
    speed: Literal["auto", "plain", "compile", "graphs"] = "auto"
    average: int = 10
    snapshot: int = 500
    checkpoint: int = 500
    keep: int = 2
    keep_every: int = 0
    skips: int = 20
    astray: int = 10
    parallel: Literal["ddp", "fsdp"] = "ddp"
    frozen: tuple[str, ...] = ()
    last_layers: int | None = None
    rates: dict[str, float] = field(default_factory=dict)
    layer_decay: float = 1.0
    parametrisation: Parametrisation = field(default_factory=Standard)
    adapters: Lora | None = None
    recompute: bool = False
    deterministic: bool = False
    workers: int = 1
    log: int = 50
    tensorboard: bool = False


# The ranges of numbers, where a run has them; NaN is in none.
RANGES: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
    "at least 1": (
        lambda value: value >= 1,
        ("engine.steps", "engine.batch", "engine.log", "engine.accumulate", "engine.snapshot", "engine.checkpoint",
         "engine.keep", "engine.workers", "validation.every", "validation.score_every", "schedule.every",
         "model.encoder_layers", "model.decoder_layers", "model.layers", "model.width", "model.heads",
         "model.max_length", "model.order", "engine.adapters.rank"),
    ),
    "at most 10**12": (
        lambda value: not value > 10**12,
        ("engine.steps", "engine.batch", "engine.accumulate", "engine.seconds", "engine.average", "engine.keep",
         "schedule.warmup", "schedule.hold", "schedule.every", "validation.every", "validation.patience"),
    ),
    "at most 1024": (lambda value: not value > 1024, ("engine.workers",)),
    "above 0": (lambda value: 0 < value < math.inf, ("schedule.factor", "optimiser.epsilon", "engine.layer_decay",
                                                "engine.adapters.alpha")),
    "0 or more": (
        lambda value: 0 <= value < math.inf,
        ("schedule.peak", "schedule.warmup", "schedule.hold", "optimiser.decay", "optimiser.wait", "objective.weight",
         "objective.activation", "objective.change", "engine.clip", "engine.seconds", "engine.average", "engine.skips",
         "engine.astray", "engine.keep_every", "engine.last_layers", "validation.patience", "model.inner",
         "model.shared_heads"),
    ),
    "0 or more and below 2**63": (lambda value: 0 <= value < 2**63, ("engine.seed",)),
    "between 0 and 1": (lambda value: 0 <= value <= 1, ("schedule.floor",)),
    "at least 0 and below 1": (
        lambda value: 0 <= value < 1,
        ("objective.smoothing", "optimiser.beta1", "optimiser.beta2", "model.dropout", "model.attention_dropout",
         "model.word_dropout", "model.feed_forward.dropout"),
    ),
}  # fmt: skip


# Settings that may change when a run is resumed.
FREE = (
    "schedule", "validation", "search", "engine.steps", "engine.seconds", "engine.accumulate", "engine.clip",
    "engine.device", "engine.speed", "engine.average", "engine.snapshot", "engine.checkpoint", "engine.keep",
    "engine.keep_every", "engine.skips", "engine.astray", "engine.parallel", "engine.recompute", "engine.deterministic",
    "engine.workers", "engine.log", "engine.tensorboard",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """`init` names the model whose weights and vocabulary it starts from, or a file of word vectors. `head`: what an
    encoder is trained with."""

    recipe: str
    data: Data
    model: ModelConfig
    objective: Objective = field(default_factory=CrossEntropy)
    optimiser: Optimiser = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=InverseRoot)
    search: Search = field(default_factory=Search)
    validation: Validation = field(default_factory=Validation)
    engine: Engine = field(default_factory=Engine)
    init: str = ""
    head: HeadConfig | None = None

    @property
    def task(self) -> type[Task]:
        return BY_DATA[self.data.name]

    @property
    def max_length(self) -> int:
        """Tokens that the model is given at once; 0 for one that is not trained in steps."""
        return configs.window(self.model)

    def __post_init__(self) -> None:
        for expected, (allowed, keys) in RANGES.items():
            for key in keys:
                found: object = self
                for name in key.split("."):
                    found = getattr(found, name, None)
                refuse(isinstance(found, int | float) and not allowed(found), f"{key} must be {expected}, not {found}")
        configs.check(self.model)
        # Two tokenizers of a model from elsewhere may number their tokens alike.
        if configs.shares_table(self.model) and not self.data.text.joint and not self.init:
            raise InputError(f"model.embeddings={self.model.embeddings} needs one vocabulary: "
                             "set data.text.joint=true, or model.embeddings=tied")  # fmt: skip
        self._check_axes()
        self.task.check(self)

    def _check_axes(self) -> None:
        """Family, data, objective and head must fit together."""
        family, task, objective = FAMILIES[self.model.name], self.task, self.objective
        model, data = self.model.name, self.data.name
        if family.role not in task.roles or family.takes != task.takes:
            raise InputError(f"a model of the family '{model}' does not learn from {data}")
        if type(objective) not in task.objectives or objective.learns != family.learns:
            known = [kind.name for kind in task.objectives if kind.learns == family.learns]
            raise InputError(
                f"objective={objective.name} is not for a model of the family '{model}' that learns from {data}: "
                f"set objective={' or '.join(known)}"
            )
        wanted = [head.name for head in HEADS.values() if head.task == task.name or head in task.heads]
        if family.role == "encodes" and (self.head is None or self.head.name not in wanted):
            raise InputError(f"an encoder that learns from {data} needs a head: set head={' or '.join(wanted)}")
        if family.role != "encodes" and self.head is not None:
            raise InputError(f"a head stands on an encoder, not on a model of the family '{model}'")


def refused_changes(old: Run, new: Run) -> list[str]:
    """`key: old → new` for each difference with which a run cannot be resumed."""
    free = tuple(f"{key}{end}" for key in FREE for end in ".:")
    return [line for line in differences(old, new) if not line.startswith(free)]


def run_from(facts: Any) -> Run:
    """The run that run.json, or a model's card, has; of an earlier version too."""
    found: Run = from_plain(Run, format_1.run_of(facts))
    return found


def read_run(path: Path) -> Run:
    try:
        return run_from(read_object(path, "it is the file of a run"))
    except InputError as error:
        raise InputError(f"{path} cannot be read as a run: {error}") from error


def write_run(run: Run, path: Path) -> None:
    """Write run.json, by an atomic rename."""
    with replaced(path) as new:
        new.write_text(json.dumps(to_plain(run), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
