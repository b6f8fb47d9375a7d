"""GAP (Webster et al. 2018): a pronoun and two names in a paragraph, and which of them it stands for.

A table with tabs and a first line of column names; offsets count characters of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.data.readers import at_least_one, lines
from headway.errors import InputError, nearest, refuse

COLUMNS = ("ID", "Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset", "B-coref")
TRUTH = {"TRUE": True, "FALSE": False}
Span = tuple[int, int]


@dataclass(frozen=True)
class Named:
    """A name where it stands, and whether it is the pronoun's."""

    text: str
    span: Span
    meant: bool


@dataclass(frozen=True)
class Pronoun:
    """A pronoun in its text, with the two names that it may stand for: one of them, or neither."""

    name: str
    text: str
    word: str
    span: Span
    names: tuple[Named, Named]


def read_gap(path: str | Path) -> Iterator[Pronoun]:
    """The pronouns of a file, one after the other."""
    rows = enumerate(lines(path), start=1)
    heading = next(rows)[1].split("\t")
    if missing := [column for column in COLUMNS if column not in heading]:
        raise InputError(
            f"{path}, line 1: no column '{missing[0]}'{nearest(missing[0], heading)}; GAP has {', '.join(COLUMNS)}"
        )
    for number, row in at_least_one(rows, f"{path} has column names and no pronoun below them"):
        values = row.split("\t")
        where = f"{path}, line {number}"
        refuse(len(values) != len(heading), f"{where}: {len(values)} columns, the first line names {len(heading)}")
        yield _pronoun(dict(zip(heading, values, strict=True)), where)


def _pronoun(row: dict[str, str], where: str) -> Pronoun:
    first, second = (Named(row[key], _span(row, key, where), _truth(row, f"{key}-coref", where)) for key in ("A", "B"))
    return Pronoun(row["ID"], row["Text"], row["Pronoun"], _span(row, "Pronoun", where), (first, second))


def _span(row: dict[str, str], key: str, where: str) -> Span:
    """Where a word stands, and it must stand there."""
    offset, word = row[f"{key}-offset"], row[key]
    start = int(offset) if offset.isdecimal() else -1
    if not word or start < 0 or row["Text"][start : start + len(word)] != word:
        raise InputError(f"{where}: '{word}' ({key}) does not stand at character '{offset}' of the text")
    return start, start + len(word)


def _truth(row: dict[str, str], key: str, where: str) -> bool:
    refuse(row[key] not in TRUTH, f"{where}: {key} is '{row[key]}', expected TRUE or FALSE")
    return TRUTH[row[key]]
