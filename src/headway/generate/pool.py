"""Pools: rows that are stepped together, in slots of one room. Samples have a pool (`sample_pool`), and every kind of
beam search (`beam_pool`).

Steps are launched some at a time and read later, so that the device has work while the host reads.

N slots, R rows, L room for ids, S numbers of a record.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.device import sent
from headway.generate import arranging
from headway.generate.arranging import Arrangement
from headway.generate.request import Keyed, Kind, Written
from headway.generate.rows import Rows
from headway.generate.samples import Outputs
from headway.models.protocols import Steps
from headway.nn.slots import Memory
from headway.nn.state import State

Entry = TypeVar("Entry")


def on_device(numbers: Sequence[int] | NDArray[Any], device: torch.device) -> Tensor:
    return sent(torch.as_tensor(numbers, dtype=torch.long), device)


def padded(texts: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    ids = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    return torch.from_numpy(ids).to(device)


def source_length(state: State | None) -> int:
    return max((slot.k_BHSK.shape[2] for slot in state or () if isinstance(slot, Memory)), default=0)


class PendingSteps:
    """Steps whose record is on its way to the host, and what had each slot when they were launched."""

    def __init__(self, entries: list[Any], record: Tensor) -> None:
        self.entries, self.record, self.event = entries, record, None
        if record.is_cuda:
            self.record, self.event = record.to("cpu", non_blocking=True), torch.cuda.Event()
            self.event.record(torch.cuda.current_stream(record.device))

    def read(self) -> Tensor:
        """Waits for these steps, not for those launched after them."""
        if self.event is not None:
            self.event.synchronize()
        return self.record


@dataclass
class Captured:
    """The graph of a step (of a search: of some steps) over a view of a pool's room, and what the steps recorded."""

    view: Any
    graph: Any = None
    outputs: Outputs | None = None
    logits_RV: Tensor | None = None  # of the newest step, where the graph ends with them
    record: Tensor | None = None


class Key(NamedTuple):
    """What a pool is for, and how large it is. length: ids that a row may have; source_length: positions of a source;
    context: the most tokens that the model reads of a row."""

    kind: Kind
    slots: int
    length: int
    source_length: int
    context: int


