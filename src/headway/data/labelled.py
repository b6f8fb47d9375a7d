"""Labelled texts: read from files, encoded, and batched by length.

What a file is, is decided by its name: `.csv`, `.tsv` and `.jsonl` are tables (`headway.data.table`), in which
`headway.data.columns` finds texts and labels; any other file has the label before the first space of a line, with or
without fastText's `__label__` before it. A member of an archive is named behind it: `cola_public.zip/raw/train.tsv`.

B rows, T length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import IGNORED, Batch, TextInputs, column
from headway.data.batches import BucketedBatches, Ints, Made
from headway.data.columns import (
    ENOUGH,
    FOUND,
    Answer,
    Columns,
    Places,
    find_columns,
    is_number,
    text_places,
    with_header,
)
from headway.data.readers import NOT_TEXT, UTF8, bare_suffix, text_of
from headway.data.split import hold_out_by_hash
from headway.data.table import READERS, Row, Table, read_table, text_lines
from headway.errors import InputError, refuse
from headway.text.framing import Framed, Text

FASTTEXT = "__label__"
SEPARATOR = ","  # of several labels of a text
SHOWN = 8  # labels that a line lists
ACCEPTED = (
    "give a .csv, .tsv or .jsonl, or lines of a label, a space and a text; .gz, .zst and .xz of these are read too"
)

Say = Callable[[str], None]


class Labelled(NamedTuple):
    text: Text
    label: str


def read_labelled(
    files: Sequence[str | Path], columns: Columns = FOUND, known: Collection[str] = (), say: Say = lambda line: None,
    encoding: str = UTF8, answer: Answer = "one",
) -> list[Labelled]:  # fmt: skip
    """The texts of all files with their labels, in order. known: labels that a model has. answer: what a text has: one
    label, several with commas between them (or a JSON list), or a number. `say` is told once for each
    kind of file where texts and labels were found. encoding: of lines; tables are UTF-8."""
    found: list[Labelled] = []
    reported: set[str] = set()
    for file in map(str, files):
        texts, labels_from, texts_from = _read(file, columns, known, encoding, answer)
        found += texts
        if texts and f"{labels_from}{texts_from}" not in reported:
            reported.add(f"{labels_from}{texts_from}")
            say(f"{_told(texts, labels_from, answer)}, texts from {texts_from}")
    return found


def labels_of(label: str) -> list[str]:
    """The labels of a text that may have several, or none."""
    return [one.strip() for one in label.split(SEPARATOR) if one.strip()]


def _told(texts: Sequence[Labelled], where: str, answer: Answer) -> str:
    if answer == "number":
        numbers = [float(text.label) for text in texts]
        return f"numbers from {where} ({min(numbers):g} to {max(numbers):g})"
    if answer == "several":
        texts = [Labelled("", one) for text in texts for one in labels_of(text.label)]
    return f"labels from {where} ({listed(labels_in(texts))})"


def is_table(file: str) -> bool:
    return bare_suffix(Path(file)) in READERS


def read_texts(file: str, columns: Columns = FOUND) -> list[Text]:
    """The texts of a table, whether it has labels or not."""
    table = with_header(read_table(file), columns)
    places = text_places(table, columns)
    return [_text(table, row, places) for row in table.rows]


def _read(
    file: str, columns: Columns, known: Collection[str], encoding: str, answer: Answer
) -> tuple[list[Labelled], str, str]:
    """The texts, and where labels and texts stand in words."""
    if is_table(file):
        refuse(encoding != UTF8, f"{file}: data.encoding is for lines of a label and a text; a table must be UTF-8")
        table = with_header(read_table(file), columns)
        if not table.rows:
            return [], "", ""
        places = find_columns(table, columns, known, answer)
        found = [Labelled(_text(table, row, places.texts), label_in(table, row, places, answer)) for row in table.rows]
        return found, f"column {table.called(places.label)}", " and ".join(map(table.called, places.texts))
    refuse(bare_suffix(Path(file)) in NOT_TEXT, f"cannot read {file} as labelled text: {ACCEPTED}")
    refuse(columns != FOUND, f"{file} has no columns: --text-column and --label-column are for .csv, .tsv, .jsonl")
    spaced = list(_spaced(file, encoding, answer))
    if (
        answer == "one"
        and len(spaced) >= ENOUGH
        and len(labels := {one.label for one in spaced} - set(known)) > len(spaced) / 2
    ):
        raise InputError(
            f"{file}: the first word of each line was taken for its label, but {len(spaced):,} lines have "
            f"{len(labels):,} different ones: write a .csv or .tsv with columns label and text"
        )
    return spaced, "the first word of each line", "what follows"


def _spaced(file: str, encoding: str, answer: Answer) -> Iterator[Labelled]:
    for number, row in enumerate(text_lines(file, encoding), 1):
        if row.strip():
            label, space, text = row.partition(" ")
            refuse(not space, f"{file}, line {number}: no space; expected a label, a space and the text (or a .tsv, …)")
            label = label.removeprefix(FASTTEXT)
            yield Labelled(text, _number(label, f"{file}, line {number}") if answer == "number" else label)


def _text(table: Table, row: Row, places: Sequence[int]) -> Text:
    """One text, or a pair; a JSON object may leave the second text out."""
    record, names = _record(table, row), [_key(table, at) for at in places]
    if len(names) == 2 and row.cells[places[1]] is None:
        names = names[:1]
    texts = [text_of(record, name, table.where(row)) for name in names]
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def label_in(table: Table, row: Row, places: Places, answer: Answer) -> str:
    label, name = row.cells[places.label], table.called(places.label)
    if answer == "number":
        return _number(label, f"{table.where(row)}: column {name}")
    if answer == "several":
        return _several(label, f"{table.where(row)}: column {name}")
    if not isinstance(label, str | int) or isinstance(label, bool):
        raise InputError(
            f"{table.where(row)}: the label {name} is {type(label).__name__}, expected a string or a whole number"
        )
    refuse(not str(label).strip(), f"{table.where(row)}: the label (column {name}) is empty")
    return str(label).strip()


def _number(cell: Any, where: str) -> str:
    if isinstance(cell, bool) or not is_number(str(cell)):
        raise InputError(f"{where} has '{cell}', expected a number")
    return str(cell).strip()


def _several(cell: Any, where: str) -> str:
    """Labels with commas between them; a list of JSON has them one by one."""
    labels = cell if isinstance(cell, list) else [cell if cell is not None else ""]
    for label in labels:
        if not isinstance(label, str | int) or isinstance(label, bool) or (labels is cell and SEPARATOR in str(label)):
            raise InputError(f"{where} has '{label}', expected labels without a comma, as text or whole numbers")
    return SEPARATOR.join(map(str, labels))


def _key(table: Table, at: int) -> str:
    return table.names[at] if table.names else str(at + 1)


def _record(table: Table, row: Row) -> dict[str, Any]:
    return {_key(table, at): cell for at, cell in enumerate(row.cells) if cell is not None}


def listed(labels: Sequence[str]) -> str:
    """How many there are, and the first of them."""
    shown = ", ".join(shorten(label, 40, placeholder="…") for label in labels[:SHOWN])
    shown += " …" if len(labels) > SHOWN else ""
    return f"{len(labels)}: {shown}"


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
    """Inputs with a label each, counted from 0; IGNORED for an empty row. weights_B: what each row's loss counts; None:
    all alike."""

    inputs: Any
    labels_B: Tensor = column(pad=IGNORED)
    weights_B: Tensor | None = column(default=None)

    def counted(self) -> dict[str, float]:
        labels = int((self.labels_B != IGNORED).sum())
        if self.weights_B is None:
            return {"loss": labels, "nll": labels}
        return {"loss": float(self.weights_B.sum()), "nll": labels, "tokens": labels}

    def answers(self) -> tuple[tuple[Tensor, Tensor | None], ...]:
        """Labels with the weights of their losses: several where a row has more than one."""
        return ((self.labels_B, self.weights_B),)


class FramedStore(Generic[Made]):
    """Abstract. Framed texts in memory, and batches of them. order: which texts share a batch."""

    order: type[BucketedBatches[Any]] = BucketedBatches

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
        letters_BTC = padded_letters(chosen, width)
        return TextInputs(padded([one.ids for one in chosen], width, self.pad), lengths_B, types_BT, letters_BTC)

    def batches(
        self, budget: int, seed: int, shuffle: bool = True, full: bool = False, longest: int | None = None
    ) -> BucketedBatches[Made]:
        """Endless batches, epoch after epoch, each in a new order, padded to no more than `longest`."""
        return self.order(((self.lengths, 0),), self.collate, budget, seed, shuffle, full, longest)


class LabelStore(FramedStore[LabelBatch]):
    """With a label (counted from 0) of each text. of_label: the weight of each label (None: all alike)."""

    def __init__(
        self, framed: Sequence[Framed], labels: Sequence[int], pad: int, of_label: NDArray[np.float32] | None = None
    ) -> None:
        super().__init__(framed, pad)
        self.labels: Ints = np.array(labels, np.int64)
        self.weights = None if of_label is None else of_label[self.labels]

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> LabelBatch:
        labels_B = torch.from_numpy(self.labels[examples])
        weights_B = None if self.weights is None else torch.from_numpy(self.weights[examples])
        inputs = self.inputs(examples, lengths[0])
        return LabelBatch(inputs, labels_B, weights_B, examples=tuple(examples.tolist()))


def balanced_weights(labels: Ints, count: int) -> NDArray[np.float32]:
    """N/(L·N_l): a rare label counts as much in all as a common one (King and Zeng 2001)."""
    return (len(labels) / (count * np.bincount(labels, minlength=count).clip(min=1))).astype(np.float32)


def padded(rows: Sequence[Sequence[int]], width: int, pad: int) -> Tensor:
    """Lists of ids as one matrix, filled up on the right."""
    found = np.full((len(rows), width), pad, np.int64)
    for row, ids in zip(found, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(found)


def padded_letters(framed: Sequence[Framed], width: int) -> Tensor | None:
    """The letters of all tokens, filled up on the right; None where they are not wanted."""
    letters = [one.letters for one in framed if one.letters is not None]
    if not letters:
        return None
    found = np.zeros((len(letters), width, letters[0].shape[1]), np.uint8)
    for row, spelled in zip(found, letters, strict=True):
        row[: len(spelled)] = spelled
    return torch.from_numpy(found)
