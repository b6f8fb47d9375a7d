"""Weight names of other formats: one table for each family, used in both directions.

A line of a table names the foreign modules that one of headway's consists of:

    "decoder.layers.*.attention.qkv": "model.layers.*.self_attn.{q,k,v}_proj"    * is a layer's number, {…} are several
    "decoder.layers.*.attention.output": "transformer.h.*.attn.c_projᵀ"          ᵀ: stored as (inputs, outputs)
    "decoder.layers.*.feed_forward.expand_EFD": "h.*.experts.[8].w{1,3}.weight"  [8]: eight, stacked in headway
    "output.rest_VC": "lm_head.bias₀"                                            ₀: a vector, here the only column
    "decoder.layers.*.attention.qkv.bias": "layers.*.self_attn.{q,–,v}.bias"     –: they lack it; ours is 0

A line holds for the weight and for the bias, where headway's model has them; a parameter of another name has a line of
its own. Rows of a packed matrix may have another order (`orders`, `by_group`). Weights that a table does not name are
never loaded; missing, unknown or misshapen ones are reported in one line before anything is filled. Those of another
head, outside of the model's own prefix, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from headway.errors import InputError

Shape = tuple[int, ...]
LISTED = 4  # names of one kind in an error line
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
SEVERAL = re.compile(r"(.*)\{(.*)\}(.*)")
STACKED = re.compile(r"(.*)\[(\d+)\](.*)")
TOKENS = ("embed.table.weight", "output.weight")  # headway's may have further rows, which are no tokens


@dataclass(frozen=True)
class Entry:
    """ours = the parts, concatenated by rows in these shares; further rows than `rows` (0: all) are 0. `transposed`:
    each part is stored transposed. `stacked`: ours has so many matrices, each of which consists of as many parts as
    there are shares. `column`: ours has one column, theirs is a vector. `order`: of our rows, as theirs lie. `shape`:
    theirs, of the same numbers in the same order. A part without a name is one that they lack: ours is 0 there."""

    ours: str
    parts: tuple[str, ...]
    shares: tuple[int, ...]
    rows: int = 0
    transposed: bool = False
    stacked: int = 0
    column: bool = False
    order: Tensor | None = None
    shape: Shape = ()

    @property
    def plain(self) -> bool:
        """Whether ours is theirs as they lie, or transposed."""
        return self.order is None and not self.stacked and not self.column and not self.shape and all(self.parts)

    def views(self, ours: Tensor) -> list[tuple[str, Tensor]]:
        """Each part with its rows of headway's weight, as a view in the foreign shape; not yet in their order."""
        if self.shape:
            return [(self.parts[0], ours.view(self.shape))]
        matrices = [ours[number] for number in range(self.stacked)] if self.stacked else [ours]
        views = [view for matrix in matrices for view in self._split(matrix)]
        return [(part, view.mT if self.transposed else view) for part, view in zip(self.parts, views, strict=True)]

    def _split(self, ours: Tensor) -> Sequence[Tensor]:
        rows = self.rows or len(ours)
        ours = ours[:rows, 0] if self.column else ours[:rows]
        if len(self.shares) == 1:
            return [ours]
        return ours.split([rows * share // sum(self.shares) for share in self.shares])

    def theirs(self, ours: Tensor) -> list[tuple[str, Tensor]]:
        """Each part as it is stored."""
        return [(name, view) for name, view in self.views(ours if self.order is None else ours[self.order]) if name]

    def fill(self, ours: Tensor, get: Callable[[str], Tensor]) -> None:
        """Write the parts into headway's weight."""
        target = ours if self.order is None else torch.empty_like(ours)
        for name, view in self.views(target):
            view.copy_(get(name)) if name else view.zero_()
        if self.order is not None:
            ours[self.order] = target


def by_group(heads: int, shared: int, head_width: int) -> Tensor:
    """The rows of queries, keys and values, in the order of a matrix that has for each of the shared keys its queries,
    the key and the value: [q … q k v] [q … q k v] …"""
    rows = torch.arange((heads + 2 * shared) * head_width).view(-1, head_width)
    q, k, v = (part.unflatten(0, (shared, -1)) for part in rows.split([heads, shared, shared]))
    return torch.cat([q, k, v], dim=1).flatten()


def below(ours: str, theirs: str, names: Mapping[str, str]) -> dict[str, str]:
    """The lines of a table with these beginnings."""
    return {ours + own: theirs + name for own, name in names.items()}


@dataclass(frozen=True)
class Table:
    """The weights of a model.

    names: headway's modules and theirs. ours: the parameters of headway's model. prefix: of the foreign names; files of
    the bare model, without a head, leave it out. copies: second names of a tied weight, each with the first: optional,
    and equal where they are present. useless: patterns of names that are no weights, such as masks in older files.
    endings: other endings of the same names (old → new). spelled: the name here of a weight that files call otherwise.
    shares: the rows of queries, keys and values, as a ratio.
    vocabulary: how many tokens there are (0: all rows). number: how a layer's number is written. orders: of the rows of
    headway's modules, as theirs lie. shapes: of parameters whose numbers they hold in another shape. doubt: what to ask
    where weights do not fit.
    """

    names: Mapping[str, str]
    ours: Collection[str] = ()
    prefix: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)
    useless: tuple[str, ...] = ()
    endings: Mapping[str, str] = field(default_factory=dict)
    spelled: Callable[[str], str] = str
    shares: tuple[int, int, int] = (1, 1, 1)
    vocabulary: int = 0
    number: Callable[[int], str] = str
    orders: Mapping[str, Tensor] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    doubt: str = "does its config.json belong to it?"

    @cached_property
    def entries(self) -> list[Entry]:
        return [self._entry(name) for name in self.ours]

    def _entry(self, ours: str) -> Entry:
        found = NUMBER.search(ours)
        name = NUMBER.sub("*", ours, count=1)
        module, _, end = name.rpartition(".")
        if name not in self.names and module not in self.names:
            raise KeyError(f"the table has no entry for {ours}")
        theirs, end = (self.names[name], "") if name in self.names else (self.names[module], f".{end}")
        transposed = theirs.endswith("ᵀ") and end != ".bias"
        theirs = theirs.removesuffix("ᵀ").replace("*", self.number(int(found[0])) if found else "*") + end
        column, theirs = "₀" in theirs, theirs.replace("₀", "")
        stack = STACKED.fullmatch(theirs)
        stacked = int(stack[2]) if stack else 0
        each = [f"{stack[1]}{number}{stack[3]}" for number in range(stacked)] if stack else [theirs]
        parts = [_several(name) for name in each]
        shares = self.shares if len(parts[0]) == len(self.shares) else (1,) * len(parts[0])
        rows = self.vocabulary if ours in TOKENS else 0
        names, order = tuple(name for some in parts for name in some), self.orders.get(module)
        return Entry(ours, names, shares, rows, transposed, stacked, column, order, self.shapes.get(ours, ()))

    @cached_property
    def theirs(self) -> list[str]:
        """The foreign names, as they are written."""
        return [part for entry in self.entries for part in entry.parts if part]

    def resolve(self, found: Collection[str]) -> dict[str, str]:
        """From each name in this table to its name in a file, for all weights of the file."""
        known = {*self.theirs, *self.copies}
        result: dict[str, str] = {}
        bare = bool(self.prefix) and not any(name.startswith(self.prefix) for name in found)
        for name in found:
            spelled = self.spelled(name)
            ends = ((old, new) for old, new in self.endings.items() if spelled.endswith(old))
            wanted = next((spelled.removesuffix(old) + new for old, new in ends), spelled)
            if bare and wanted not in known:
                wanted = self.prefix + wanted
            if wanted in known or not any(re.search(pattern, wanted) for pattern in self.useless):
                result[wanted] = name
        return result

    def unknown(self, found: Collection[str], inside: bool) -> list[str]:
        """Weights of a file that this model does not have: `inside` the model itself, or of another head."""
        names = sorted({*found} - {*self.theirs, *self.copies})
        return [name for name in names if name.startswith(self.prefix) == inside]

    def check(self, found: Mapping[str, Shape], ours: Mapping[str, Tensor], where: str) -> None:
        """Raise where a weight is missing, unknown or misshapen; `found` are foreign shapes, `ours` headway's."""
        faults = []
        if missing := [name for name in self.theirs if name not in found]:
            faults.append(f"lacks {listed(missing)}")
        if unknown := self.unknown(found, inside=True):
            faults.append(f"has {listed(unknown)}, which this model does not have")
        for entry in self.entries:
            for name, view in entry.views(ours[entry.ours]):
                if name in found and tuple(found[name]) != view.shape:
                    faults.append(f"has {name} of shape {list(found[name])}, expected {list(view.shape)}")
        if faults:
            more = f"; and {len(faults) - LISTED} more faults" if len(faults) > LISTED else ""
            raise InputError(f"{where} {'; '.join(faults[:LISTED])}{more}: {self.doubt}")


def _several(name: str) -> list[str]:
    found = SEVERAL.fullmatch(name)
    return ["" if part == "–" else found[1] + part + found[3] for part in found[2].split(",")] if found else [name]


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(f"'{name}'" for name in names[:LISTED]) + more


def to_hf(table: Table, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The foreign weights, each once, as new tensors."""
    return {
        name: view.detach().clone(memory_format=torch.contiguous_format)
        for entry in table.entries
        for name, view in entry.theirs(ours[entry.ours])
    }
