"""Recurrent encoders: layers that read a row from its start, from its end, or both ways, and the state that a decoder
starts from.

B batch, S source length, D width, K width of one direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.recurrent import Cell, LayerState, RecurrentLayer

FORWARDS, BACKWARDS = "forwards", "backwards"
DIRECTIONS = {"both": (FORWARDS, BACKWARDS), FORWARDS: (FORWARDS,), BACKWARDS: (BACKWARDS,)}


class DirectedLayer(nn.Module):
    """[h→; h←]: one cell reads a row from its start, another one from its end (Schuster and Paliwal 1997); or one of
    them alone: `backwards` is a reversed source (Sutskever et al. 2014, 3.3)."""

    def __init__(self, cells: Mapping[str, Cell], holds: bool = False) -> None:
        """`holds`: the states behind each row's last token are wanted too."""
        super().__init__()
        self.directions = tuple(cells)
        for direction, cell in cells.items():
            self.add_module(direction, RecurrentLayer(cell, holds=holds))

    def forward(self, x_BSD: Tensor, order_BS: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, LayerState]:
        """`order_BS`: the places of each row's tokens from the last to the first, then of its padding. Padding is read
        after all tokens in both directions, so no token depends on it and no row needs packing."""
        read = [self._read(direction, x_BSD, order_BS, lengths_B) for direction in self.directions]
        last = (torch.cat(parts, -1) for parts in zip(*(state for _, state in read), strict=True))
        return torch.cat([y_BSK for y_BSK, _ in read], -1), tuple(last)

    def _read(
        self, direction: str, x_BSD: Tensor, order_BS: Tensor, lengths_B: Tensor | None
    ) -> tuple[Tensor, LayerState]:
        layer: Any = getattr(self, direction)
        lengths_B = lengths_B if layer.holds else None
        if direction == FORWARDS:
            found: tuple[Tensor, LayerState] = layer(x_BSD, None, lengths_B)
            return found
        if not tap.recording():
            y_BSK, last = layer(in_order(x_BSD, order_BS), None, lengths_B)
        else:
            with tap.record(layer) as read:
                y_BSK, last = layer(in_order(x_BSD, order_BS), None, lengths_B)
            for name, tensor in read.tensors.items():  # were saved in the order of reading
                tap.save(layer, name, in_order(tensor, order_BS), read.axes[name])
        return in_order(y_BSK, order_BS), last


def reversed_order(x_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Of each row the last token's place, the one before … and then its padding's; it is its own inverse."""
    place_S = torch.arange(x_BSD.shape[1], device=x_BSD.device)
    if lengths_B is None:
        return place_S.flip(0).expand(x_BSD.shape[0], -1)
    return torch.where(place_S < lengths_B[:, None], lengths_B[:, None] - 1 - place_S, place_S)


def in_order(x_BSD: Tensor, order_BS: Tensor) -> Tensor:
    return x_BSD.gather(1, order_BS[..., None].expand_as(x_BSD))


@dataclass(frozen=True)
class Read:
    """The last layer's outputs, the rows' lengths (None: no row is padded), and of each layer the state behind the last
    token that it read, where the layers hold it."""

    x_BSD: Tensor
    lengths_B: Tensor | None
    last: Sequence[LayerState]


class DirectedStack(nn.Module):
    """Layers in sequence: each reads all directions of the one below."""

    def __init__(self, layers: list[DirectedLayer], dropout: nn.Module) -> None:
        super().__init__()
        self.layers, self.between = nn.ModuleList(layers), dropout

    def forward(self, x_BSD: Tensor, lengths_B: Tensor | None) -> Read:
        order_BS, last = reversed_order(x_BSD, lengths_B), []
        for number, layer in enumerate(self.layers):
            x_BSD, state = layer(self.between(x_BSD) if number else x_BSD, order_BS, lengths_B)
            last.append(state)
        return Read(x_BSD, lengths_B, last)


class MappedStart(nn.Linear):
    """tanh(W_0 h) for every part of every layer's state, h the output at the last token that was read: h←_1 where there
    is a cell that reads backwards, which Bahdanau et al. (2015, A.2.2) take, else h→_S."""

    def __init__(self, directions: Sequence[str], inputs: int, parts: Sequence[int], width: int) -> None:
        """`parts`: how many vectors the state of each layer has."""
        super().__init__(inputs, sum(parts) * width)
        self.at_start, self.parts = directions[-1] == BACKWARDS, parts

    def forward(self, read: Read) -> list[LayerState]:  # type: ignore[override]
        given = iter(torch.tanh(super().forward(self._last(read))).chunk(sum(self.parts), -1))
        return [tuple(next(given) for _ in range(count)) for count in self.parts]

    def _last(self, read: Read) -> Tensor:
        last_BSK = read.x_BSD[..., -self.in_features :]
        if self.at_start:
            return last_BSK[:, 0]
        if read.lengths_B is None:
            return last_BSK[:, -1]
        place_B1K = (read.lengths_B - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.in_features)
        return last_BSK.gather(1, place_B1K)[:, 0]


class CopiedStart(nn.Module):
    """Each layer of the decoder starts from the state that the encoder's layer ends with (Sutskever et al. 2014)."""

    def forward(self, read: Read) -> Sequence[LayerState]:
        return read.last
