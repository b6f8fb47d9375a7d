"""Files of text as analyses read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from headway.data.readers import at_least_one, form, lines, read_pairs
from headway.errors import InputError, refuse
from headway.explore.analyses.analysis import Text

BAR = "|||"  # between the two sides in the files of word aligners


def read_texts(files: Sequence[str], *, blank: bool = False) -> Iterator[Text]:
    """One file: a text a line. Two: a text and its translation. Blank lines are left out, unless something else counts
    lines; there must be a text."""
    if len(files) not in (1, 2):
        raise InputError(f"{len(files)} files: give one file of text, or two that are translations of each other")
    number, found = 0, False
    rows = read_pairs(files) if len(files) == 2 else ((line, None) for line in lines(files[0]))
    for number, (first, second) in enumerate(rows, 1):
        written = bool(first.strip()) and (second is None or bool(second.strip()))
        found = found or written
        if written or blank:
            yield Text(f"{files[0]}, line {number}", first, second)
    refuse(not found, f"{files[0]} has no text ({number} lines, all blank): give a file with a text a line")


def read_parallel(files: Sequence[str]) -> Iterator[Text]:
    """Every pair in its place, so that line numbers fit those of gold alignments: two files, a .tsv, or one file with
    `source ||| target` a line. An empty side is an error."""
    pairs = _barred(files[0]) if len(files) == 1 and form(files[0]) == "text" else read_pairs(files)
    some = at_least_one(pairs, f"{files[0]} has no text: give parallel text")
    for number, (first, second) in enumerate(some, 1):
        where = f"{files[0]}, line {number}"
        if not first.strip() or not second.strip():
            raise InputError(f"{where}: one side is empty, and nothing can be aligned with it")
        yield Text(where, first.strip(), second.strip())


def _barred(file: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines(file), 1):
        sides = line.split(BAR)
        refuse(len(sides) != 2, f"{file}, line {number}: expected `source {BAR} target`, or give two files")
        yield sides[0], sides[1]


def halves(files: Sequence[str], read: Callable[[str], Iterator[Any]], kind: str) -> Iterator[Text]:
    """What the files hold, as texts whose `item` is (whether it belongs to the half that is measured, what was read).

    Heads are chosen on one half of the data and measured on the other: the best of many looks too good where it was
    chosen. The halves alternate, so that the first texts are of both. Of two files heads are chosen on the first and
    measured on the second; of one file every second `kind` is measured on."""
    if len(files) not in (1, 2):
        raise InputError(f"{len(files)} files: give one, or two (to choose heads on, and to measure them on)")
    for number, both in enumerate(zip_longest(*map(read, files)), 1):
        for half, (file, found) in enumerate(zip(files, both, strict=True)):
            if found is not None:
                measured = bool(half) if len(files) == 2 else number % 2 == 0
                yield Text(f"{file}, {kind} {number}", found.text, item=(measured, found))


def chosen_on(files: Sequence[str], kind: str) -> str:
    """How heads were chosen, for a note."""
    names = [Path(file).name for file in files]
    if len(names) == 1:
        return f"chosen on every other {kind} of {names[0]}, measured on the rest"
    return f"chosen on {names[0]}, measured on {names[1]}"
