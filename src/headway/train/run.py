"""A run: one frozen value of plain fields that says everything about a training, written as `run.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headway.errors import InputError
from headway.evaluate.bleu import check_tokenizer
from headway.generate.search import Search
from headway.models.transformer import TransformerConfig
from headway.plain import from_plain, to_plain
from headway.text.tokenizer import TextOptions
from headway.train.objective import CrossEntropy, Objective
from headway.train.optimiser import Adam, Optimiser
from headway.train.schedule import InverseRoot, Schedule


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs: files of one's own, or names of a data set that headway knows.

    Without `valid`, about `hold_out` training pairs are held out for it and as many for `test`, chosen by a hash
    of the source, so that no held-out sentence is ever trained on.
    """

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    source: str = "source"
    target: str = "target"
    hold_out: int = 1000
    text: TextOptions = field(default_factory=TextOptions)


@dataclass(frozen=True)
class Validation:
    """When and how a run is judged on the validation pairs.

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

    batch: tokens of a global batch on its longer side, padding counted; `accumulate` cuts it into that many pieces.
    average: the model is the mean of the last so many snapshots, taken every `snapshot` steps (0 or 1: no mean).
    speed: `plain` launches kernels one by one; `graphs` captures the step for each shape of batch as a CUDA graph
    (no compile time: best for small models); `compile` captures what torch.compile made of it (a minute or more
    at the start, best for large ones); `auto` chooses by device and size.
    """

    steps: int = 10_000
    batch: int = 4096
    accumulate: int = 1
    clip: float = 0.0
    seed: int = 1
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    speed: Literal["auto", "plain", "compile", "graphs"] = "auto"
    average: int = 10
    snapshot: int = 500
    log: int = 50
    tensorboard: bool = False


COUNTS = {
    "engine": ("steps", "batch", "log", "accumulate", "snapshot"),
    "validation": ("every", "score_every"),
    "model": ("encoder_layers", "decoder_layers", "width", "inner", "heads", "max_length"),
}


@dataclass(frozen=True)
class Run:
    """`init` names the model whose weights and vocabulary it goes on from."""

    recipe: str
    data: ParallelText
    model: TransformerConfig
    objective: Objective = field(default_factory=CrossEntropy)
    optimiser: Optimiser = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=InverseRoot)
    search: Search = field(default_factory=Search)
    validation: Validation = field(default_factory=Validation)
    engine: Engine = field(default_factory=Engine)
    init: str = ""

    def __post_init__(self) -> None:
        for part, names in COUNTS.items():
            for name in names:
                value = getattr(getattr(self, part), name)
                if value < 1:
                    raise InputError(f"{part}.{name} must be at least 1, not {value}")
        for name in ("dropout", "attention_dropout"):
            value = getattr(self.model, name)
            if not 0 <= value < 1:
                raise InputError(f"model.{name} must be at least 0 and below 1, not {value}")
        check_tokenizer(self.validation.tokenize)
        if self.model.width % self.model.heads:
            raise InputError(f"model.width {self.model.width} is not a multiple of model.heads {self.model.heads}")
        if self.model.embeddings == "shared" and not self.data.text.joint:
            raise InputError("model.embeddings=shared needs one vocabulary: set data.text.joint=true, "
                             "or model.embeddings=tied")  # fmt: skip


def read_run(path: Path) -> Run:
    try:
        return from_plain(Run, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, InputError) as error:
        raise InputError(f"{path} cannot be read as a run: {error}") from error


def write_run(run: Run, path: Path) -> None:
    path.write_text(json.dumps(to_plain(run), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
