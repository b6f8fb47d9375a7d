"""State: what a model carries from one step to the next. It is passed, never stored on a module.

A state is made of slots: keys and values, hidden vectors, sums, the last ids, the memory of a source. A slot belongs to
the rows or to the sources; every source has the same number of rows (one of a language model, its beam in a search).
What happens to all slots is written once, here; a family only lists its slots.

A call consumes a state (and may change it in place); `fork` copies. `steady` makes a room whose tensors stay where they
are: `insert` writes rows into it, and a step through `first`, a view of its first rows, writes into the room.

B sources, R rows, H heads, S source length, C capacity, K head width, D width, N ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.nn.cache import FixedCache
from headway.nn.slots import Clock, Places, Slot, Values, copy_rows, put


@dataclass
class State:
    """Slots by what they are ("caches", "layers", "memories", …), in the order of the layers. Without a clock nothing
    depends on how much was read."""

    slots: Mapping[str, Sequence[Any]]
    clock: Clock | None = None
    group: int = 1  # rows of each source

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.slots[name]

    def __iter__(self) -> Iterator[Slot]:
        return (slot for slots in self.slots.values() for slot in slots)

    @property
    def time(self) -> Clock:
        """The clock of a state that has one."""
        assert self.clock is not None, "this state has no clock"
        return self.clock

    @property
    def rows(self) -> int:
        return len(self.clock.lengths_R) if self.clock is not None else len(self.parts()[0])

    def reorder(self, rows_R: Tensor) -> None:
        """Row r continues row rows_R[r], which is one of the same source."""
        self._pick(rows_R, None)

    def keep(self, sources_B: Tensor) -> None:
        """Only these sources, in this order, each with all its rows; without sources, only these rows."""
        self._pick(self.rows_of(sources_B), sources_B)

    def widen(self, group: int) -> None:
        """From one row of each source to `group` equal ones, side by side; the sources stay as they are."""
        if group > 1:
            device = self.clock.lengths_R.device if self.clock is not None else self.parts()[0].device
            self._pick(torch.arange(self.rows, device=device).repeat_interleave(group), None)
            self.group *= group

    def _pick(self, rows_R: Tensor, sources_B: Tensor | None) -> None:
        for slot in self:
            if not slot.of_source:
                slot.pick(rows_R)
            elif sources_B is not None:
                slot.pick(sources_B)
        if self.clock is not None and not (self.clock.last is not None and sources_B is None):
            self.clock.pick(rows_R)  # rows of one source are equally long

    def rows_of(self, sources_B: Tensor) -> Tensor:
        if self.group == 1:
            return sources_B
        return (sources_B[:, None] * self.group + torch.arange(self.group, device=sources_B.device)).flatten()

    def advance(self, steps: int, ends_R: Tensor | None = None) -> None:
        """So many tokens were read. `ends_R`: rows were padded on the right, each is only so long, and what stands
        behind is written over."""
        self.time.advance(steps)
        if ends_R is not None:
            self.time.lengths_R, self.time.even = ends_R, False

    def fork(self) -> State:
        """A copy whose steps leave this state alone."""
        clock = self.clock and self.clock.fork()
        return self._made(lambda slot: slot.fork(clock), clock, self.group)

    def _made(self, make: Callable[[Slot], Slot], clock: Clock | None, group: int) -> State:
        """A state of what is made of each slot."""
        return State({name: [make(slot) for slot in slots] for name, slots in self.slots.items()}, clock, group)

    def steady(self, sources: int, group: int, capacity: int, source_length: int = 0) -> State:
        """An empty room for as many sources of `group` rows each, whose tensors stay where they are. `capacity`:
        positions of a row; `source_length`: of a source."""
        clock = None
        if self.clock is not None:
            lengths_R = self.clock.lengths_R.new_zeros(sources * group)
            clock = Clock(lengths_R, 0, even=False, last=max(0, capacity - 1))

        def room(slot: Slot) -> Slot:
            if slot.of_source:
                return slot.steady(sources, source_length, clock)
            return slot.steady(sources * group, capacity, clock)

        return self._made(room, clock, group)

    def first(self, sources: int, lengths: Sequence[int] | int, source_length: int | None = None) -> State:
        """The first sources of a room, as a state whose steps write into it. `lengths`: of their rows, known on the
        host, or one bound of all that stays (for captured steps)."""
        clock = None
        if self.clock is not None:
            clock = Clock(self.clock.lengths_R[: sources * self.group], 0, last=self.clock.last)
            if isinstance(lengths, int):
                clock.longest, clock.even, clock.steady = lengths, False, True
            else:
                clock.longest = max(lengths, default=0)
                clock.even = min(lengths, default=0) == clock.longest and len(lengths) == sources

        def view(slot: Slot) -> Slot:
            if slot.of_source:
                return slot.first(sources, source_length, clock)
            return slot.first(sources * self.group, None, clock)

        return self._made(view, clock, self.group)

    def insert(self, other: State, at: Places) -> None:
        """Write another state's sources, with their rows, to these places of this room; where it has more rows of each
        source, every row as often."""
        used = other.clock.longest if other.clock is not None else 0
        copies = self.group // other.group  # rows of this room for each of the other's
        rows = slice(at.start * other.group, at.stop * other.group) if isinstance(at, slice) else other.rows_of(at)
        for mine, theirs in zip(self, other, strict=True):
            if mine.of_source:
                mine.insert(theirs, at, 1, used)
            else:
                mine.insert(theirs, rows, copies, used)
        if self.clock is not None and other.clock is not None:
            put(self.clock.lengths_R, 0, rows, other.clock.lengths_R, copies)

    def move(self, source_B: Tensor, target_B: Tensor, used: int) -> None:
        """Copy sources with their rows, of which `used` positions are in use, from places of this room to others."""
        for slot in self:
            from_R, to_R = (source_B, target_B) if slot.of_source else (self.rows_of(source_B), self.rows_of(target_B))
            if isinstance(slot, FixedCache):
                if slot.kv_2CRHK is not None:
                    kv_2CRHK = slot.kv_2CRHK[:, :used]
                    copy_rows(kv_2CRHK, kv_2CRHK, 2, from_R, to_R)
            else:
                assert isinstance(slot, Values)
                for tensor in slot.tensors:
                    tensor.index_copy_(0, to_R, tensor.index_select(0, from_R))
        if self.clock is not None:
            lengths_R, to_R = self.clock.lengths_R, self.rows_of(target_B)
            lengths_R.index_copy_(0, to_R, lengths_R.index_select(0, self.rows_of(source_B)))

    def parts(self) -> list[Tensor]:
        """The tensors of the rows that a step replaces, in a fixed order."""
        return [tensor for slot in self if isinstance(slot, Values) and not slot.of_source for tensor in slot.tensors]

    def of(self, parts: Sequence[Tensor]) -> State:
        """This state with other `parts`; everything else is shared."""
        given = iter(parts)

        def renewed(slot: Slot) -> Slot:
            if not isinstance(slot, Values) or slot.of_source:
                return slot
            return slot.of([next(given) for _ in slot.tensors], self.clock)

        return self._made(renewed, self.clock, self.group)

    def renew(self, parts: Sequence[Tensor]) -> State:
        """This very state, with other `parts`: what a step leaves."""
        self.slots = self.of(parts).slots
        return self

    def settle(self, parts: Sequence[Tensor]) -> None:
        """Write what has replaced these `parts` (of a view, before its steps) back to where they are."""
        for home, new in zip(parts, self.parts(), strict=True):
            if home is not new:
                home.copy_(new)
        self.renew(parts)
