"""The protocol of a task: what is learned from what, how it is evaluated, and how a trained model answers.

A task is chosen by the run's data. Training (`headway.train`) calls the methods below and nothing else of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headway.batch import Batch, sampled
from headway.card import Card, Loaded
from headway.errors import InputError, refuse
from headway.folder import text_card, with_tokenizers, write_model
from headway.plain import to_plain
from headway.tasks.start import RunContext, first_model

CHARACTERS = 128  # different characters that a text is assumed to have
LENGTH = 24  # of the texts that an estimate is made with


@dataclass(frozen=True)
class Figure:
    """A score as it is shown: its value, in which direction it is better, and its digits."""

    value: float
    higher_is_better: bool = False
    digits: int = 4

    @property
    def score(self) -> float:
        """Higher is better."""
        return self.value if self.higher_is_better else -self.value

    def __str__(self) -> str:
        return f"{self.value:.{self.digits}f}"


@dataclass(frozen=True)
class Report:
    """What an evaluation found: values for a program, lines for a reader."""

    values: dict[str, Any]
    lines: list[str]


@dataclass(frozen=True)
class Prediction:
    """An answer: a line for a reader, values for a program; where it was asked for, the input with the answer drawn
    onto it (Pillow's image)."""

    line: str
    values: dict[str, Any]
    drawn: Any = None


class Task:
    """Abstract. An instance is a run with its data and its model, ready to train; the class methods serve any model of
    the task.

    data: the config in a run that chooses it. objectives: configs of what may be minimised. roles, takes: what a family
    must be, and the processors that it must take. heads: configs that it trains, beside those that name it. headline:
    the figure that tables show, and whether higher is better. unit: what a batch's `tokens` counts, in the plural.
    at_once: of a run that is learned in one pass, the scores that say how much it read, and in how many seconds.
    verb: the command that asks a finished model; verbs: others that it answers too. opens: makes a trained model ready
    to answer, from what was loaded, a device and a dtype; fast: the same on CTranslate2, from a folder, for `predict`.
    acts: its batches are of what the present weights do, so that none is made ahead of its step.
    data_names: what a run learns from, by content: it must not change between a checkpoint and its resumption.
    """

    name: ClassVar[str]
    data: ClassVar[Any] = None
    objectives: ClassVar[tuple[Any, ...]] = ()
    roles: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ("text",)
    heads: ClassVar[tuple[Any, ...]] = ()
    headline: ClassVar[tuple[str, bool]] = ("loss", False)
    unit: ClassVar[str] = "tokens"
    at_once: ClassVar[tuple[str, str]] = ("tokens counted", "counting seconds")
    verb: ClassVar[str]
    verbs: ClassVar[tuple[str, ...]] = ()
    opens: ClassVar[Callable[..., Any]]
    fast: ClassVar[Callable[..., Any] | None] = None
    acts: ClassVar[bool] = False

    model: Any
    batches: Any  # of the training data: `batch(step)`
    valid: Any  # batches of the validation data
    card: Card
    processors: dict[str, Any]
    share: float = 1.0  # of the validation and test data that is scored: less where a run has too little time

    def __init__(self, run: Any, context: RunContext) -> None:
        """Find the data, learn vocabularies where there are none, build the model."""
        self.run, self.context, self.log = run, context, context.log
        self.data_names: dict[str, str] = {}

    def begin(self, tokenizers: Sequence[Any], earlier: Loaded | None, **more: Any) -> None:
        """The first model of texts with these tokenizers, its card and its processors. `earlier`: the model that it
        starts from; `more`: further fields of `text_card`."""
        run, before = self.run, earlier.card if earlier else None
        sizes = before.sizes[: len(self.takes)] if before else tuple(map(len, tokenizers))
        if not run.objective.one_pass:
            self.model = first_model(run, self.context, sizes, tokenizers, more.get("head"), earlier)
        self.card = text_card(
            run.model.name, run.model, sizes, before.text if before else run.data.text,
            foreign=tokenizers[0].kind == "foreign", run=to_plain(run), **more,
        )  # fmt: skip
        if before is not None:  # a chat template that the model was tuned with stays
            kept = {name: config.chat for name, config in before.processors.items() if name in self.card.processors}
            for name, chat in kept.items():
                self.card.processors[name] = replace(self.card.processors[name], chat=chat)
        self.processors = with_tokenizers(self.card, *tokenizers)

    # Called by training.

    def batch(self, step: int) -> Batch:
        """The batch of any step, counted from 0: a function of data, seed and step alone."""
        batch: Batch = self.batches.batch(step)
        return batch

    def carried(self) -> dict[str, Tensor]:
        """What must be saved between steps beside weights (worlds, what was done in them), by name."""
        return {}

    def resume(self, carried: dict[str, Tensor]) -> None:
        """Take over what `carried` gave."""

    def valid_batches(self) -> Iterable[Batch]:
        found: Iterable[Batch] = self.valid.epoch()
        return found

    def valid_losses(self, objective: nn.Module) -> dict[str, float]:
        """The mean of every loss term over the validation data."""
        return self.mean_losses(objective, self.valid_batches())

    def mean_losses(self, objective: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """The mean of every loss term over these batches, or over some of them where a run has little time."""
        sums: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for batch in sampled(batches, self.share):
            for name, (value, _) in objective(batch.map(lambda tensor: tensor.to(self.context.device))).items():
                sums[name] += float(value)  # type: ignore[assignment]
                counts[name] += float(batch.counts[name])  # type: ignore[assignment]
        return {name: value / counts[name] for name, value in sums.items()}

    def shown_losses(self, losses: dict[str, float]) -> dict[str, float]:
        """What a validation logs of the means."""
        return {"loss": losses["loss"]}

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        """The figure by which weights are chosen, of the weights as they are. `losses`: `valid_losses` of them."""
        return "loss", Figure(losses["loss"])

    def final_figures(self) -> dict[str, Any]:
        """More figures of the chosen weights, on the validation data and, once, on the test data."""
        return {}

    def learn_at_once(self) -> dict[str, Any]:
        """Find the weights in one pass over the data, for objectives that need no steps; returns what there is to
        report."""
        raise NotImplementedError

    def write(self, folder: Path, weights: dict[str, Tensor], scores: dict[str, Any]) -> None:
        """The trained model with its scores as a model folder."""
        self.card.score = scores
        write_model(folder, weights, self.card, self.processors)

    def example(self) -> str:
        """What the present weights make of an example of the validation data, as a line; the same one each time."""
        return ""

    def shown(self, example: int) -> str:
        """An example as a line that names it."""
        return ""

    def epochs(self, steps: int) -> float:
        """How often these steps go through the training data."""
        return float(steps / self.batches.per_epoch)

    def guess(self) -> float:
        """The nll of a model that has only learned how frequent each label is."""
        return float("inf")

    # Called for any model of the task, without a run.

    @classmethod
    def check(cls, run: Any) -> None:
        """Refuse a run whose settings contradict each other."""

    @classmethod
    def headline_of(cls, run: Any) -> tuple[str, bool]:
        """`headline` of this run, where its settings decide it."""
        return cls.headline

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> Batch:
        """A batch of random values as large as the run's, for an estimate of its time."""
        raise NotImplementedError

    @classmethod
    def tokens_a_step(cls, run: Any) -> int:
        return int(run.engine.batch)

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        """The sizes of the processors: of text the most entries that a vocabulary may have; `likely`: of characters as
        many as a text usually has."""
        text = run.data.text
        size = min(text.size, CHARACTERS) if likely and text.kind == "char" else text.size
        return (size,) * len(cls.takes)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        """The data of one recipe among several that are compared: prepared as `like`, the data of the first of them,
        where that is given, and with a part held out for a last test."""
        return data if like is None else replace(data, text=like.text)

    @classmethod
    def remarks(cls, data: dict[str, Any], runs: dict[str, Any], figures: dict[str, float]) -> list[str]:
        """What a comparison says below its table. data: of each part the event that tells how much it has; figures: of
        each run, the mean over its seeds."""
        return []

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """The values that a command line names: files, or texts. `lines`: the lines of both (`headway.cli.texts`);
        columns: of a table, where the task reads one."""
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(len(inputs) > 1, f"give one file with a text a line, not {len(inputs)}: join them, or use --text")
        return list(lines(texts, inputs[0] if inputs else None))

    @classmethod
    def answer(cls, model: Any, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        """What an opened model answers to each value, in order. `options`: those that were given."""
        raise InputError(f"a model for {cls.name} answers `headway {cls.verb} MODEL`")

    @classmethod
    def evaluate(cls, model: Any, files: Sequence[str], options: dict[str, Any]) -> Report:
        """The task's figures of an opened model on other data. `options`: those that were given."""
        raise InputError(f"there are no figures for the task '{cls.name}' yet: headway {cls.verb} MODEL asks the model")


def entropy(counts: npt.NDArray[np.int64]) -> float:
    """−Σ p log p: the mean loss, per token, of knowing nothing but how frequent each is."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def with_perplexity(task: Task, losses: dict[str, float]) -> dict[str, float]:
    """`shown_losses` of a task that predicts tokens."""
    return {"loss": losses["loss"], "perplexity": math.exp(min(losses["nll"], 700))}


def random_ids(run: Any, size: int, device: torch.device, length: int = LENGTH) -> Tensor:
    """(B, T): as many tokens as a batch of the run has."""
    return torch.randint(4, size, (max(1, run.engine.batch // length), length), device=device)


def refuse_unknown(options: dict[str, Any], known: Collection[str], what: str) -> None:
    """Refuse an option that has no meaning here. `what`: a phrase for what is evaluated."""
    for name in options:
        refuse(name not in known, f"--{name.replace('_', '-')} has no meaning for {what}")
