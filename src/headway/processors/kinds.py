"""Kinds: of nodes and of edges of a graph, each field with a vocabulary of its own, all in one table.

F fields, N nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from headway.errors import refuse
from headway.processors.steps import InCard


@dataclass(frozen=True)
class KindsConfig:
    """fields: of each field its kinds, in order. size: rows of the table: padding, and for each field one for what it
    does not know and one for each kind."""

    name: ClassVar[str] = "kinds"
    size: int
    fields: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        rows = 1 + sum(1 + len(kinds) for kinds in self.fields)
        refuse(self.fields and self.size != rows, f"the kinds need {rows} rows, not {self.size}")

    @property
    def summary(self) -> str:
        return f"{sum(map(len, self.fields))} kinds in {len(self.fields)} fields"

    @property
    def title(self) -> str:
        return ""

    def settings(self, name: str) -> dict[str, Any]:
        return {}

    def open(self, folder: Path, opened: Sequence[Any] = ()) -> KindsProcessor:
        return KindsProcessor(self)


def kinds_in(rows: Iterable[tuple[str, ...]]) -> KindsConfig:
    """Those that occur, in order."""
    fields: list[set[str]] = []
    for row in rows:
        fields = fields or [set() for _ in row]
        for field, kind in zip(fields, row, strict=True):
            field.add(kind)
    found = tuple(tuple(sorted(field)) for field in fields) or ((),)
    return KindsConfig(1 + sum(1 + len(kinds) for kinds in found), found)


@final
class KindsProcessor(InCard):
    def __init__(self, config: KindsConfig) -> None:
        self.config, self.numbers, first = config, list[tuple[int, dict[str, int]]](), 1
        for kinds in config.fields:
            self.numbers.append((first, {kind: first + 1 + at for at, kind in enumerate(kinds)}))
            first += 1 + len(kinds)

    def encode(self, rows: Sequence[tuple[str, ...]], where: str = "a node") -> NDArray[np.int64]:
        """(N, F). `where`: what a message begins with."""
        wanted = len(self.numbers)
        for row in rows[:1]:
            refuse(len(row) != wanted, f"{where} has {len(row)} kinds, the model reads {wanted}")
        found = [
            [known.get(kind, first) for (first, known), kind in zip(self.numbers, row, strict=True)] for row in rows
        ]
        return np.array(found, np.int64).reshape(len(rows), wanted)
