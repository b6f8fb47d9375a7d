"""Files of words with tags: CoNLL's columns, CoNLL-U and JSON lines.

What a file means is decided by its name. `.jsonl` has objects with "words" and "tags", two lists of equal length.
`.conllu` has ten columns with tabs between them (universaldependencies.org/format). Any other file has columns as those
of CoNLL-2000 and CoNLL-2003 (Tjong Kim Sang and De Meulder 2003): a word a line, an empty line behind each sentence,
first the word, last its tag, unless other columns are chosen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from headway.data.readers import at_least_one, bare_suffix, lines, records, text_of
from headway.data.tag_schemes import Scheme, parted, rewritten, types_of
from headway.data.tagged import Sentence
from headway.errors import InputError, nearest, refuse

DOCUMENT = "-DOCSTART-"  # between the documents of CoNLL-2003
SPACE = re.compile(r"[ \t]+")
WORD = re.compile(r"\S+")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
WORD_LINE = re.compile(r"\d+")  # 3-4 is the written form of two words, 5.1 a word that was left out of the sentence
COLUMN_FILES = (".conll", ".conllu", ".iob", ".bio")


@dataclass(frozen=True)
class TagColumns:
    """Where words and tags stand: numbers from 1 on, the names of CoNLL-U's columns, or keys of JSON objects. Nothing:
    where they usually stand. `required`: whether every word must have a tag. `beside`: a column that is read beside the
    words (none: there is none)."""

    words: str = ""
    tags: str = ""
    required: bool = True
    beside: str = ""


@dataclass(frozen=True)
class Given:
    """A sentence of a file. tags: none where the file has none. lines: of each word. columns: all that it has, by
    number (from 1 on) and by name."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str
    lines: tuple[int, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def column(self, name: str) -> tuple[str, ...]:
        """What stands there for each word."""
        if name not in self.columns:
            there = ", ".join(self.columns) or "none"
            raise InputError(f"{self.where(0)}: no column '{name}' (data.beside) beside the words; there are: {there}")
        return self.columns[name]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def where(self, word: int) -> str:
        return f"{self.file}, line {self.lines[word]}"


def has_columns(file: str) -> bool:
    """Whether a file's name says that it has words with tags, and not texts."""
    return bare_suffix(Path(file)) in (*COLUMN_FILES, ".jsonl")


def read_tagged(
    files: Sequence[str | Path], columns: TagColumns | None = None, scheme: Scheme = "bio", known: Collection[str] = ()
) -> list[Sentence]:
    """The sentences of all files, in order, their tags in this scheme. known: the tags of a model (none: any)."""
    columns = columns or TagColumns()
    found = (_sentence(given, scheme, known, columns.beside) for file in files for given in read_given(file, columns))
    return list(at_least_one(found, f"{', '.join(map(str, files))}: there is no sentence in it"))


def _sentence(given: Given, scheme: Scheme, known: Collection[str], beside: str) -> Sentence:
    if known:
        refuse_unknown_tags(given, known)
    return Sentence(given.words, rewritten(given.tags, scheme), given.column(beside) if beside else ())


def refuse_unknown_tags(given: Given, known: Collection[str]) -> None:
    """Refuse a tag that a model never gives: neither itself nor a chunk of its type."""
    types = types_of(known)
    for word, tag in enumerate(given.tags):
        if tag not in known and parted(tag)[1] not in types:
            raise InputError(f"{given.where(word)}: the model has no tag '{tag}'{nearest(tag, known)}")


def read_given(file: str | Path, columns: TagColumns) -> Iterator[Given]:
    path = Path(file)
    suffix = bare_suffix(path)
    if suffix == ".jsonl":
        return _json(path, columns)
    return _columns(path, columns, CONLLU if suffix == ".conllu" else ())


def _json(path: Path, columns: TagColumns) -> Iterator[Given]:
    for number, (where, record) in enumerate(records(lines(path), str(path), "'words' and 'tags'"), 1):
        words = _texts(record, columns.words or "words", where)
        refuse(not words, f"{where}: no words; leave an empty document out")
        key = columns.tags or ("labels" if "labels" in record and "tags" not in record else "tags")
        tags = _texts(record, key, where) if columns.required or key in record else []
        if len(words) != len(tags) and (columns.required or key in record):
            raise InputError(f"{where}: {len(words)} words, {len(tags)} tags: each word needs one")
        lists = {key: tuple(map(str, value)) for key, value in record.items() if isinstance(value, list)}
        same = {key: value for key, value in lists.items() if len(value) == len(words)}
        yield Given(tuple(words), tuple(tags), str(path), (number,) * len(words), same)


def _texts(record: dict[str, Any], key: str, where: str) -> list[str]:
    if key not in record:
        raise InputError(f"{where}: no key '{key}'{nearest(key, record)}")
    found = record[key]
    if not isinstance(found, list) or not all(isinstance(text, str) and WORD.fullmatch(text) for text in found):
        raise InputError(f"{where}: '{key}' must be a list of strings that are not empty and have no white space")
    return [text_of({key: text}, key, where) for text in found]


def _columns(path: Path, columns: TagColumns, names: Sequence[str]) -> Iterator[Given]:
    """A sentence ends at an empty line, or where a document begins. All lines have as many columns as the first."""
    width = len(names)
    rows = _of_documents(enumerate(lines(path), 1), path)
    for inside, group in groupby(rows, lambda row: bool(row[1].strip()) and not _begins_document(row[1])):
        if not inside:
            continue
        block = list(group)
        split = [(number, _cells(row, names)) for number, row in block if not (names and row.startswith("#"))]
        for number, cells in split:
            width = width or len(cells)
            refuse(len(cells) != width, f"{path}, line {number}: {_counted(cells)}, expected {width}")
        kept = [(number, cells) for number, cells in split if not names or WORD_LINE.fullmatch(cells[0])]
        refuse(not kept, f"{path}, line {block[-1][0]}: a sentence without a word ends here")
        yield _given(kept, str(path), columns, names)


def _begins_document(row: str) -> bool:
    return row.startswith(DOCUMENT) and SPACE.split(row)[0] == DOCUMENT


def _of_documents(rows: Iterator[tuple[int, str]], path: Path) -> Iterator[tuple[int, str]]:
    """All rows; a document without a word is refused."""
    begun = 0  # the line where the document began, until it has a word
    for number, row in rows:
        if _begins_document(row):
            refuse(begun, f"{path}, line {begun}: an empty document: no word before the next {DOCUMENT}")
            begun = number
        elif row.strip():
            begun = 0
        yield number, row
    refuse(begun, f"{path}, line {begun}: an empty document: no word follows")


def _cells(row: str, names: Sequence[str]) -> list[str]:
    return row.split("\t") if names else SPACE.split(row.strip(" \t"))


def _counted(cells: Sequence[str]) -> str:
    return "one column" if len(cells) == 1 else f"{len(cells)} columns"


def _given(rows: Sequence[tuple[int, list[str]]], file: str, columns: TagColumns, names: Sequence[str]) -> Given:
    number, cells = rows[0]
    where = f"{file}, line {number}"
    words_at = _place(columns.words, "--text-column", cells, names, where, names.index("form") if names else 0)
    tags_at = _place(columns.tags, "--label-column", cells, names, where, names.index("upos") if names else -1)
    tagged = columns.required or len(cells) > 1
    refuse(tagged and len(cells) == 1, f"{where}: one column; expected a word, a space or tab, and its tag")
    for number, cells in rows:
        empty = not cells[words_at].strip() or (tagged and not cells[tags_at].strip())
        refuse(empty, f"{file}, line {number}: the word or its tag is empty")
    words, tags = (tuple(cells[at] for _, cells in rows) for at in (words_at, tags_at))
    lists = [tuple(column) for column in zip(*(cells for _, cells in rows), strict=True)]
    called = {str(number): column for number, column in enumerate(lists, 1)} | dict(zip(names, lists, strict=False))
    return Given(words, tags if tagged else (), file, tuple(number for number, _ in rows), called)


def _place(chosen: str, option: str, cells: Sequence[str], names: Sequence[str], where: str, usual: int) -> int:
    """The index of a column that is chosen by number or by name."""
    if not chosen:
        return usual
    at = names.index(chosen.lower()) if chosen.lower() in names else int(chosen) - 1 if chosen.isdecimal() else -1
    known = f" or one of {', '.join(names)}" if names else ""
    refuse(not 0 <= at < len(cells), f"{where}: {option} {chosen}: give a number from 1 to {len(cells)}{known}")
    return at
