"""Classification: a label of each text, or pair of texts, by an encoder with a head for labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from headway.batch import TextInputs
from headway.data.labelled import LabelBatch, Labelled, LabelStore, hold_out_labelled, labels_in, read_labelled
from headway.errors import InputError, nearest
from headway.generate.encoder import Encoder
from headway.tasks.encoding import answered, pair_of
from headway.tasks.files import DividedFiles
from headway.tasks.labelling import TextLabelling
from headway.tasks.task import entropy, random_ids
from headway.text.framing import Framed
from headway.text.tokenizer import TextOptions


@dataclass(frozen=True)
class LabelledText(DividedFiles):
    """Texts, or pairs of them, with a label each: files (.jsonl, .tsv, or label and text with a space between them), or
    names of a data set that headway knows.

    Without `valid`, the share `hold_out` of the training texts is. names: what the labels of the data, in their order,
    are called (none: as they are written there). text: for a vocabulary of its own, where the run starts from nothing.
    """

    name: ClassVar[str] = "labelled-text"
    wanted: ClassVar[str] = "FILE (.jsonl, .tsv, or a label and a text a line)"
    names: tuple[str, ...] = ()
    text: TextOptions = field(default_factory=lambda: TextOptions(lowercase=True))


class Classification(TextLabelling):
    """Judged by the labels that it gives to held-out texts."""

    name = "classification"
    data = LabelledText
    options = ("pairs", "all", "truncate")

    def open_parts(self) -> dict[str, list[Labelled]]:
        parts = self.divided(_read, hold_out_labelled)
        self.written = labels_in(parts["train"])
        self.labels = self.called(self.written)
        return parts

    def store(self, part: str, texts: Sequence[Labelled], framed: Sequence[Framed]) -> LabelStore:
        number_of = {label: number for number, label in enumerate(self.written)}
        if strange := sorted({text.label for text in texts} - number_of.keys()):
            found = strange[0]
            raise InputError(f"{part}: no training text has the label '{found}'{nearest(found, self.written)}")
        return LabelStore(framed, [number_of[text.label] for text in texts], self.tokenizer.pad or 0)

    def example(self) -> str:
        batch = next(self.held["valid"].epoch()).rows(0, 1)
        given = int(self.model(batch.inputs.map(lambda t: t.to(self.context.device))).argmax(-1))
        text = self.shown(batch.examples[0], "valid")
        return f"{self.labels[given]} (wanted: {self.labels[int(batch.labels_B[0])]}): {text}"

    def shown(self, example: int, part: str = "train") -> str:
        text = self.parts[part][example].text
        return text if isinstance(text, str) else " | ".join(text)

    def guess(self) -> float:
        return entropy(np.bincount(self.stores["train"].labels))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> LabelBatch:
        ids = random_ids(run, size, device)
        return LabelBatch(TextInputs(ids).with_lengths(), torch.ones_like(ids[:, 0]))

    @classmethod
    def guesses(cls, model: Encoder, values: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        given = [pair_of(value, number) for number, value in enumerate(values, 1)] if "pairs" in options else values
        return answered(given, lambda texts: model.classify(texts, truncate="truncate" in options))

    @classmethod
    def labelled(cls, model: Encoder, files: Sequence[str]) -> tuple[Sequence[str], Sequence[str], list[Any]]:
        """Cut where they are longer than the model takes, as they were when it learned."""
        texts = read_labelled(list(files))
        guesses = model.classify([text.text for text in texts], truncate=True)
        return [f"text {number}" for number in range(1, len(texts) + 1)], [text.label for text in texts], guesses


def _read(files: list[Any]) -> list[Labelled]:
    if not (texts := read_labelled(files)):
        raise InputError(f"{', '.join(map(str, files))}: there is no text in it")
    return texts
