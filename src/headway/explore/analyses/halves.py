"""A choice is judged on other data than it was made on: of many heads the best on some data looks too good there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

from headway.errors import InputError

Item = TypeVar("Item")


class Dealt(NamedTuple):
    """measured: it belongs to the half that figures are told of, not to the half that heads are chosen on."""

    where: str
    measured: bool


def halves(files: Sequence[str], read: Callable[[str], Iterator[Item]], kind: str) -> Iterator[tuple[Dealt, Item]]:
    """What the files hold, in turns from both halves, so that a part of them is a part of both: of two files the
    first is chosen on and the second measured on, of one file every second `kind` is measured on."""
    if len(files) not in (1, 2):
        raise InputError(f"{len(files)} files: give one, or two (to choose heads on, and to measure them on)")
    if len(files) == 1:
        for number, item in enumerate(read(files[0]), 1):
            yield Dealt(f"{files[0]}, {kind} {number}", number % 2 == 0), item
        return
    for number, both in enumerate(zip_longest(*map(read, files)), 1):
        for measured, (file, item) in enumerate(zip(files, both, strict=True)):
            if item is not None:
                yield Dealt(f"{file}, {kind} {number}", bool(measured)), item


def told(files: Sequence[str], kind: str) -> str:
    """How they were chosen, as a note says it."""
    names = [Path(file).name for file in files]
    if len(names) == 1:
        return f"chosen on every other {kind} of {names[0]}, measured on the rest"
    return f"chosen on {names[0]}, measured on {names[1]}"
