"""Labelled texts: read from files, encoded, and batched by length.

What a file means is decided by its name: `.jsonl` has objects with "text", "label" and, for pairs, "second"; `.tsv` has
label TAB text, label TAB text TAB second text, or CoLA's four columns (source, label, mark, text); any other file has
the label before the first space of a line. A member of an archive is named behind it: `cola_public.zip/raw/train.tsv`.

B rows, T length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.batch import IGNORED, Batch, TextInputs, column
from headway.data.batches import BucketedBatches, Ints, Made
from headway.data.readers import bare_suffix, lines, member, records, text_of
from headway.data.split import hold_out_by_hash
from headway.errors import InputError, refuse
from headway.text.framing import Framed, Text

ARCHIVE = ".zip/"
COLA_COLUMNS = 4


class Labelled(NamedTuple):
    text: Text
    label: str


def read_labelled(files: Sequence[str | Path]) -> list[Labelled]:
    """The texts of all files with their labels, in order."""
    return [found for file in files for found in _read(str(file))]


def in_archive(name: str) -> tuple[str, str]:
    """The file that a name stands for and, where that is an archive, the member of it."""
    archive, inside, member = name.partition(ARCHIVE)
    return archive + inside.rstrip("/"), member


def _read(file: str) -> Iterator[Labelled]:
    archive, inside = in_archive(file)
    rows = member(Path(archive), inside) if inside else lines(file)
    suffix = bare_suffix(Path(file))
    if suffix == ".jsonl":
        yield from _json(rows, file)
        return
    for number, row in enumerate(rows, 1):
        where = f"{file}, line {number}"
        if row.strip():
            yield _columns(row.split("\t"), where) if suffix == ".tsv" else _spaced(row, where)


def _json(rows: Iterator[str], name: str) -> Iterator[Labelled]:
    for where, record in records(rows, name, "'text' and 'label'"):
        text, label = text_of(record, "text", where), record.get("label")
        if not isinstance(label, str | int) or isinstance(label, bool):
            raise InputError(f"{where}: 'label' is {type(label).__name__}, expected a string or a whole number")
        second = text_of(record, "second", where) if record.get("second") is not None else None
        yield Labelled(text if second is None else (text, second), str(label))


def _columns(columns: list[str], where: str) -> Labelled:
    if len(columns) == COLA_COLUMNS:
        return Labelled(columns[3], columns[1])
    if len(columns) not in (2, 3):
        raise InputError(f"{where}: {len(columns)} columns; expected label TAB text, or label TAB text TAB second text")
    return Labelled(columns[1] if len(columns) == 2 else (columns[1], columns[2]), columns[0])


def _spaced(row: str, where: str) -> Labelled:
    label, space, text = row.partition(" ")
    refuse(not space, f"{where}: no space; expected a label, a space and the text (or a .tsv, a .jsonl)")
    return Labelled(text, label)


def labels_in(texts: Sequence[Labelled]) -> tuple[str, ...]:
    """Every label, in order; numbers by their size."""
    found = {text.label for text in texts}
    number = all(label.isdecimal() for label in found)
    return tuple(sorted(found, key=lambda label: (int(label) if number else 0, label)))


def hold_out_labelled(texts: Sequence[Labelled], share: float) -> tuple[list[Labelled], list[Labelled]]:
    """The training texts and the held-out texts, chosen by a hash of the text: the same on every machine."""
    return hold_out_by_hash(texts, [text.text if isinstance(text.text, str) else text.text[0] for text in texts], share)


@dataclass(frozen=True)
class LabelBatch(Batch):
    """Inputs with a label each, counted from 0; IGNORED for an empty row."""

    inputs: Any
    labels_B: Tensor = column(pad=IGNORED)

    def counted(self) -> dict[str, float]:
        labels = int((self.labels_B != IGNORED).sum())
        return {"loss": labels, "nll": labels}


class FramedStore(Generic[Made]):
    """Abstract. Framed texts in memory, and batches of them."""

    def __init__(self, framed: Sequence[Framed], pad: int) -> None:
        self.framed, self.pad = list(framed), pad
        self.lengths = np.array([len(one.ids) for one in framed], np.int32)
        self.paired = any(one.types is not None for one in framed)

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> Made:
        raise NotImplementedError

    def inputs(self, examples: Ints, width: int) -> TextInputs:
        chosen = [self.framed[example] for example in examples.tolist()]
        types_BT = padded([one.types or [] for one in chosen], width, 0) if self.paired else None
        lengths_B = torch.from_numpy(self.lengths[examples].astype(np.int64))
        return TextInputs(padded([one.ids for one in chosen], width, self.pad), lengths_B, types_BT)

    def batches(self, budget: int, seed: int, shuffle: bool = True, full: bool = False) -> BucketedBatches[Made]:
        """Endless batches, epoch after epoch, each in a new order; every batch has texts of like length."""
        return BucketedBatches(((self.lengths, 0),), self.collate, budget, seed, shuffle, full)


class LabelStore(FramedStore[LabelBatch]):
    """With a label (counted from 0) of each text."""

    def __init__(self, framed: Sequence[Framed], labels: Sequence[int], pad: int) -> None:
        super().__init__(framed, pad)
        self.labels: Ints = np.array(labels, np.int64)

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> LabelBatch:
        labels_B = torch.from_numpy(self.labels[examples])
        return LabelBatch(self.inputs(examples, lengths[0]), labels_B, examples=tuple(examples.tolist()))


def padded(rows: Sequence[Sequence[int]], width: int, pad: int) -> Tensor:
    """Lists of ids as one matrix, filled up on the right."""
    found = np.full((len(rows), width), pad, np.int64)
    for row, ids in zip(found, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(found)
