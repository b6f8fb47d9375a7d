"""A model of people's preferences: an encoder gives an answer a number, the higher the better it is liked.

Learned from pairs, of which one was chosen: its probability is a softmax over the two numbers (Bradley and Terry 1952).
What comes of it is a model that chooses among texts (`headway predict`), and picks the best of a generator's samples.

B pairs, T length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.batch import Batch, TextInputs, column
from headway.data.batches import BucketedBatches, Ints
from headway.data.conversations import hold_out_begun_alike, read_preferences
from headway.data.labelled import FramedStore
from headway.models.heads import MultipleChoice
from headway.tasks.files import DividedFiles
from headway.tasks.labelling import TextLabelling
from headway.tasks.objective import HeadLoss
from headway.tasks.task import Figure, random_ids
from headway.text.chat import asked_text
from headway.text.framing import Framed
from headway.text.tokenizer import TextOptions


@dataclass(frozen=True)
class RankedAnswers(DividedFiles):
    """JSON lines with a chosen and a rejected answer each (`headway.data.conversations` has the shapes). broken: a line
    that cannot be used is an error, or is left out and told. text: for a vocabulary of its own, where the run starts
    from nothing."""

    name: ClassVar[str] = "ranked-answers"
    wanted: ClassVar[str] = "FILE (.jsonl of prompt, chosen and rejected)"
    broken: Literal["refuse", "skip"] = "refuse"
    text: TextOptions = field(default_factory=lambda: TextOptions(lowercase=True), kw_only=True)


class Answer(NamedTuple):
    """text: what was asked, and an answer."""

    text: tuple[str, str]


@dataclass(frozen=True)
class ChoiceBatch(Batch):
    """Pairs of texts, of which the first was chosen. real_B: 1, and 0 for an empty row."""

    chosen: TextInputs
    rejected: TextInputs
    real_B: Tensor = column()

    @property
    def inputs(self) -> TextInputs:
        """All chosen ones, then all rejected ones."""
        return TextInputs.join([self.chosen.with_lengths(), self.rejected.with_lengths()])

    def counted(self) -> dict[str, float]:
        return dict.fromkeys(("loss", "nll", "accuracy"), float(self.real_B.sum()))


class ChoiceStore(FramedStore[ChoiceBatch]):
    """Chosen and rejected texts in turn."""

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> ChoiceBatch:
        chosen, rejected = (self.inputs(2 * examples + side, lengths[0]) for side in (0, 1))
        return ChoiceBatch(chosen, rejected, torch.ones(len(examples)), examples=tuple(examples.tolist()))

    def batches(
        self, budget: int, seed: int, shuffle: bool = True, full: bool = False, longest: int | None = None
    ) -> BucketedBatches[ChoiceBatch]:
        most = np.maximum(self.lengths[::2], self.lengths[1::2])
        return BucketedBatches(((most, 0),), self.collate, budget // 2, seed, shuffle, full, longest)


class Ranking(TextLabelling):
    """Judged by the share of held-out pairs whose chosen answer has the higher number."""

    name = "ranking"
    data = RankedAnswers
    objectives = (HeadLoss,)
    heads = (MultipleChoice,)
    unit = "pairs"
    what = "answers"
    labels = ("chosen", "rejected")

    def open_parts(self) -> dict[str, list[Answer]]:
        def read(files: list[Any]) -> list[Any]:
            return read_preferences(files, self.run.data.broken, self.log.say)

        return {
            part: [Answer((asked_text(one.prompt), said)) for one in values for said in (one.chosen, one.rejected)]
            for part, values in self.divided(read, hold_out_begun_alike).items()
        }

    def head(self) -> Any:
        return self.run.head

    def store(self, part: str, texts: Sequence[Any], framed: Sequence[Framed]) -> ChoiceStore:
        return ChoiceStore(framed, self.tokenizer.pad or 0)

    def amount(self, texts: Sequence[Any]) -> str:
        return f"{len(texts) // 2:,} pairs of answers"

    def valid_batches(self) -> Iterable[ChoiceBatch]:
        return self.held["valid"].epoch()

    def shown_losses(self, losses: dict[str, float]) -> dict[str, float]:
        return {name: losses[name] for name in ("loss", "accuracy")}

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "accuracy", Figure(losses["accuracy"], True, 4)

    @torch.no_grad()
    def final_figures(self) -> dict[str, Any]:
        if "test" not in self.held:
            return {}
        found = self.mean_losses(self.run.objective.build(self.model).eval(), self.held["test"].epoch())
        return {"test accuracy": round(found["accuracy"], 4)}

    @torch.no_grad()
    def example(self) -> str:
        batch = next(iter(self.valid_batches())).rows(0, 1)
        inputs = batch.inputs.map(lambda t: t.to(self.context.device))
        chosen, rejected = self.model.head.choices(self.model.encode(inputs)).tolist()
        return f"chosen {chosen:+.3f}, rejected {rejected:+.3f}: {self.shown(batch.examples[0], 'valid')}"

    def shown(self, example: int, part: str = "train") -> str:
        return " | ".join(" ".join(text.split())[:80] for text in self.parts[part][2 * example].text)

    def guess(self) -> float:
        return math.log(2)

    @classmethod
    def check(cls, run: Any) -> None:
        """Nothing that the axes do not say."""

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> ChoiceBatch:
        inputs = TextInputs(random_ids(run, size, device))
        half = inputs.rows(0, max(1, len(inputs) // 2))
        return ChoiceBatch(half, half, torch.ones(len(half), device=device))
