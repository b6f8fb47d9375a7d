"""Labelled files: where they lie, which label each has, and reading them all."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.columns import Columns, find_columns
from headway.data.labelled import is_table
from headway.data.readers import at_least_one, must_be_there
from headway.data.table import read_table
from headway.errors import InputError, refuse

NAMED = 5  # files that a line lists
Example = tuple[Any, str, str]  # a value, its label, and where it is from
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """Files of one kind: what they are called in messages, in the plural, and how their names end."""

    what: str
    suffixes: tuple[str, ...]

    def has(self, name: Any) -> bool:
        return Path(str(name)).suffix.lower() in self.suffixes

    @property
    def ends(self) -> str:
        return ", ".join(self.suffixes)


def labelled_files(place: Path, wanted: Wanted) -> Iterator[Example] | None:
    """Those of a folder that has a folder for each label, or of a table with paths (from its own folder on) and labels;
    None where the place is neither."""
    if place.is_dir():
        return _in_folder(place, wanted)
    return _in_table(place, wanted) if is_table(str(place)) else None


def _in_folder(place: Path, wanted: Wanted) -> Iterator[Example]:
    return ((path, path.parent.name, str(path)) for path in sorted(place.glob("*/*")) if wanted.has(path))


def _in_table(place: Path, wanted: Wanted) -> Iterator[Example]:
    table = read_table(str(place))
    first_row = 0 if table.names or len(table.rows) == 1 else 1  # the first may be a header
    paths = [at for at, cells in enumerate(table.columns) if all(map(wanted.has, cells[first_row:]))]
    refuse(not table.rows or not paths, f"{place}: no column has paths of {wanted.what} ({wanted.ends})")
    first = table.rows[0]
    if not table.names and not wanted.has(first.cells[paths[0]]):
        table = replace(table, rows=table.rows[1:], names=tuple(map(str, first.cells)))
        refuse(not table.rows, f"{place}: there is only a header")
    label = find_columns(table, Columns((str(paths[0] + 1),))).label
    for row, name, said in zip(table.rows, table.columns[paths[0]], table.columns[label], strict=True):
        refuse(not said.strip(), f"{table.where(row)}: there is no label")
        yield place.parent / name, said, table.where(row)


def arrays_in(place: Path) -> dict[str, Any]:
    """Those of a .npz, by name."""
    with _opened(place) as file:
        found = {name: file[name] for name in file.files}
    for name, value in found.items():  # numpy gives the bytes of a member whose first bytes are not an array's
        refuse(not isinstance(value, np.ndarray), f"{place} is no whole .npz of plain arrays: {name} is none")
    return found


def names_in(place: Path) -> list[str]:
    """The names of a .npz's arrays, which are not read."""
    with _opened(place) as file:
        return list(file.files)


@contextmanager
def _opened(place: Path) -> Iterator[Any]:
    must_be_there(place)
    try:
        opened: Any = np.load(place, allow_pickle=False)
        if isinstance(opened, np.ndarray):
            raise ValueError("it is a single array")
        with opened as file:
            yield file
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{place} is no whole .npz of plain arrays: {error}") from error


def read_all(
    places: Sequence[str | Path], examples: Callable[[Path], Iterator[Example]], read: Callable[[Any], Any],
    wanted: Wanted, broken: str = "refuse", say: Say = lambda line: None,
) -> tuple[list[Any], tuple[str, ...], tuple[str, ...]]:  # fmt: skip
    """Values, labels and names of all places, in order. broken: a value that cannot be read is an error ("refuse"), or
    is left out and told ("skip")."""
    nothing = f"{', '.join(map(str, places))}: there is no {wanted.what.removesuffix('s')} in it ({wanted.ends})"
    found = list(at_least_one((one for place in map(Path, places) for one in examples(place)), nothing))
    with ThreadPoolExecutor() as threads:  # unpacking is not done in Python
        values = list(threads.map(partial(_tried, read, skip=broken == "skip"), (value for value, _, _ in found)))
    there = [at for at, value in enumerate(values) if value is not None]
    if len(there) < len(found):
        missing = sorted(set(range(len(found))) - set(there))
        named = ", ".join(found[at][2] for at in missing[:NAMED]) + (" …" if len(missing) > NAMED else "")
        say(f"left out {len(missing):,} of {len(found):,} {wanted.what} that cannot be read: {named}")
        refuse(not there, nothing)
    labels, names = (tuple(found[at][field] for at in there) for field in (1, 2))
    return [values[at] for at in there], labels, names


def _tried(read: Callable[[Any], Any], value: Any, skip: bool) -> Any:
    try:
        return read(value)
    except InputError:
        if skip:
            return None
        raise
