"""Texts with a label for each word: read from files, aligned with tokens, and batched by length.

What a file means is decided by its name: `.jsonl` has objects with "words" and "labels", two lists of equal length; any
other file has columns as those of CoNLL-2003 (Tjong Kim Sang and De Meulder 2003): a word a line, first the word, last
its label, an empty line behind each sentence. Chunks come as BIO: B-X is the first word of an X, I-X a further one.

B rows, T length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from headway.batch import IGNORED, Batch, TextInputs, column
from headway.data.batches import Ints
from headway.data.labelled import FramedStore, padded
from headway.data.readers import at_least_one, bare_suffix, lines, records
from headway.data.split import hold_out_by_hash
from headway.errors import InputError, refuse
from headway.text.framing import Framed

OUTSIDE = "O"  # the label of a word in no chunk
BETWEEN = ("", "-DOCSTART-")  # a line between two sentences, and between the documents of CoNLL-2003
SPACE = re.compile(r"[ \t]+")
WORD = re.compile(r"\S+")
Span = tuple[int, int]


class Sentence(NamedTuple):
    words: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def spans(self) -> list[Span]:
        """The characters of each word in the text."""
        ends = accumulate(len(word) + 1 for word in self.words)
        return [(end - 1 - len(word), end - 1) for end, word in zip(ends, self.words, strict=True)]


def read_tagged(files: Sequence[str | Path]) -> list[Sentence]:
    """The sentences of all files, in order."""
    found = (sentence for file in files for sentence in _read(Path(file)))
    return list(at_least_one(found, f"{', '.join(map(str, files))}: there is no sentence in it"))


def _read(path: Path) -> Iterator[Sentence]:
    rows = lines(path)
    for words, labels in _json(rows, str(path)) if bare_suffix(path) == ".jsonl" else _columns(rows, str(path)):
        yield Sentence(tuple(words), bio(labels))


def _columns(rows: Iterator[str], name: str) -> Iterator[tuple[list[str], list[str]]]:
    every = (_split(row, f"{name}, line {number}") for number, row in enumerate(rows, 1))
    for between, group in groupby(every, lambda columns: columns[0] in BETWEEN):
        if not between:
            sentence = list(group)
            yield [columns[0] for columns in sentence], [columns[-1] for columns in sentence]


def _split(row: str, where: str) -> list[str]:
    columns = SPACE.split(row.strip(" \t"))
    if len(columns) == 1 and columns[0] not in BETWEEN:
        raise InputError(f"{where}: one column; expected a word, a space or tab, and its label")
    return columns


def _json(rows: Iterator[str], name: str) -> Iterator[tuple[list[str], list[str]]]:
    for where, record in records(rows, name, "'words' and 'labels'"):
        words, labels = (_texts(record, key, where) for key in ("words", "labels"))
        refuse(len(words) != len(labels), f"{where}: {len(words)} words, {len(labels)} labels: each word needs one")
        if words:
            yield words, labels


def _texts(record: dict[str, Any], key: str, where: str) -> list[str]:
    found = record.get(key)
    if not isinstance(found, list) or not all(isinstance(text, str) and WORD.fullmatch(text) for text in found):
        raise InputError(f"{where}: '{key}' must be a list of strings that are not empty and have no white space")
    return found


def bio(labels: Sequence[str]) -> tuple[str, ...]:
    """Labels in which every chunk begins with B-. In CoNLL-2003's own files B- only parts neighbours of one type."""
    found, before = [], ""
    for label in labels:
        mark, dash, kind = label.partition("-")
        found.append(f"B-{kind}" if mark == "I" and dash and kind != before else label)
        before = kind if dash else ""
    return tuple(found)


def labels_of(sentences: Sequence[Sentence]) -> tuple[str, ...]:
    """Every label, in order; that of words in no chunk is the first."""
    found = {label for sentence in sentences for label in sentence.labels}
    return tuple(sorted(found, key=lambda label: (label != OUTSIDE, label)))


def hold_out_tagged(sentences: Sequence[Sentence], share: float) -> tuple[list[Sentence], list[Sentence]]:
    """The training sentences and the held-out ones, chosen by a hash of the text."""
    return hold_out_by_hash(sentences, [sentence.text for sentence in sentences], share)


def align(framed: Framed, words: Sequence[Span]) -> Framed:
    """The same tokens with the numbers and spans of these words; the tokenizer's own words may be smaller (U . N .).

    A token belongs to the word that has its last character, since the space before a word may be a part of its token.
    """
    begins = [start for start, _ in words]

    def word_of(span: Span) -> int | None:
        number = bisect_right(begins, span[1] - 1) - 1
        return number if span[1] > span[0] and number >= 0 and span[1] <= words[number][1] else None

    numbers = [None if own is None else word_of(span) for own, span in zip(framed.words, framed.spans, strict=True)]
    spans = tuple((0, 0) if number is None else words[number] for number in numbers)
    return replace(framed, words=tuple(numbers), spans=spans)


@dataclass(frozen=True)
class TaggedBatch(Batch):
    """Framed texts with a label, counted from 0, at the first token of each word; IGNORED at every other place."""

    inputs: TextInputs
    labels_BT: Tensor = column(pad=IGNORED)

    def counted(self) -> dict[str, float]:
        words = int((self.labels_BT != IGNORED).sum())
        return {"loss": words, "nll": words}


class TaggedStore(FramedStore[TaggedBatch]):
    """Sentences, aligned; `number_of` gives the numbers of the labels."""

    def __init__(
        self, sentences: Sequence[Sentence], framed: Sequence[Framed], number_of: dict[str, int], pad: int
    ) -> None:
        super().__init__([align(one, sentence.spans) for one, sentence in zip(framed, sentences, strict=True)], pad)
        self.sentences = sentences
        self.labels = [
            [
                number_of[sentence.labels[word]] if first and word is not None else IGNORED
                for first, word in zip(one.starts, one.words, strict=True)
            ]
            for one, sentence in zip(self.framed, sentences, strict=True)
        ]

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> TaggedBatch:
        labels_BT = padded([self.labels[example] for example in examples.tolist()], lengths[0], IGNORED)
        return TaggedBatch(self.inputs(examples, lengths[0]), labels_BT, examples=tuple(examples.tolist()))

    def named(self, example: int, labels: Sequence[int], names: Sequence[str]) -> list[str]:
        """The label of each word from those of its tokens; of a word that was cut off, that of no chunk."""
        one = self.framed[example]
        found = [OUTSIDE] * len(self.sentences[example].words)
        for first, word, label in zip(one.starts, one.words, labels, strict=False):
            if first and word is not None:
                found[word] = names[label]
        return found