class Pool(Generic[Entry]):
    """Abstract. `entries` are what has the first slots of the room, None where one has left. A row that has left is
    stepped on until a new one takes its slot, or the slots behind are fewer than before."""

    rows: Any
    at_once: ClassVar[int]  # steps that are launched together, where they are captured
    bounds: ClassVar[tuple[int, int]]  # positions that the smallest graph reads, and the ratio to the next size
    reorders: ClassVar[bool]  # whether a step moves what is in the caches

    def __init__(self, model: Steps, key: Key, state: State | None, device: torch.device) -> None:
        """`state`: one like those of the rows that will come."""
        self.model, self.key, self.device = model, key, device
        self.kind, self.slots, self.length, self.source_length, self.context = key
        self.capacity = min(self.length, self.context)
        self.rows = self.room(state)
        self.capturable = state is not None and model.capturable and not self.kind.constrained
        self.captured: OrderedDict[Hashable, Captured] = OrderedDict()  # graphs that live on this room
        self.clear()

    def room(self, state: State | None) -> Rows:
        """Rows for all slots, whose tensors stay where they are."""
        raise NotImplementedError

    def steady(self, state: State | None, group: int) -> State | None:
        return state and state.steady(self.slots, group, self.capacity, self.source_length)

    def clear(self) -> None:
        self.entries: list[Entry | None] = []
        self.taken = 0
        self.pending: deque[PendingSteps] = deque()
        self.sources: list[int] = []  # the source length of each slot, 0 where it is free
        self._view: Any = None  # of the slots in use, as long as they are the same

    def open(self) -> list[tuple[int, Entry]]:
        """Slots that are taken, and by what."""
        return [(slot, entry) for slot, entry in enumerate(self.entries) if entry is not None]

    def __len__(self) -> int:
        """Slots that are taken; asked for several times a step."""
        return self.taken

    @property
    def used(self) -> int:
        """Slots that a plain step should take: more are closed up before it."""
        return self.taken

    def fits(self, slots: int, length: int, source_length: int) -> bool:
        free = self.slots - len(self)
        return slots <= free and length <= self.length and source_length <= self.source_length

    def enter(self, requests: Sequence[Keyed], state: State | None) -> None:
        """Take requests in. `state` has read what is given but for its last tokens, a row of each; None: nothing."""
        raise NotImplementedError

    def put(self, entries: Sequence[Entry], rows: Rows) -> None:
        """Give entries a slot each, and write their rows there."""
        holes = [slot for slot, entry in enumerate(self.entries) if entry is None]
        free = [*holes, *range(len(self.entries), self.slots)][: len(entries)]
        moves, slots = self.arrangement(sorted([*free, *(slot for slot, _ in self.open())]), entries)
        self.entries += [None] * (free[-1] + 1 - len(self.entries))
        self.sources += [0] * (len(self.entries) - len(self.sources))
        self._move(moves)
        width = source_length(rows.state)
        for slot, entry in zip(slots, entries, strict=True):
            self.entries[slot], self.sources[slot] = entry, width
        self.taken += len(slots)
        together = slots == list(range(slots[0], slots[-1] + 1))
        self.rows.insert(rows, slice(slots[0], slots[-1] + 1) if together else on_device(slots, self.device))
        self._view = None

    def leave(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.taken -= self.entries[slot] is not None
            self.entries[slot], self.sources[slot] = None, 0

    def outgrown(self) -> list[int]:
        """Slots of rows that the state can no longer hold: they continue in a sliding window."""
        return []

    def evict(self, rows: set[tuple[int, int]]) -> list[Written]:
        """End these rows (key, sample) now; what sampled ones have written."""
        raise NotImplementedError

    def compact(self, size: int) -> None:
        """Move entries into the slots that are free below `size`."""
        self._move(self.arrangement(range(size), ()).moves)
        del self.entries[size:], self.sources[size:]
        self._view = None

    def _move(self, moves: Sequence[tuple[int, int]]) -> None:
        for source, target in moves:
            self.entries[target], self.sources[target] = self.entries[source], self.sources[source]
            self.entries[source], self.sources[source] = None, 0
        if moves:
            from_N, to_N = (on_device(slots, self.device) for slots in zip(*moves, strict=True))
            self.rows.move(from_N, to_N, max(self.lengths(), default=0))

    def arrangement(self, slots: Sequence[int], coming: Sequence[Entry]) -> Arrangement:
        """How those that are open and those that come take these slots."""
        return arranging.plain([None if entry is None else 0 for entry in self.entries], [0] * len(coming), slots)

    def widest(self) -> int:
        """The longest source of those that are open."""
        return max(self.sources, default=0)

    def lengths(self) -> list[int]:
        """Tokens that the state has of each open row, when everything launched is done."""
        raise NotImplementedError

    def due(self, most: int) -> int:
        """Steps to launch now, at most so many."""
        raise NotImplementedError

    def launched(self, count: int) -> None:
        """So many steps were launched."""
        raise NotImplementedError

    def plain(self) -> Tensor:
        """One step of the slots in use."""
        last = self.capacity - 1  # a row that is done stays at its last position
        clock = self._view and self._view.state and self._view.state.clock
        if self._view is None or (clock and clock.longest > last):
            lengths = [min(length, last) for length in self.lengths()]
            self._view = self.rows.first(len(self.entries), lengths, self.widest() or None)
        homes = self._view.homes()
        record = self.advance(self._view)
        self._view.settle(homes)
        return record

    def advance(self, view: Any) -> Tensor:
        """One step, and its record."""
        raise NotImplementedError

    def capture_key(self) -> Hashable:
        """What a graph depends on beside the sizes of its view."""
        return None

    def capture(self, captured: Captured, predict: Callable[..., Tensor]) -> Callable[[], None]:
        """What is captured as a graph. `predict`: a way to the logits of sampled rows."""
        raise NotImplementedError

    def replay(self, captured: Captured, count: int) -> Tensor:
        """Take `count` captured steps; their record."""
        raise NotImplementedError

    def landed(self) -> list[Any] | None:
        """Outputs of steps that were read before; None where there are no more."""
        return None

    def take(self, pending: PendingSteps) -> list[Any] | None:
        """What steps that are read now have given; None where all rows had ended before."""
        raise NotImplementedError
