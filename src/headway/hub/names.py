"""Weight names of other formats: one table for each family, used in both directions.

An entry names the foreign weights that one of headway's consists of. Weights that a table does not name are never
loaded; missing, unknown or misshapen ones are reported in one line before anything is filled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headway.errors import InputError

Shape = tuple[int, ...]
LISTED = 4  # names of one kind in an error line


@dataclass(frozen=True)
class Part:
    """A foreign weight, and how many rows of headway's it holds; 0: all of them."""

    name: str
    rows: int = 0


@dataclass(frozen=True)
class Entry:
    """ours = the parts, concatenated by rows; further rows are 0. `transposed`: each part is stored transposed."""

    ours: str
    parts: tuple[Part, ...]
    transposed: bool = False

    def shape_of(self, part: Part, ours: Shape) -> Shape:
        """The shape of a foreign weight where headway's has the shape `ours`."""
        shape = (part.rows or ours[0], *ours[1:]) if ours else ()
        return shape[::-1] if self.transposed else shape

    def views(self, ours: Tensor) -> Iterable[tuple[Part, Tensor]]:
        """Each part with its rows of headway's weight, as a view in the foreign shape."""
        at = 0
        for part in self.parts:
            rows = part.rows or (len(ours) if ours.dim() else 0)
            view = ours[at : at + rows] if ours.dim() else ours
            yield part, view.mT if self.transposed else view
            at += rows

    def numbered(self, n: int) -> Entry:
        parts = tuple(replace(part, name=part.name.replace("{n}", str(n))) for part in self.parts)
        return replace(self, ours=self.ours.replace("{n}", str(n)), parts=parts)


def same(ours: str, theirs: str) -> Entry:
    return Entry(ours, (Part(theirs),))


def both(ours: str, theirs: str) -> list[Entry]:
    """Weight and bias of a layer."""
    return [same(f"{ours}.{kind}", f"{theirs}.{kind}") for kind in ("weight", "bias")]


def transposed(ours: str, theirs: str) -> Entry:
    """For weights that are stored as (inputs, outputs)."""
    return Entry(ours, (Part(theirs),), transposed=True)


def joined(ours: str, theirs: Mapping[str, int]) -> Entry:
    """Several foreign weights, with the rows of each, concatenated."""
    return Entry(ours, tuple(Part(name, rows) for name, rows in theirs.items()))


def padded(ours: str, theirs: str, rows: int) -> Entry:
    """headway's weight has further rows, which are no tokens."""
    return Entry(ours, (Part(theirs, rows),))


def layered(layers: int, entries: Sequence[Entry]) -> list[Entry]:
    """The entries of one layer, with `{n}` in their names, for each layer."""
    return [entry.numbered(n) for n in range(layers) for entry in entries]


@dataclass(frozen=True)
class Table:
    """All entries of a model.

    prefix: of the foreign names; files of the bare model, without a head, leave it out. copies: second names of a tied
    weight, each with the first: optional, and equal where they are present. useless: patterns of names that are no
    weights, such as masks in older files. endings: other endings of the same names (old → new).
    """

    entries: tuple[Entry, ...]
    prefix: str = ""
    copies: Mapping[str, str] | None = None
    useless: tuple[str, ...] = ()
    endings: Mapping[str, str] | None = None

    @property
    def names(self) -> list[str]:
        """The foreign names, as they are written."""
        return [part.name for entry in self.entries for part in entry.parts]

    def resolve(self, found: Iterable[str]) -> dict[str, str]:
        """From each name in this table to its name in a file, for all weights of the file."""
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
        """Raise where a weight is missing, unknown or misshapen; `found` are foreign shapes, `wanted` headway's."""
        if unplaced := sorted(wanted.keys() - {entry.ours for entry in self.entries}):
            raise KeyError(f"the table has no entry for {', '.join(unplaced)}")
        faults = []
        if missing := [name for name in self.names if name not in found]:
            faults.append(f"lacks {_listed(missing)}")
        if unknown := sorted(found.keys() - {*self.names, *(self.copies or {})}):
            faults.append(f"has {_listed(unknown)}, which this model does not have")
        for entry in self.entries:
            for part in entry.parts:
                shape = entry.shape_of(part, wanted[entry.ours])
                if part.name in found and tuple(found[part.name]) != shape:
                    faults.append(f"has {part.name} of shape {list(found[part.name])}, expected {list(shape)}")
        if faults:
            more = f"; and {len(faults) - LISTED} more faults" if len(faults) > LISTED else ""
            raise InputError(f"{where} {'; '.join(faults[:LISTED])}{more}: does its config.json belong to it?")

    def fill(self, ours: Mapping[str, Tensor], get: Callable[[str], Tensor]) -> None:
        """Copy each foreign weight to its place."""
        for entry in self.entries:
            self.fill_one(entry, ours[entry.ours], get)

    def fill_one(self, entry: Entry, ours: Tensor, get: Callable[[str], Tensor]) -> None:
        filled = 0
        for part, view in entry.views(ours):
            view.copy_(get(part.name))
            filled += part.rows or len(ours)
        if ours.dim() and filled < len(ours):
            ours[filled:] = 0


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(f"'{name}'" for name in names[:LISTED]) + more


def from_hf(table: Table, theirs: Mapping[str, Tensor], shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """headway's weights, of these shapes, from foreign ones."""
    name_of = table.resolve(theirs)
    table.check({name: tuple(theirs[found].shape) for name, found in name_of.items()}, shapes, "the checkpoint")
    kind = {entry.ours: theirs[name_of[entry.parts[0].name]] for entry in table.entries}
    ours = {name: torch.empty(shape, dtype=kind[name].dtype) for name, shape in shapes.items()}
    table.fill(ours, lambda name: theirs[name_of[name]])
    return ours


def to_hf(table: Table, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The foreign weights, each once, as new tensors."""
    return {
        part.name: view.detach().clone(memory_format=torch.contiguous_format)
        for entry in table.entries
        for part, view in entry.views(ours[entry.ours])
    }
