"""Pools: rows that are stepped together, in slots of one room. Samples have a pool, and every kind of beam search.

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
from headway.generate import noise, samples
from headway.generate.chain import Allowed, Choice, Link, LogitBias
from headway.generate.request import Keyed, Kind, Row, Token, Written
from headway.generate.rows import Rows
from headway.generate.samples import Group, Outputs, SampleRows, Step
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

    def fits(self, slots: int, length: int, source_length: int) -> bool:
        free = self.slots - len(self)
        return slots <= free and length <= self.length and source_length <= self.source_length

    def enter(self, requests: Sequence[Keyed], state: State | None) -> None:
        """Take requests in. `state` has read what is given but for its last tokens, a row of each; None: nothing."""
        raise NotImplementedError

    def put(self, entries: Sequence[Entry], rows: Rows) -> None:
        """Give entries a slot each, and write their rows there."""
        holes = [slot for slot, entry in enumerate(self.entries) if entry is None]
        slots = [*holes, *range(len(self.entries), self.slots)][: len(entries)]
        self.entries += [None] * (slots[-1] + 1 - len(self.entries))
        self.sources += [0] * (len(self.entries) - len(self.sources))
        width = source_length(rows.state)
        for slot, entry in zip(slots, entries, strict=True):
            self.entries[slot], self.sources[slot] = entry, width
        self.taken += len(slots)
        together = slots[-1] - slots[0] == len(slots) - 1
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
        """Move the last entries into the slots that are free below `size`."""
        holes = [slot for slot in range(size) if self.entries[slot] is None]
        last = [slot for slot in range(size, len(self.entries)) if self.entries[slot] is not None]
        moves = list(zip(last, holes, strict=False))
        for source, target in moves:
            self.entries[target], self.sources[target] = self.entries[source], self.sources[source]
        if moves:
            from_N, to_N = (on_device(slots, self.device) for slots in zip(*moves, strict=True))
            self.rows.move(from_N, to_N, max(self.lengths(), default=0))
        del self.entries[size:], self.sources[size:]
        self._view = None

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


class SamplePool(Pool[Row]):
    """Rows whose tokens are drawn. A row's text depends on its request, seed and sample number, never on the others."""

    rows: SampleRows
    at_once = 8
    bounds = (256, 4)  # a kernel reads only the positions that a row has: few sizes will do
    reorders = False

    def room(self, state: State | None) -> SampleRows:
        ids_NL = torch.zeros(self.slots, self.length, dtype=torch.long, device=self.device)
        return SampleRows(self.steady(state, 1), ids_NL, *(ids_NL.new_zeros(self.slots) for _ in range(4)))

    def clear(self) -> None:
        super().clear()
        self.read: deque[list[tuple[Row, Step]]] = deque()
        self._grouped: tuple[list[Row | None], list[Group]] = ([], [])

    def enter(self, requests: Sequence[Keyed], state: State | None) -> None:
        """The rows of a request, one for each sample, start from its one state."""
        rows = [Row(key, sample, request) for key, request in requests for sample in range(request.samples)]
        if state is not None and len(rows) > len(requests):
            copies = np.repeat(np.arange(len(requests)), [request.samples for _, request in requests])
            state.keep(on_device(copies, self.device))
        numbers = [(row.length, row.request.seed, row.sample, row.request.given[-1]) for row in rows]
        lengths_R, seeds_R, samples_R, newest_R = on_device(np.array(numbers, np.int64).T.copy(), self.device)
        ids_RL = padded([row.request.given for row in rows], self.device)
        streams_R = noise.streams(seeds_R, samples_R)
        self.put(rows, SampleRows(state, ids_RL, lengths_R, lengths_R, streams_R, newest_R))

    def outgrown(self) -> list[int]:
        if self.kind.sliding:
            return []
        return [slot for slot, row in self.open() if not row.ahead and row.length > self.context]

    def evict(self, rows: set[tuple[int, int]]) -> list[Written]:
        ended = [(slot, row) for slot, row in self.open() if (row.key, row.sample) in rows]
        for slot, row in ended:
            row.ended = "stop"
            self.leave([slot])
        return [row.written() for _, row in ended]

    def lengths(self) -> list[int]:
        return [row.length + row.ahead - 1 for _, row in self.open()]

    @property
    def top(self) -> int:
        return max((row.request.top for _, row in self.open()), default=0)

    def groups(self) -> list[Group]:
        """The chains of the rows; a row that has left may have any."""
        if self.kind.constrained:
            return [(self._constrained(row), on_device([slot], self.device)) for slot, row in self.open()]
        known, groups = self._grouped
        if len(known) != len(self.entries) or any(a is not b for a, b in zip(known, self.entries, strict=True)):
            by: dict[Any, list[int]] = {}
            for slot, row in self.open():
                by.setdefault(row.request.choose, []).append(slot)
            alone = len(by) == 1
            groups = [
                (choose.chain(), None if alone else on_device(slots, self.device)) for choose, slots in by.items()
            ]
            self._grouped = list(self.entries), groups
        return groups

    def _constrained(self, row: Row) -> list[Link]:
        request: Any = row.request
        allowed = sorted(request.constrain.allowed(row.state))
        return [Allowed(on_device(allowed, self.device)), *request.choose.chain()]

    def due(self, most: int) -> int:
        """Until no open row has tokens left, or one leaves for its window."""
        rows = [row for _, row in self.open()]
        if self.kind.constrained and any(row.ahead for row in rows):
            return 0
        left = max((row.request.max_new - len(row.ids) - row.ahead for row in rows), default=0)
        inside = [self.context + 1 - row.length - row.ahead for row in rows if row.request.window]
        return max(0, min([most, left, *(() if self.kind.sliding else inside)]))

    def launched(self, count: int) -> None:
        for _, row in self.open():
            row.ahead += count

    def advance(self, view: SampleRows) -> Tensor:
        longest = max(self.lengths(), default=0) + 1
        logits_RV = samples.predict(self.model, view, self.context, longest)
        return samples.write(view, self.groups(), logits_RV, longest=longest, top=self.top)[None]

    def capture_key(self) -> tuple[tuple[Link, ...] | None, int]:
        """The chain, where all rows have one and all that it reads lies in the room: the choice is then captured;
        and how many of the likeliest tokens are recorded."""
        groups = self.groups()
        links = tuple(groups[0][0]) if len(groups) == 1 else ()
        return links if len(groups) == 1 and all(map(_stays, links)) else None, min(self.top, self.model.vocabulary)

    def capture(self, captured: Captured, predict: Callable[..., Tensor]) -> Callable[[], None]:
        view, groups = captured.view, self.groups()
        links, top = self.capture_key()
        captured.outputs = outputs = Outputs.blank(self.at_once, len(view.lengths_R), top, self.device)

        def step() -> None:
            parts = view.state.parts()
            logits_RV = predict(self.model, view, 0, view.ids_RL.shape[1])
            view.state.settle(parts)
            if links is not None:
                samples.note(view, groups, logits_RV, outputs)
            else:
                captured.logits_RV = logits_RV

        return step

    def replay(self, captured: Captured, count: int) -> Tensor:
        assert captured.outputs is not None
        captured.outputs.turns_R.zero_()
        for _ in range(count):
            captured.graph.replay()
            if captured.logits_RV is not None:
                samples.note(captured.view, self.groups(), captured.logits_RV, captured.outputs)
        return captured.outputs.packed_GRS[:count].clone()

    def take(self, pending: PendingSteps) -> list[Token] | None:
        self.read.extend(
            [(row, step) for row, step in zip(pending.entries, steps, strict=False) if row is not None]
            for steps in samples.unpack(pending.read())
        )
        return self.landed()

    def landed(self) -> list[Token] | None:
        """The tokens of the next step. Rows that had ended before are left out."""
        while self.read:
            news = self.read.popleft()
            for row, _ in news:
                row.ahead -= 1
            if tokens := [row.take(step, self.context) for row, step in news if not row.ended]:
                self.leave(slot for slot, row in self.open() if row.ended)
                return tokens
        return None


def _stays(link: Link) -> bool:
    """Whether all that a link reads lies in the room: tables of sequences are kept elsewhere, and not for ever."""
    return not isinstance(link, LogitBias | Choice | Allowed)
