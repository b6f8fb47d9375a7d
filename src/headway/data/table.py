"""Tables in files: comma-separated with quotes (.csv), tab-separated (.tsv), JSON lines (.jsonl); rows know their line.

A .csv may have line breaks and doubled quotes in a quoted field, as Python's csv module, pandas and spreadsheets write
them. A .tsv has no quotes: a tab separates, whatever stands around it. Of JSON lines the keys are the columns.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from headway.data.readers import UTF8, bare_suffix, lines, member, records
from headway.errors import InputError, refuse

ARCHIVE = re.compile(r"(.*?\.(?:zip|tar\.gz|tgz))/(.*)")
LONGEST = 10_000_000  # characters of a cell


class Row(NamedTuple):
    """cells: of JSON any value, None where a key is missing."""

    line: int
    cells: list[Any]


@dataclass(frozen=True)
class Table:
    """names: of the columns, none where a file does not say them."""

    file: str
    rows: list[Row]
    names: tuple[str, ...] = ()

    def where(self, row: Row) -> str:
        return f"{self.file}, line {row.line}"

    @property
    def width(self) -> int:
        return len(self.names) or (len(self.rows[0].cells) if self.rows else 0)

    def called(self, column: int) -> str:
        return f"'{self.names[column]}'" if self.names else str(column + 1)

    @cached_property
    def columns(self) -> list[list[str]]:
        """The cells of each column as text."""
        return [["" if (cell := row.cells[at]) is None else str(cell) for row in self.rows] for at in range(self.width)]


def in_archive(name: str) -> tuple[str, str]:
    """The file that a name stands for and, where that is an archive, the member of it."""
    found = ARCHIVE.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def text_lines(file: str, encoding: str = UTF8) -> Iterator[str]:
    """The lines of a file, or of a member of an archive; a NUL in one is refused."""
    archive, inside = in_archive(file)
    for number, row in enumerate(member(Path(archive), inside) if inside else lines(file, encoding), 1):
        refuse("\0" in row, f"{file}, line {number}: a NUL byte, which no text has: the file is damaged or binary")
        refuse(len(row) > LONGEST, f"{file}, line {number}: {len(row):,} characters, {LONGEST:,} are the most")
        yield row


def read_table(file: str) -> Table:
    """The rows of a .csv, .tsv or .jsonl; all of them have the same number of cells."""
    return READERS[bare_suffix(Path(file))](file)


def _read_tsv(file: str) -> Table:
    rows = [Row(number, row.split("\t")) for number, row in enumerate(text_lines(file), 1) if row.strip()]
    return _even(Table(file, rows))


def _read_csv(file: str) -> Table:
    rows, start = list[Row](), 1
    given = text_lines(file)
    first = next(given, "")
    mark = ";" if ";" in first and "," not in first else ","
    reader = csv.reader(_with_ends(first, given), strict=True, delimiter=mark)
    with _field_limit(LONGEST):
        try:
            for cells in reader:
                if "".join(cells).strip():
                    rows.append(Row(start, cells))
                start = reader.line_num + 1
        except csv.Error as error:
            raise InputError(f"{file}, line {start}: not a row of a .csv ({error}): is a quote missing?") from error
    return _even(Table(file, rows))


def _with_ends(first: str, others: Iterator[str]) -> Iterator[str]:
    yield first + "\n"
    for row in others:
        yield row + "\n"


@contextmanager
def _field_limit(characters: int) -> Iterator[None]:
    """The csv module has one limit for the whole process."""
    before = csv.field_size_limit(characters)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _even(table: Table) -> Table:
    for row in table.rows:
        if len(row.cells) != table.width:
            first = table.rows[0]
            mark = "a tab in a text" if bare_suffix(Path(table.file)) == ".tsv" else "a comma without quotes"
            raise InputError(
                f"{table.where(row)}: {_counted(len(row.cells))}, but line {first.line} has {table.width}"
                + (f": is there {mark}?" if len(row.cells) > table.width else ": the row is cut short")
            )
    return table


def _counted(cells: int) -> str:
    return f"{cells} column" + "s" * (cells != 1)


def _read_jsonl(file: str) -> Table:
    found = [record for _, record in records(text_lines(file), file, "a text and a label")]
    names = tuple(dict.fromkeys(name for record in found for name in record))
    rows = [Row(number, [record.get(name) for name in names]) for number, record in enumerate(found, 1)]
    return Table(file, rows, names)


READERS: dict[str, Callable[[str], Table]] = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_jsonl}
