"""Classification: a label of each text, or pair of texts, by an encoder with a head for labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from headway.batch import TextInputs
from headway.data.columns import Columns
from headway.data.labelled import (
    LabelBatch,
    Labelled,
    LabelStore,
    hold_out_labelled,
    is_table,
    labels_in,
    read_labelled,
    read_texts,
)
from headway.data.readers import UTF8, bare_suffix
from headway.errors import InputError, Notice, nearest, refuse
from headway.generate.encoder import Encoder
from headway.tasks.encoding import answered, pair_of
from headway.tasks.files import DividedFiles
from headway.tasks.labelling import TextLabelling, numbers
from headway.tasks.task import entropy, random_ids
from headway.text.framing import Framed
from headway.text.tokenizer import TextOptions

COLUMN_OPTIONS = ("text_column", "label_column")


@dataclass(frozen=True)
class LabelledText(DividedFiles):
    """Texts, or pairs of them, with a label each: files (.csv, .tsv, .jsonl, or label and text with a space between
    them), or names of a data set that headway knows.

    Without `valid`, the share `hold_out` of the training texts is. names: what the labels of the data, in their order,
    are called (none: as they are written there). text: for a vocabulary of its own, where the run starts from nothing.
    text_column, label_column: names or numbers (from 1 on) of columns, two texts for pairs; where they are not given,
    `headway.data.columns` finds them. encoding: of lines of a label and a text.
    """

    name: ClassVar[str] = "labelled-text"
    wanted: ClassVar[str] = "FILE (.csv, .tsv, .jsonl, or a label and a text a line)"
    names: tuple[str, ...] = ()
    text: TextOptions = field(default_factory=lambda: TextOptions(lowercase=True))
    text_column: tuple[str, ...] = ()
    label_column: str = ""
    encoding: Literal["utf-8", "latin-1"] = "utf-8"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            len(self.text_column) > 2, f"--text-column takes one column, or two for pairs, not {len(self.text_column)}"
        )

    @property
    def columns(self) -> Columns:
        return Columns(self.text_column, self.label_column)


class Classification(TextLabelling):
    """Judged by the labels that it gives to held-out texts."""

    name = "classification"
    data = LabelledText
    options = ("pairs", "all", "truncate")
    evaluation_options = COLUMN_OPTIONS

    def open_parts(self) -> dict[str, list[Labelled]]:
        self.written: tuple[str, ...] = ()
        return self.divided(self._read, hold_out_labelled)

    def _read(self, files: list[Any]) -> list[Labelled]:
        """Of the training texts first: where the labels are in other files is told by those."""
        texts = read_labelled(files, self.run.data.columns, self.written, self.log.say, self.run.data.encoding)
        refuse(not texts, f"{', '.join(map(str, files))}: there is no text in it")
        if not self.written:
            self.written = labels_in(texts)
            self.labels = self.called(self.written)
        return texts

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
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """A table where its name, or a column that was asked for, says so; a .tsv without one is lines."""
        refuse(columns and not inputs, "--text-column needs a file: headway predict MODEL FILE --text-column NAME")
        tables = [file for file in inputs if columns or (is_table(file) and bare_suffix(Path(file)) != ".tsv")]
        if len(inputs) != 1 or not tables:
            return super().read(inputs, texts, lines, columns)
        refuse(texts, "--text and a file were both given: pass one of them")
        refuse(not is_table(inputs[0]), f"{inputs[0]} has no columns: --text-column is for .csv, .tsv and .jsonl")
        return list(read_texts(inputs[0], Columns(tuple(columns))))

    @classmethod
    def labelled(
        cls, model: Encoder, files: Sequence[str], options: dict[str, Any]
    ) -> tuple[Sequence[str], Sequence[str], list[Any]]:
        """Cut where they are longer than the model takes, as they were when it learned."""
        known = {*model.labels, *map(str, range(len(model.labels)))}
        said: list[str] = []
        texts = read_labelled(
            list(files),
            _columns(model.card.run, options),
            known,
            said.append,
            _data(model.card.run).get("encoding", UTF8),
        )
        refuse(not texts, f"{', '.join(files)}: there is no text in it")
        names, labels = [f"text {number}" for number in range(1, len(texts) + 1)], [text.label for text in texts]
        numbers(names, labels, model.labels, digits=True)  # a wrong label is told before the model is asked
        for line in said:
            warnings.warn(line, Notice, stacklevel=2)
        return names, labels, model.classify([text.text for text in texts], truncate=True)


def _columns(run: dict[str, Any], options: dict[str, Any]) -> Columns:
    """Those that are asked for, or those that the model was trained with."""
    texts, label = (options.get(name) or _data(run).get(name) for name in COLUMN_OPTIONS)
    return Columns(tuple(texts or ()), str(label or ""))


def _data(run: Any) -> dict[str, Any]:
    """The data's settings of the run that trained a model, where its card has one."""
    found = run.get("data", {}) if isinstance(run, dict) else {}
    return found if isinstance(found, dict) else {}
