"""Which columns of a table have the texts and the labels: what the user says, what the header says, or what the cells
look like. This is the one place that decides it.

A column is said by its name or its number, from 1 on. Without that:
- the first row is a header where its cells are names that do not come again in their columns;
- known names decide (`label`, `sentence`, `premise` and `hypothesis` …), the order does not matter;
- without a header CoLA's four columns (source, label, mark, text) are recognised; otherwise the labels are in the
  first column, unless another has at most half as many different values, or labels that a model knows; whole numbers
  that are all different only count rows; what remains is the text, or a pair of texts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from headway.data.table import Table
from headway.errors import InputError, nearest

LABELS = (
    "label", "labels", "gold_label", "class", "category", "target", "sentiment", "is_duplicate", "quality", "polarity",
    "intent", "topic", "y",
)  # fmt: skip
NUMBERS = ("score", "rating", "stars", "similarity")
TEXTS = (
    "text", "sentence", "content", "review", "comment", "tweet", "message", "utterance", "phrase", "document", "body",
    "question", "headline", "title", "description", "input",
)  # fmt: skip
PAIRS = (
    ("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"), ("#1 string", "#2 string"),
    ("text1", "text2"), ("text_a", "text_b"), ("question", "sentence"), ("text", "second"),
)  # fmt: skip
NAME = re.compile(r"[^\W\d][\w#/.-]*( [\w#/.-]+){0,2}|#\d \w+")
Answer = Literal["one", "several", "number"]
ENOUGH = 20  # rows from which on it is strange that nearly each has a label of its own


@dataclass(frozen=True)
class Columns:
    """Names or numbers (from 1 on) of the columns with the texts, two for pairs, and with the labels; what is empty is
    decided by the table."""

    texts: tuple[str, ...] = ()
    label: str = ""


FOUND = Columns()


@dataclass(frozen=True)
class Places:
    """The same as places in a row, from 0 on."""

    texts: tuple[int, ...]
    label: int


def with_header(table: Table, columns: Columns) -> Table:
    """The table with its first row as names where that is a header."""
    if table.names or not table.rows:
        return table
    names = tuple(str(cell).strip() for cell in table.rows[0].cells)
    asked = {name for name in (*columns.texts, columns.label) if name and not name.isdecimal()}
    if asked & set(names) or _is_header(table, names):
        return replace(table, rows=table.rows[1:], names=names)
    return table


def _is_header(table: Table, names: Sequence[str]) -> bool:
    # pandas leaves the name of its index empty
    likely = all(NAME.fullmatch(name) and len(name) <= 40 for name in names[1:]) and len(set(names)) == len(names)
    if not likely or not (names[0] == "" or NAME.fullmatch(names[0])):
        return False
    if any(name in column[1:] for name, column in zip(names, table.columns, strict=True)):
        return False
    known = _known(names)
    labels, texts = (any(name in known for name in some) for some in (LABELS, (*TEXTS, *chain(*PAIRS))))
    if labels and texts or (labels or texts) and len(table.rows) > 1:
        return True
    rows = len(table.rows) - 1  # names that nobody knows, above a column that repeats a few values
    return rows >= 10 and any(len(set(column[1:])) <= rows // 5 for column in table.columns)


def find_columns(table: Table, columns: Columns, known: Collection[str] = (), answer: Answer = "one") -> Places:
    """Where texts and labels are. known: labels that a model has. answer: what a text has: one label, several, or a
    number."""
    if table.width < 2:
        first, only = table.where(table.rows[0]), f" ('{table.names[0]}')" if table.names else ""
        raise InputError(f"{first}: only one column{only}; a text and a label are needed")
    texts = tuple(_place(table, name, "--text-column") for name in columns.texts)
    label = _place(table, columns.label, "--label-column") if columns.label else _label(table, texts, known, answer)
    places = Places(texts or _texts(table, label), label)
    if label in places.texts:
        raise InputError(f"{table.file}: column {table.called(label)} cannot be both text and label; {_there(table)}")
    if answer == "one":
        _check(table, places, known)
    return places


def text_places(table: Table, columns: Columns) -> tuple[int, ...]:
    """Where the texts are, in a table that may have no labels."""
    if columns.texts:
        return tuple(_place(table, name, "--text-column") for name in columns.texts)
    if table.width == 1:
        return (0,)
    if found := _named_texts(table):
        return found
    return find_columns(table, columns).texts


def _place(table: Table, name: str, option: str) -> int:
    if name in table.names:
        return table.names.index(name)
    if name.isdecimal() and 1 <= int(name) <= table.width:
        return int(name) - 1
    close = nearest(name, table.names)
    hint = close if "did you mean" in close else ""
    raise InputError(f"{table.file} has no column '{name}' ({option}): {_there(table)}{hint}")


def _there(table: Table) -> str:
    if table.names:
        return f"there are columns {', '.join(name or '(no name)' for name in table.names)}"
    return f"there are columns 1 to {table.width}, without names"


def _known(names: Sequence[str]) -> dict[str, int]:
    return {name.lower(): at for at, name in reversed(list(enumerate(names)))}


def _label(table: Table, texts: Collection[int], known: Collection[str], answer: Answer) -> int:
    names = _known(table.names)
    for name in (*LABELS, *(NUMBERS if answer == "number" else ())):
        if name in names and names[name] not in texts:
            return names[name]
    if not table.names and _is_cola(table):
        return 1
    left = [at for at in range(table.width) if at not in texts and not (table.width > 2 and _is_index(table, at))]
    left = [at for at in left if at not in _named_texts(table)] or left
    if answer == "number":
        left = [at for at in left if all(is_number(cell) for cell in table.columns[at])] or left
    if known and (fitting := [at for at in left if set(table.columns[at]) <= set(known)]):
        left = fitting
    if len(left) > 3 or (table.names and len(left) > 2 and not texts):
        raise InputError(f"{table.file}: which column has the labels? {_there(table)}: say --label-column NAME")
    different = {at: len(set(table.columns[at])) for at in left}
    fewest = min((at for at in left if different[at] > 1), key=lambda at: different[at], default=left[0])
    return fewest if 2 * different[fewest] <= different[left[0]] else left[0]


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _named_texts(table: Table) -> tuple[int, ...]:
    names = _known(table.names)
    for pair in PAIRS:
        if all(name in names for name in pair):
            return names[pair[0]], names[pair[1]]
    return next(((names[name],) for name in TEXTS if name in names), ())


def _texts(table: Table, label: int) -> tuple[int, ...]:
    if (found := _named_texts(table)) and label not in found:
        return found
    if not table.names and _is_cola(table) and label == 1:
        return (3,)
    left = [at for at in range(table.width) if at != label]
    left = [at for at in left if not _is_index(table, at)] or left
    if len(left) > (1 if table.names else 2):
        raise InputError(
            f"{table.file}: which column has the texts? {_there(table)}: say --text-column NAME, or two names for pairs"
        )
    return tuple(left)


def _is_cola(table: Table) -> bool:
    """Source, 0 or 1, the linguist's mark, sentence (Warstadt et al. 2019)."""
    if table.width != 4:
        return False
    return set(table.columns[1]) <= {"0", "1"} and not any(re.search(r"\w", mark) for mark in set(table.columns[2]))


def _is_index(table: Table, at: int) -> bool:
    column = table.columns[at]
    return len(column) > 2 and len(set(column)) == len(column) and all(cell.isdecimal() for cell in column)


def _check(table: Table, places: Places, known: Collection[str]) -> None:
    """Refuse labels of which nearly each row has its own, or of which there are more than texts."""
    labels, rows = set(table.columns[places.label]), len(table.rows)
    different = len(set(zip(*(table.columns[at] for at in places.texts), strict=True)))
    if labels <= set(known) or rows < ENOUGH or len(labels) <= min(rows / 2, different):
        return
    texts = " and ".join(map(table.called, places.texts))
    raise InputError(
        f"{table.file}: column {table.called(places.label)} was taken for the labels and {texts} for the texts, but "
        f"{rows:,} rows have {len(labels):,} different labels and {different:,} texts; {_there(table)}: "
        f"{_advice(labels, different)}"
    )


def _advice(labels: Collection[str], different: int) -> str:
    return "they look swapped" if different * 2 < len(labels) else "say --label-column NAME"
