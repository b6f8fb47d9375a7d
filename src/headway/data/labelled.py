"""Labelled texts: read from files, encoded, and batched by length.

What a file means is decided by its name: `.jsonl` has objects with "text", "label" and, for pairs, "second"; `.tsv` has
label TAB text, label TAB text TAB second text, or CoLA's four columns (source, label, mark, text); any other file has
the label before the first space of a line. A member of an archive is named behind it: `cola_public.zip/raw/train.tsv`.

B rows, T length.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.data.batches import Bucket, Examples, PairBatches, dealt
from headway.data.readers import bare_suffix, decoded, lines, records, text_of
from headway.errors import InputError
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
    rows = _member(*file.split(ARCHIVE, 1)) if ARCHIVE in file else lines(file)
    suffix = bare_suffix(Path(file))
    if suffix == ".jsonl":
        yield from _json(rows, file)
        return
    for number, row in enumerate(rows, 1):
        where = f"{file}, line {number}"
        if row.strip():
            yield _columns(row.split("\t"), where) if suffix == ".tsv" else _spaced(row, where)


def _member(archive: str, name: str) -> Iterator[str]:
    path = Path(f"{archive}.zip")
    try:
        with zipfile.ZipFile(path) as whole:
            found = whole.read(name)
    except FileNotFoundError:
        raise InputError(f"no file {path}") from None
    except KeyError:
        raise InputError(f"{path} has no member '{name}'") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a whole .zip ({error}): fetch or pack it again") from error
    return decoded(iter([found]), f"{path}/{name}")


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
    if not space:
        raise InputError(f"{where}: no space; expected a label, a space and the text (or a .tsv, a .jsonl)")
    return Labelled(text, label)


def labels_in(texts: Sequence[Labelled]) -> tuple[str, ...]:
    """Every label, in order; numbers by their size."""
    found = {text.label for text in texts}
    number = all(label.isdecimal() for label in found)
    return tuple(sorted(found, key=lambda label: (int(label) if number else 0, label)))


def hold_out_labelled(texts: Sequence[Labelled], share: float) -> tuple[list[Labelled], list[Labelled]]:
    """To learn from, and held out: by a hash of the text, the same on every machine, equal texts alike."""
    places = [_place(text.text) for text in texts]
    held = set(sorted(set(places))[: round(share * len(set(places)))])
    parts = (
        [text for text, place in zip(texts, places, strict=True) if place not in held],
        [text for text, place in zip(texts, places, strict=True) if place in held],
    )
    if not all(parts):
        raise InputError(f"{len(texts)} texts are too few, or too much alike, to hold some out: give --valid")
    return parts


def _place(text: Text) -> bytes:
    first = text if isinstance(text, str) else text[0]
    return hashlib.blake2b("".join(first.split()).casefold().encode(), digest_size=8).digest()


@dataclass(frozen=True)
class LabelBatch:
    """Framed texts, right-padded. `labels_BT`: one for each text, counted from 1; 0 is none."""

    nothing: ClassVar[int] = 0
    ids_BT: Tensor
    lengths_B: Tensor
    types_BT: Tensor | None
    labels_BT: Tensor
    tokens: int  # labels, which are what is learned
    examples: tuple[int, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        return {"loss": self.tokens, "nll": self.tokens}

    def map(self, change: Callable[[Tensor], Tensor]) -> LabelBatch:
        return replace(
            self,
            ids_BT=change(self.ids_BT),
            lengths_B=change(self.lengths_B),
            types_BT=None if self.types_BT is None else change(self.types_BT),
            labels_BT=change(self.labels_BT),
        )

    def rows(self, start: int, end: int) -> LabelBatch:
        types = None if self.types_BT is None else self.types_BT[start:end]
        labels = self.labels_BT[start:end]
        count, examples = int((labels > 0).sum()), self.examples[start:end]
        return LabelBatch(self.ids_BT[start:end], self.lengths_B[start:end], types, labels, count, examples)

    def split(self, parts: int) -> list[LabelBatch]:
        return [self.rows(start, end) for start, end in dealt(len(self.ids_BT), parts)]


class LabelStore:
    """Framed texts and their labels (from 0 on) in memory; it has the face of a corpus of pairs without targets."""

    def __init__(self, framed: Sequence[Framed], labels: Sequence[int], pad: int) -> None:
        self.framed, self.pad = list(framed), pad
        self.labels: NDArray[np.int64] = np.array(labels, np.int64)
        self.lengths = np.array([len(one.ids) for one in framed], np.int32)
        self.paired = any(one.types is not None for one in framed)

    def __len__(self) -> int:
        return len(self.framed)

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        return self.lengths - 1  # an end is counted there, which is in these already

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        return np.zeros(len(self), np.int32)

    def rows(self, side: str, examples: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        found = np.full((len(examples), width), self.pad, np.int64)
        for row, example in enumerate(examples.tolist()):
            found[row, : self.lengths[example]] = self.framed[example].ids
        return found

    def types(self, examples: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        found = np.zeros((len(examples), width), np.int64)
        for row, example in enumerate(examples.tolist()):
            kinds = self.framed[example].types
            if kinds is not None:
                found[row, : len(kinds)] = kinds
        return found


class LabelBatches:
    """Endless batches over a store, epoch after epoch, each in a new order; every batch has texts of like length."""

    def __init__(self, store: LabelStore, budget: int, seed: int, shuffle: bool = True) -> None:
        self.store = store
        self.order = PairBatches(store, budget, seed, shuffle)

    def batch(self, step: int) -> LabelBatch:
        epoch, at = divmod(step, self.order.per_epoch)
        return self._collated(*self.order.plan(epoch)[at])

    def epoch(self, epoch: int = 0) -> Iterator[LabelBatch]:
        return (self._collated(bucket, examples) for bucket, examples in self.order.plan(epoch))

    def _collated(self, bucket: Bucket, examples: Examples) -> LabelBatch:
        chosen, width = examples.astype(np.int64), bucket.source_length
        types = torch.from_numpy(self.store.types(chosen, width)) if self.store.paired else None
        return LabelBatch(
            torch.from_numpy(self.store.rows("source", chosen, width)),
            torch.from_numpy(self.store.lengths[chosen].astype(np.int64)),
            types,
            torch.from_numpy(self.store.labels[chosen] + 1)[:, None],
            len(chosen),
            tuple(chosen.tolist()),
        )

    def full(self, batch: LabelBatch) -> LabelBatch:
        """The same with empty rows behind, so that its shape is one of few; they count nowhere."""
        width = batch.ids_BT.shape[1]
        wanted = next(bucket.rows for bucket in self.order.buckets if bucket.source_length == width)
        missing = wanted - len(batch.ids_BT)
        if missing <= 0:
            return batch

        def extend(tensor: Tensor, value: int) -> Tensor:
            return torch.cat([tensor, tensor.new_full((missing, *tensor.shape[1:]), value)])

        return replace(
            batch,
            ids_BT=extend(batch.ids_BT, self.store.pad),
            lengths_B=extend(batch.lengths_B, 1),
            types_BT=None if batch.types_BT is None else extend(batch.types_BT, 0),
            labels_BT=extend(batch.labels_BT, 0),
        )
