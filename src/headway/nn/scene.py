"""The facts of one call of attention, for masks and positions. B batch, T queries, S keys, F features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Scene:
    """The sizes and positions of queries and keys, and what the batch supplies about them.

    start: the position of the first query, for each row where rows differ.
    relations: facts about pairs of a query and a key, by name: integers (B, T, S), such as distances in a graph or
    kinds of edges, or floats (B, T, S, F), such as features of edges.
    """

    queries: int
    keys: int
    device: torch.device
    start: int | Tensor = 0
    key_lengths_B: Tensor | None = None
    query_segments_BT: Tensor | None = None
    key_segments_BS: Tensor | None = None
    relations: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """B, or 1 where nothing depends on the row."""
        facts = (self.start, self.key_lengths_B, self.key_segments_BS, *self.relations.values())
        return next((fact.shape[0] for fact in facts if isinstance(fact, Tensor)), 1)

    def start_of(self, row: Tensor) -> int | Tensor:
        """The position of the first query of each of these rows."""
        return self.start[row] if isinstance(self.start, Tensor) else self.start

    def relation(self, name: str) -> Tensor:
        if name not in self.relations:
            raise KeyError(f"the batch supplies no relation '{name}'; it has: {', '.join(self.relations) or 'none'}")
        return self.relations[name]
