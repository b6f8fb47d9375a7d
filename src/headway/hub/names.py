"""Weight names of other formats: for each family one table that is read both ways.

An entry says of which of their weights one of ours is made. What a table does not name is never loaded, and what is
missing, left over or of another shape is told in one line before anything is filled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headway.errors import InputError

Shape = tuple[int, ...]
TOLD = 4  # names of one kind that an error line lists


@dataclass(frozen=True)
class Piece:
    """One of their weights, and how many rows of ours it gives; 0 for all of them."""

    name: str
    rows: int = 0


@dataclass(frozen=True)
class Entry:
    """ours = their pieces one below the other; rows of ours behind them are 0. `transposed`: each piece is turned."""

    ours: str
    pieces: tuple[Piece, ...]
    transposed: bool = False

    def shape_of(self, piece: Piece, ours: Shape) -> Shape:
        """What their weight must look like for ours to have that shape."""
        shape = (piece.rows or ours[0], *ours[1:]) if ours else ()
        return shape[::-1] if self.transposed else shape

    def parts(self, ours: Tensor) -> Iterable[tuple[Piece, Tensor]]:
        """Each piece with its place inside our weight, as a view in their shape."""
        at = 0
        for piece in self.pieces:
            rows = piece.rows or (len(ours) if ours.dim() else 0)
            part = ours[at : at + rows] if ours.dim() else ours
            yield piece, part.mT if self.transposed else part
            at += rows

    def numbered(self, n: int) -> Entry:
        pieces = tuple(replace(piece, name=piece.name.replace("{n}", str(n))) for piece in self.pieces)
        return replace(self, ours=self.ours.replace("{n}", str(n)), pieces=pieces)


def same(ours: str, theirs: str) -> Entry:
    return Entry(ours, (Piece(theirs),))


def transposed(ours: str, theirs: str) -> Entry:
    """For weights that are stored as (inputs, outputs)."""
    return Entry(ours, (Piece(theirs),), transposed=True)


def joined(ours: str, theirs: Mapping[str, int]) -> Entry:
    """Several of theirs, with the rows of each, one below the other in ours."""
    return Entry(ours, tuple(Piece(name, rows) for name, rows in theirs.items()))


def padded(ours: str, theirs: str, rows: int) -> Entry:
    """Ours has rows behind theirs that are no tokens."""
    return Entry(ours, (Piece(theirs, rows),))


def layered(layers: int, entries: Sequence[Entry]) -> list[Entry]:
    """The entries of one layer, `{n}` in their names, for each of so many."""
    return [entry.numbered(n) for n in range(layers) for entry in entries]


@dataclass(frozen=True)
class Table:
    """All entries of a model.

    prefix: what their names begin with; files of the bare model, without a head, leave it out. copies: second names of
    a weight that is tied, each with the first: they may be there, and must then be equal. useless: patterns of names
    that are no weights, such as masks that older programs kept. endings: other endings of the same names (old → new).
    """

    entries: tuple[Entry, ...]
    prefix: str = ""
    copies: Mapping[str, str] | None = None
    useless: tuple[str, ...] = ()
    endings: Mapping[str, str] | None = None

    @property
    def names(self) -> list[str]:
        """Theirs, as they are written."""
        return [piece.name for entry in self.entries for piece in entry.pieces]

    def resolve(self, found: Iterable[str]) -> dict[str, str]:
        """From a name in this table to the name in a file, for all that the file has and that is a weight."""
        known = {*self.names, *(self.copies or {})}
        result: dict[str, str] = {}
        listed = list(found)
        bare = bool(self.prefix) and not any(name.startswith(self.prefix) for name in listed)
        for name in listed:
            wanted = next((name.removesuffix(old) + new for old, new in self._endings if name.endswith(old)), name)
            if bare and wanted not in known:
                wanted = self.prefix + wanted
            if wanted in known or not self._is_useless(wanted):
                result[wanted] = name
        return result

    @property
    def _endings(self) -> list[tuple[str, str]]:
        return list((self.endings or {}).items())

    def _is_useless(self, name: str) -> bool:
        return any(re.search(pattern, name) for pattern in self.useless)

    def check(self, found: Mapping[str, Shape], wanted: Mapping[str, Shape], where: str) -> None:
        """Their shapes by name in this table, our shapes by our names: whether each fits, and none is left over."""
        if unplaced := sorted(wanted.keys() - {entry.ours for entry in self.entries}):
            raise KeyError(f"the table has no entry for our own {', '.join(unplaced)}")
        faults = []
        if missing := [name for name in self.names if name not in found]:
            faults.append(f"lacks {_listed(missing)}")
        if unknown := sorted(found.keys() - {*self.names, *(self.copies or {})}):
            faults.append(f"has {_listed(unknown)}, which this model does not know")
        for entry in self.entries:
            for piece in entry.pieces:
                shape = entry.shape_of(piece, wanted[entry.ours])
                if piece.name in found and tuple(found[piece.name]) != shape:
                    faults.append(f"has {piece.name} of shape {list(found[piece.name])}, expected {list(shape)}")
        if faults:
            more = f"; and {len(faults) - TOLD} more faults" if len(faults) > TOLD else ""
            raise InputError(f"{where} {'; '.join(faults[:TOLD])}{more}: does its config.json belong to it?")

    def fill(self, ours: Mapping[str, Tensor], get: Callable[[str], Tensor]) -> None:
        """Copy each of their weights to its place in ours."""
        for entry in self.entries:
            self.fill_one(entry, ours[entry.ours], get)

    def fill_one(self, entry: Entry, ours: Tensor, get: Callable[[str], Tensor]) -> None:
        filled = 0
        for piece, part in entry.parts(ours):
            part.copy_(get(piece.name))
            filled += piece.rows or len(ours)
        if ours.dim() and filled < len(ours):
            ours[filled:] = 0


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return ", ".join(f"'{name}'" for name in names[:TOLD]) + more


def from_hf(table: Table, theirs: Mapping[str, Tensor], shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Our weights, of these shapes, made of theirs."""
    name_of = table.resolve(theirs)
    table.check({name: tuple(theirs[found].shape) for name, found in name_of.items()}, shapes, "the checkpoint")
    kind = {entry.ours: theirs[name_of[entry.pieces[0].name]] for entry in table.entries}
    ours = {name: torch.empty(shape, dtype=kind[name].dtype) for name, shape in shapes.items()}
    table.fill(ours, lambda name: theirs[name_of[name]])
    return ours


def to_hf(table: Table, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their weights, each once, as tensors of their own."""
    return {
        piece.name: part.detach().clone(memory_format=torch.contiguous_format)
        for entry in table.entries
        for piece, part in entry.parts(ours[entry.ours])
    }
