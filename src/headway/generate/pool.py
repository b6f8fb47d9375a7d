"""Pools: rows that are stepped together, in slots of one room. Samples have a pool, and every kind of beam search.

Steps are launched some at a time and read later, so that the device has work while the host reads.

N slots, K beam, S numbers of a record, F sources that are done, U sources by number, b best.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.device import sent
from headway.generate import samples
from headway.generate.chain import Allowed, Choice, Link, LogitBias
from headway.generate.request import Row, Token
from headway.generate.rows import Rows
from headway.generate.samples import Group, SampleRows, Step
from headway.models.protocols import Steps

Entry = TypeVar("Entry")


def on_device(numbers: Sequence[int] | NDArray[Any], device: torch.device) -> Tensor:
    return sent(torch.as_tensor(numbers, dtype=torch.long), device)


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


class Pool(Generic[Entry]):
    """Abstract. `entries` are what has the first slots of the room, None where one has left. A row that has left is
    stepped on until a new one takes its slot, or the slots behind are fewer than before."""

    rows: Any

    def __init__(
        self, model: Steps, kind: Hashable, rows: Rows, *, context: int, length: int, source_length: int
    ) -> None:
        """rows: the empty room. length: ids that a row may have; source_length: positions of a source."""
        self.model, self.kind, self.rows, self.context = model, kind, rows, context
        self.length, self.source_length = length, source_length
        self.slots = len(next(iter(rows.tensors().values())))
        self.device = next(iter(rows.tensors().values())).device
        self.capturable = rows.state is not None and model.capturable
        self.captured: OrderedDict[Hashable, Any] = OrderedDict()  # graphs that live on this room
        self.clear()

    def clear(self) -> None:
        self.entries: list[Entry | None] = []
        self.pending: deque[PendingSteps] = deque()
        self.sources: list[int] = []  # the source length of each slot
        self._view: Any = None  # of the slots in use, as long as they are the same

    def __len__(self) -> int:
        """Those that are still open."""
        return sum(entry is not None for entry in self.entries)

    @property
    def free(self) -> int:
        return self.slots - len(self)

    def fits(self, slots: int, length: int, source_length: int) -> bool:
        return slots <= self.free and length <= self.length and source_length <= self.source_length

    def put(self, entries: Sequence[Entry], rows: Rows, source_length: int) -> None:
        """Give entries a slot each, and write their rows there."""
        holes = [slot for slot, entry in enumerate(self.entries) if entry is None]
        slots = [*holes, *range(len(self.entries), self.slots)][: len(entries)]
        self.entries += [None] * (max(slots) + 1 - len(self.entries))
        self.sources += [0] * (len(self.entries) - len(self.sources))
        for slot, entry in zip(slots, entries, strict=True):
            self.entries[slot], self.sources[slot] = entry, source_length
        self.rows.insert(rows, on_device(slots, self.device))
        self._view = None

    def leave(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.entries[slot] = None

    def compact(self, size: int) -> None:
        """Move the last entries into the slots that are free below `size`."""
        holes = [slot for slot in range(size) if self.entries[slot] is None]
        last = [slot for slot in range(size, len(self.entries)) if self.entries[slot] is not None]
        moves = list(zip(last, holes, strict=False))
        for source, target in moves:
            self.entries[target], self.sources[target] = self.entries[source], self.sources[source]
        if moves:
            self.rows.move(*(on_device(slots, self.device) for slots in zip(*moves, strict=True)))
        del self.entries[size:], self.sources[size:]
        self._view = None

    def widest(self) -> int:
        """The longest source of those that are open."""
        return max((self.sources[slot] for slot, entry in enumerate(self.entries) if entry is not None), default=0)

    def lengths(self) -> list[int]:
        """Tokens that the state has of each open row, when everything launched is done."""
        raise NotImplementedError

    def due(self, most: int) -> int:
        """Steps to launch now, at most so many."""
        raise NotImplementedError

    def launched(self, count: int) -> None:
        """So many steps were launched."""

    def plain(self) -> Tensor:
        """One step of the slots in use."""
        last = min(self.length, self.context) - 1  # a row that is done stays at its last position
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
        raise NotImplementedError

    def take(self, pending: PendingSteps) -> list[Any]:
        """What steps that were read have given."""
        raise NotImplementedError


class SamplePool(Pool[Row]):
    """Rows whose tokens are drawn. A row's text depends on its request, seed and sample number, never on the others."""

    rows: SampleRows

    def __init__(self, model: Steps, kind: Hashable, rows: SampleRows, **how: Any) -> None:
        super().__init__(model, kind, rows, **how)
        self.capturable = self.capturable and not self.constrained

    def clear(self) -> None:
        super().clear()
        self.landed: deque[list[tuple[Row, Step]]] = deque()
        self._grouped: tuple[list[Row | None], list[Group]] = ([], [])

    @property
    def constrained(self) -> bool:
        return self.kind == "constrained"

    def lengths(self) -> list[int]:
        return [row.length + row.ahead - 1 for row in self.entries if row is not None]

    @property
    def longest(self) -> int:
        return max(self.lengths(), default=0) + 1

    @property
    def top(self) -> int:
        return max((row.request.top for row in self.entries if row is not None), default=0)

    def groups(self) -> list[Group]:
        """The chains of the rows; a row that has left may have any."""
        if self.constrained:
            return [self._constrained(slot, row) for slot, row in enumerate(self.entries) if row is not None]
        known, groups = self._grouped
        if len(known) != len(self.entries) or any(a is not b for a, b in zip(known, self.entries, strict=True)):
            by: dict[Any, list[int]] = {}
            for slot, row in enumerate(self.entries):
                if row is not None:
                    by.setdefault(row.request.choose, []).append(slot)
            alone = len(by) == 1
            groups = [
                (choose.chain(), None if alone else on_device(slots, self.device)) for choose, slots in by.items()
            ]
            self._grouped = list(self.entries), groups
        return groups

    def _constrained(self, slot: int, row: Row) -> Group:
        chain = row.request.choose.chain()  # type: ignore[union-attr]
        if row.request.constrain is not None:
            ids = on_device(sorted(row.request.constrain.allowed(row.state)), self.device)
            chain = [Allowed(ids), *chain]
        return chain, on_device([slot], self.device)

    def due(self, most: int) -> int:
        """Until no open row has tokens left, or one leaves for its window."""
        rows = [row for row in self.entries if row is not None]
        if self.constrained and any(row.ahead for row in rows):
            return 0
        left = max((row.request.max_new - len(row.ids) - row.ahead for row in rows), default=0)
        inside = [self.context + 1 - row.length - row.ahead for row in rows if row.request.window]
        return max(0, min([most, left, *(inside if self.rows.state is not None else ())]))

    def launched(self, count: int) -> None:
        for row in self.entries:
            if row is not None:
                row.ahead += count

    def advance(self, view: SampleRows) -> Tensor:
        longest = self.longest
        logits_RV = samples.predict(self.model, view, self.context, longest)
        return samples.write(view, self.groups(), logits_RV, longest=longest, top=self.top)[None]

    def capture_key(self) -> Hashable:
        return self.choice()

    def choice(self) -> tuple[tuple[Link, ...] | None, int]:
        """The chain, where all rows have one and all that it reads lies in the room: the choice is then captured;
        and how many of the likeliest tokens are recorded."""
        groups = self.groups()
        links = tuple(groups[0][0]) if len(groups) == 1 else ()
        return links if len(groups) == 1 and all(map(_stays, links)) else None, min(self.top, self.model.vocabulary)

    def take(self, pending: PendingSteps) -> list[Token]:
        """The tokens of the next step. Rows that had ended before are left out."""
        self.landed.extend(
            [(row, step) for row, step in zip(pending.entries, steps, strict=False) if row is not None]
            for steps in samples.unpack(pending.read())
        )
        return self.next()

    def next(self) -> list[Token]:
        while self.landed:
            news = self.landed.popleft()
            for row, _ in news:
                row.ahead -= 1
            if tokens := [row.take(step, self.context) for row, step in news if not row.ended]:
                self.leave(slot for slot, row in enumerate(self.entries) if row is not None and row.ended)
                return tokens
        return []


def _stays(link: Link) -> bool:
    """Whether all that a link reads lies in the room: tables of sequences are kept elsewhere, and not for ever."""
    return not isinstance(link, LogitBias | Choice | Allowed)
