"""Ways to take the steps of streams: launched kernel by kernel, or replayed as one captured CUDA graph.

R rows (of a room: a power of two), L room for ids, C capacity of the caches, G steps of a notebook, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from headway.compiling import compiled
from headway.generate import chain
from headway.generate.stream_step import Group, Notebook, Record, Sheet, advance, foretell, note
from headway.models.protocols import Steps
from headway.nn import tap

Speed = Literal["auto", "plain", "graphs", "compile"]
Key = TypeVar("Key")
Kept = TypeVar("Kept")


class StreamStepper(Protocol):
    """Up to `pace` steps of a sheet are launched at a time; if `ahead`, as many more before the host reads what the
    first wrote, so that the device has work meanwhile. Rows must then be able to go on behind their end. `room` tells
    the positions that caches should have, `leave` whether it is worth a move that only so many rows are still open."""

    def pace(self, sheet: Sheet) -> int: ...
    def ahead(self, sheet: Sheet) -> bool: ...
    def room(self, need: int, context: int) -> int: ...
    def leave(self, going_on: int, sheet: Sheet) -> bool: ...
    def steps(
        self, sheet: Sheet, groups: Sequence[Group], count: int, *, context: int, longest: int, top: int
    ) -> tuple[Sheet, Record]: ...


class PlainStepper:
    """Every step as it is, for just the rows there are."""

    def __init__(self, model: Steps) -> None:
        self.model = model

    def pace(self, sheet: Sheet) -> int:
        return 1

    def ahead(self, sheet: Sheet) -> bool:
        return False

    def room(self, need: int, context: int) -> int:
        return need

    def leave(self, going_on: int, sheet: Sheet) -> bool:
        return going_on < len(sheet.lengths_R)

    def steps(
        self, sheet: Sheet, groups: Sequence[Group], count: int, *, context: int, longest: int, top: int
    ) -> tuple[Sheet, Record]:
        said = [
            advance(self.model, sheet, groups, context=context, longest=longest + step, top=top).packed
            for step in range(count)
        ]
        return sheet, Record(torch.stack(said))


@dataclass
class Captured:
    """The graph of one step over a room's sheet, and what the steps have said."""

    notebook: Notebook
    graph: Any = None
    logits_RV: Tensor | None = None  # of the newest step, where the graph ends with them


class Room:
    """A sheet at addresses that stay, and the graphs that live on it: for each chain and number of alternatives.

    Several engines may share it, one at a time: who comes in while another's rows are there has them moved out first.
    """

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.captured: OrderedDict[tuple[object, ...], Captured] = OrderedDict()
        self.tenant: Callable[[], Sheet | None] = lambda: None  # a weak reference: nobody waits for who has gone

    def take_in(self, sheet: Sheet) -> Sheet:
        """The room's sheet with the contents of this one, as long as no other is taken in."""
        if self.tenant() is sheet:
            return sheet
        if (tenant := self.tenant()) is not None:
            tenant.move_out()
        self.sheet.load(sheet)
        tenant = Sheet(self.sheet.state, **self.sheet.tensors(), captured=True)
        self.tenant = weakref.ref(tenant)
        return tenant


