"""Ways to take steps: launched one by one, or several at a time as one captured CUDA graph."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headway.generate.beam import Board, advance, pack
from headway.generate.search import Search
from headway.models.protocols import Steps
from headway.nn import tap
from headway.text.symbols import Symbols


class Stepper(Protocol):
    """`pace` steps are taken at a time; their record is read when `ahead` times as many more have been launched, so
    that the device has work meanwhile. `slots` tells how many sources a batch of `count` should have room for;
    `joins` whether sources may come into a running batch (then nothing may be `ahead`); `margin` the positions that
    steps past a source's end may need."""

    pace: int
    ahead: int
    joins: bool
    margin: int

    def slots(self, count: int) -> int: ...
    def steps(self, board: Board, search: Search, symbols: Symbols, age: int, limit: int) -> tuple[Board, Tensor]: ...


class PlainStepper:
    """Every step as it is, for just the sources there are."""

    ahead = 0
    joins = True

    def __init__(self, model: Steps, pace: int = 1) -> None:
        self.model, self.pace, self.margin = model, pace, pace * (1 + self.ahead) - 1

    def slots(self, count: int) -> int:
        return count

    def steps(self, board: Board, search: Search, symbols: Symbols, age: int, limit: int) -> tuple[Board, Tensor]:
        records = []
        for _ in range(self.pace):
            # Late, so that sources which leave in between are not moved first.
            board.settle()
            records.append(advance(self.model, search, symbols, board))
        return board, pack(records)


@dataclass
class Captured:
    graph: torch.cuda.CUDAGraph
    board: Board
    record: Tensor


class GraphStepper:
    """`pace` steps as one CUDA graph over room at fixed addresses, captured once for each size.

    Sizes are powers of two (sources, target length) and multiples of 16 (source length), so that few graphs
    serve all; they outlive a batch and follow the model's weights, which are changed in place.
    """

    pace = 4  # even: a cache and its spare have then changed places an even number of times
    ahead = 1
    most = 24  # graphs kept
    joins = False
    margin = pace  # and no more for those ahead: rows at the last position stay there, and all of them are done

    def __init__(self, model: Steps) -> None:
        self.model = model
        self.captured: OrderedDict[tuple[object, ...], Captured] = OrderedDict()

    def slots(self, count: int) -> int:
        return 1 << max(0, count - 1).bit_length()

    def steps(self, board: Board, search: Search, symbols: Symbols, age: int, limit: int) -> tuple[Board, Tensor]:
        """`age` is that of the oldest source, `limit` the positions that the model has."""
        tap.closed()
        sources, beam = board.scores_NK.shape
        capacity = min(limit, max(16, 1 << (age + self.pace).bit_length()))
        source_length = -(-board.state.source_length // 16) * 16
        key = (sources, beam, capacity, source_length, search.min_length, symbols)
        found = self.captured.get(key)
        if found is None:
            found = self._capture(board, search, symbols, capacity, source_length)
            self.captured[key] = found
            if len(self.captured) > self.most:
                self.captured.popitem(last=False)
        self.captured.move_to_end(key)
        if found.board is not board:
            _load(found.board, board)
        found.graph.replay()
        return found.board, found.record

    def _capture(self, like: Board, search: Search, symbols: Symbols, capacity: int, source_length: int) -> Captured:
        room = Board(
            like.state.steady(capacity, source_length),
            **{name: tensor.clone() for name, tensor in like.tensors().items()},
            captured=True,
        )
        _load(room, like)
        # Libraries set themselves up at their first call, which must not be captured.
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            self._pace(room, search, symbols)
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            record = self._pace(room, search, symbols)
        _load(room, like)
        return Captured(graph, room, record)

    def _pace(self, room: Board, search: Search, symbols: Symbols) -> Tensor:
        """Steps whose results are written back to where they were read."""
        homes, state_homes = room.tensors(), room.state.homes()
        records = []
        for _ in range(self.pace):
            records.append(advance(self.model, search, symbols, room))
            room.settle()
        record = pack(records)
        for name, home in homes.items():
            home.copy_(getattr(room, name))
            setattr(room, name, home)
        room.state.settle(state_homes)
        return record


def _load(room: Board, board: Board) -> None:
    """Copy a board into room of the same size."""
    room.state.load(board.state)
    for name, tensor in board.tensors().items():
        getattr(room, name).copy_(tensor)


def stepper_for(model: Steps, device: torch.device) -> Stepper:
    return GraphStepper(model) if device.type == "cuda" else PlainStepper(model)
