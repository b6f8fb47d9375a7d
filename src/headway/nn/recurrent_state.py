"""What a recurrent model carries: of each layer a few vectors a row, however long the text was.

It keeps its size, so a captured step needs no more than its tensors brought back to where they were.

R rows, H width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

LayerState = tuple[Tensor, ...]  # (R, H) each: the hidden vector, and where there is one the cell


@dataclass
class RecurrentState:
    """The state of each layer, from the bottom up."""

    layers: list[LayerState]
    may_stay: ClassVar[bool] = True  # `steady_rows` can be asked for
    capacity: ClassVar[int] = 0  # positions: it needs none

    @property
    def rows(self) -> int:
        return len(self.layers[0][0])

    def map(self, change: Callable[[Tensor], Tensor]) -> RecurrentState:
        return RecurrentState([tuple(change(part_RH) for part_RH in layer) for layer in self.layers])

    def reorder(self, rows_R: Tensor) -> None:
        """Row r goes on from row rows_R[r]."""
        self.layers = self.map(lambda part_RH: part_RH.index_select(0, rows_R)).layers

    def keep(self, rows_R: Tensor) -> None:
        """Only these rows, in this order."""
        self.reorder(rows_R)

    def repeat(self, group: int) -> None:
        """Every row `group` times, side by side."""
        self.layers = self.map(lambda part_RH: part_RH.repeat_interleave(group, dim=0)).layers

    def insert(self, other: RecurrentState) -> RecurrentState:
        """This state's rows, then the other's."""
        pairs = zip(self.layers, other.layers, strict=True)
        return RecurrentState([tuple(map(_behind, mine, theirs)) for mine, theirs in pairs])

    def fork(self) -> RecurrentState:
        """A copy whose steps leave this state alone."""
        return self.map(Tensor.clone)

    def steady_rows(self, rows: int) -> RecurrentState:
        """Room for `rows` at addresses that stay."""
        return self.map(lambda part_RH: part_RH.new_zeros(rows, part_RH.shape[1]))

    def load(self, other: RecurrentState) -> None:
        """Copy another state into this room: its rows become the first ones."""
        for mine_RH, theirs_RH in zip(self.parts(), other.parts(), strict=True):
            mine_RH[: len(theirs_RH)].copy_(theirs_RH)

    def homes(self) -> list[Tensor]:
        """The tensors that a step replaces by new ones, where a captured step would write in place."""
        return self.parts()

    def settle(self, homes: list[Tensor]) -> None:
        """Bring what has replaced them back to `homes`."""
        for home_RH, new_RH in zip(homes, self.parts(), strict=True):
            home_RH.copy_(new_RH)
        self.layers = self.of(homes).layers

    def detach(self) -> RecurrentState:
        """The same values; no gradient goes back through them: where back-propagation is cut off."""
        return self.map(Tensor.detach)

    def parts(self) -> list[Tensor]:
        """Its tensors in a fixed order."""
        return [part_RH for layer in self.layers for part_RH in layer]

    def of(self, parts: list[Tensor]) -> RecurrentState:
        """A state of this shape from tensors in the order of `parts`."""
        given = iter(parts)
        return RecurrentState([tuple(next(given) for _ in layer) for layer in self.layers])


def _behind(a_RH: Tensor, b_RH: Tensor) -> Tensor:
    return torch.cat([a_RH, b_RH])
