"""Treebanks: CoNLL-U files, ten columns a word, an empty line behind each sentence (universaldependencies.org/format).

A line `3-4` is the written form of two words (we've), which share its place in the text. A line `5.1` is a word that
was left out of the sentence: only enhanced graphs have it, and it is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path

from headway.data.readers import at_least_one, lines
from headway.errors import InputError, refuse

COLUMNS = 10
NUMBER = re.compile(r"^(\d+)(?:-(\d+)|\.(\d+))?$")
GLUED = "SpaceAfter=No"
Span = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """A text, its words, and the tree above them.

    spans: where each word stands in `text`. heads: for each word the place of the word that it depends on, −1 for the
    root. relations: by which name.
    """

    text: str
    words: tuple[str, ...]
    spans: tuple[Span, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)


def read_conllu(path: str | Path) -> Iterator[Sentence]:
    """The sentences of a file, one after the other."""
    groups = groupby(enumerate(lines(path), start=1), lambda numbered: bool(numbered[1].strip()))
    sentences = (list(rows) for filled, rows in groups if filled)
    problem = f"{path} has no sentence: expected CoNLL-U, ten columns with tabs between them"
    for rows in at_least_one(sentences, problem):
        yield _sentence(rows, str(path))


@dataclass(frozen=True)
class _Row:
    """A line: the words from `first` to `last` (equal but for a written form of several), and where it stands."""

    where: str
    first: int
    last: int
    form: str
    head: str
    relation: str
    glued: bool


def _sentence(numbered: list[tuple[int, str]], path: str) -> Sentence:
    read = (_row(line, f"{path}, line {number}") for number, line in numbered if not line.startswith("#"))
    rows = [row for row in read if row is not None]
    words = [row for row in rows if row.first == row.last]
    refuse(not words, f"{path}, line {numbered[-1][0]}: a sentence without a word ends here")
    for place, row in enumerate(words, start=1):
        refuse(row.first != place, f"{row.where}: word {row.first} where {place} was expected: words count up from 1")
    text, spans = _written(rows)
    forms, relations = tuple(row.form for row in words), tuple(row.relation for row in words)
    return Sentence(text, forms, tuple(spans), tuple(_head(row, len(words)) for row in words), relations)


def _row(line: str, where: str) -> _Row | None:
    columns = line.split("\t")
    refuse(len(columns) != COLUMNS, f"{where}: {len(columns)} columns, CoNLL-U has {COLUMNS} with tabs between them")
    number = NUMBER.match(columns[0])
    if number is None:
        raise InputError(f"{where}: '{columns[0]}' is no number of a word: write 3, 3-4 or 3.1")
    if number[3] is not None:
        return None
    first, last = int(number[1]), int(number[2] or number[1])
    if number[2] is not None and last <= first:
        raise InputError(f"{where}: '{columns[0]}' are no words: the second number must be the higher")
    refuse(not columns[1].strip(), f"{where}: the word is empty")
    return _Row(where, first, last, columns[1], columns[6], columns[7], GLUED in columns[9].split("|"))


def _head(row: _Row, words: int) -> int:
    if not row.head.isdecimal() or int(row.head) > words or int(row.head) == row.first:
        raise InputError(
            f"{row.where}: head '{row.head}' of word {row.first}: expected the number of another of the {words} "
            "words, or 0 for the root"
        )
    return int(row.head) - 1


def _written(rows: list[_Row]) -> tuple[str, list[Span]]:
    """The text that the rows spell, and where each word stands in it."""
    text, spans, covered = "", [], 0  # covered: the last word of the written form that was met
    for at, row in enumerate(rows):
        if row.first <= covered and row.first == row.last:
            continue
        inside = [row] if row.first == row.last else rows[at + 1 : at + 2 + row.last - row.first]
        if row.first <= covered or [word.first for word in inside] != list(range(row.first, row.last + 1)):
            raise InputError(f"{row.where}: the words {row.first} to {row.last}, and no others, must follow this line")
        spans += _shared(row.form, [word.form for word in inside], len(text))
        text += row.form + ("" if row.glued else " ")
        covered = row.last
    return text.rstrip(), spans


def _shared(written: str, forms: list[str], start: int) -> list[Span]:
    """Each word's own part of a written form, where they spell it one behind the other; else all have all of it."""
    if "".join(forms) != written:
        return [(start, start + len(written))] * len(forms)
    return list(pairwise(accumulate(map(len, forms), initial=start)))
