"""What the device holds of rows that are stepped together, in slots that stay where they are.

N slots.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor

from headway.nn.slots import Places, put
from headway.nn.state import State


@dataclass
class Rows:
    """Abstract. A state, and tensors (N, …) beside it. A step through a view of the first slots (`first`) writes into
    the room that the view is of."""

    state: State | None  # None: rows are read anew at each step

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls) if f.name != "state")

    def tensors(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.names()}

    def first(self, slots: int, lengths: Any, source_length: int | None = None) -> Self:
        """A view of the first slots; `lengths` as in `State.first`."""
        state = self.state and self.state.first(slots, lengths, source_length)
        return type(self)(state, **{name: tensor[:slots] for name, tensor in self.tensors().items()})

    def insert(self, other: Self, slots: Places) -> None:
        """Write other rows into these slots."""
        if self.state is not None and other.state is not None:
            self.state.insert(other.state, slots)
        theirs = other.tensors()
        for name, mine in self.tensors().items():
            home = mine[:, : theirs[name].shape[1]] if mine.dim() > 1 else mine
            put(home, 0, slots, theirs[name])

    def move(self, from_N: Tensor, to_N: Tensor, used: int) -> None:
        """Copy rows, of which `used` positions are in use, from some slots to others."""
        if self.state is not None:
            self.state.move(from_N, to_N, used)
        for tensor in self.tensors().values():
            tensor.index_copy_(0, to_N, tensor.index_select(0, from_N))

    def without_state(self, slots_N: Tensor) -> Self:
        """A copy of these rows, to be read anew."""
        return type(self)(None, **{name: tensor.index_select(0, slots_N) for name, tensor in self.tensors().items()})

    def homes(self) -> tuple[dict[str, Any], list[Tensor]]:
        """The tensors that steps replace by new ones."""
        return self.tensors(), self.state.parts() if self.state is not None else []

    def settle(self, homes: tuple[dict[str, Any], list[Tensor]]) -> None:
        """Write what has replaced `homes` back to them."""
        for name, home in homes[0].items():
            new = getattr(self, name)
            if new is not home:
                setattr(self, name, home.copy_(new))
        if self.state is not None and homes[1]:
            self.state.settle(homes[1])


def wide(logits_RV: Tensor) -> Tensor:
    return logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))
