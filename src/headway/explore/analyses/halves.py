"""Heads are chosen on one half of the data and measured on the other: the best of many looks too good where it was
chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from headway.errors import InputError
from headway.explore.analyses.analysis import Text


class Written(Protocol):
    @property
    def text(self) -> str: ...


def halves(files: Sequence[str], read: Callable[[str], Iterator[Written]], kind: str) -> Iterator[Text]:
    """What the files hold, as texts whose `item` is (whether it belongs to the half that is measured, what was read).

    The halves alternate, so that the first texts are of both. Of two files heads are chosen on the first and measured
    on the second; of one file every second `kind` is measured on."""
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