class GraphStepper:
    """One step captured for each size of room and replayed: nothing is launched, nobody is asked.

    Rows are a power of two (what is left over holds anything and is never read), as are the lengths, so that few
    rooms serve all; they outlive a batch and follow the model's weights, which are changed in place. Where all rows
    have one chain, the graph is the whole step; otherwise it ends with the logits, and tokens are chosen outside,
    since every mixture of chains would be a graph of its own. A state that has no steady room, such as that of a model
    without caches, is stepped plainly. For one thread at a time.
    """

    most = 4  # rooms kept
    most_graphs = 8  # of a room
    at_once = 8  # steps

    def __init__(self, model: Steps, foretell: Callable[..., Tensor] = foretell) -> None:
        """`foretell` may be another way to the same logits, such as a compiled one."""
        self.model, self.foretell, self.plain = model, foretell, PlainStepper(model)
        self.rooms: OrderedDict[tuple[int, ...], Room] = OrderedDict()

    def pace(self, sheet: Sheet) -> int:
        return self.at_once if sheet.may_stay else 1

    def ahead(self, sheet: Sheet) -> bool:
        return sheet.captured

    def room(self, need: int, context: int) -> int:
        return min(context, max(64, _power_of_two(need)))

    def leave(self, going_on: int, sheet: Sheet) -> bool:
        if not sheet.captured:
            return self.plain.leave(going_on, sheet)
        return _power_of_two(going_on) < len(sheet.lengths_R)

    def steps(
        self, sheet: Sheet, groups: Sequence[Group], count: int, *, context: int, longest: int, top: int
    ) -> tuple[Sheet, Record]:
        if not sheet.may_stay:
            return self.plain.steps(sheet, groups, count, context=context, longest=longest, top=top)
        tap.closed()
        room = self._room(sheet)
        sheet = room.take_in(sheet)
        captured = self._captured(room, groups, top)
        captured.notebook.turns_R.zero_()
        for _ in range(count):
            captured.graph.replay()
            if captured.logits_RV is not None:
                note(room.sheet, groups, captured.logits_RV, captured.notebook)
        return sheet, Record(captured.notebook.packed_GRS[:count].clone())

    def _room(self, sheet: Sheet) -> Room:
        rows, width = (_power_of_two(size) for size in sheet.ids_RL.shape)
        state: Any = sheet.state
        key = (rows, width, state.capacity)
        if key not in self.rooms:
            self.rooms[key] = Room(sheet.steady(rows, width))
        return _newest(self.rooms, key, self.most)

    def _captured(self, room: Room, groups: Sequence[Group], top: int) -> Captured:
        """The graph of the whole step where all rows have one chain whose links stay, else of the logits."""
        links = tuple(groups[0][0]) if len(groups) == 1 and all(map(_stays, groups[0][0])) else None
        key = (links, top)
        if key not in room.captured:
            room.captured[key] = self._capture(room.sheet, groups if links is not None else None, top)
        return _newest(room.captured, key, self.most_graphs)

    def _capture(self, sheet: Sheet, groups: Sequence[Group] | None, top: int) -> Captured:
        rows, device = len(sheet.lengths_R), sheet.lengths_R.device
        captured = Captured(Notebook.blank(self.at_once, rows, min(top, self.model.vocabulary), device))

        def step() -> None:
            logits_RV = self._read(sheet)
            if groups is not None:
                note(sheet, groups, logits_RV, captured.notebook)
            else:
                captured.logits_RV = logits_RV

        # Libraries set themselves up and kernels are compiled at their first call, which must not be captured; what
        # it wrote is taken back.
        before = sheet.select(torch.arange(rows, device=device))
        captured.graph = self._graph(step)
        sheet.load(before)
        return captured

    def _graph(self, step: Callable[[], None]) -> Any:
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            step()
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        return graph

    def _read(self, sheet: Sheet) -> Tensor:
        state: Any = sheet.state
        homes = state.homes()
        logits_RV = self.foretell(self.model, sheet, 0, sheet.ids_RL.shape[1])
        state.settle(homes)
        return logits_RV


def _newest(kept: OrderedDict[Key, Kept], key: Key, most: int) -> Kept:
    """The entry under this key, which is now the newest; the oldest leaves where there are too many."""
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
    return kept[key]


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _stays(link: chain.Link) -> bool:
    """Whether all that a link reads lies in the room: tables of sequences are kept elsewhere, and not for ever."""
    return not isinstance(link, chain.LogitBias | chain.Choice)


def compiled_foretell() -> Callable[..., Tensor]:
    """`foretell` through torch.compile, for capture: without graphs of the compiler's own; products of one row become
    sums that norms, biases and activations are fused into."""
    options: Any = {"triton.cudagraphs": False, "coordinate_descent_tuning": True}
    return compiled(foretell, dynamic=False, options=options)


def stream_stepper_for(model: Steps, device: torch.device, speed: Speed = "auto") -> StreamStepper:
    if speed == "plain" or (speed == "auto" and device.type != "cuda"):
        return PlainStepper(model)
    return GraphStepper(model, compiled_foretell() if speed == "compile" else foretell)
