"""State: what a model carries from one step to the next. It is passed, never stored on a module.

A state is made of slots: keys and values, hidden vectors, sums, the last ids, the memory of a source. A slot belongs to
the rows or to the sources; every source has the same number of rows (one of a language model, its beam in a search).
What happens to all slots is written once, here; a family only lists its slots.

A call consumes a state (and may change it in place); `fork` copies. `steady` makes a room whose tensors stay where they
are: `insert` writes rows into it, and a step through `first`, a view of its first rows, writes into the room.

B sources, R rows, H heads, S source length, C capacity, K head width, D width, N ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from headway.fast import step as step_kernels


@dataclass
class Clock:
    """How far each row is. `longest` bounds the lengths on the host, so that the device need not be asked."""

    lengths_R: Tensor
    longest: int
    even: bool = True  # all rows are `longest` long
    last: int | None = None  # in a room: lengths are advanced in place, up to this one
    steady: bool = False  # `longest` is a bound that stays (for captured steps)

    @property
    def start(self) -> int | Tensor:
        return self.longest if self.even else self.lengths_R

    def advance(self, steps: int) -> None:
        if self.last is None:
            self.lengths_R = self.lengths_R + steps
        else:
            step_kernels.advance(self.lengths_R, steps, self.last)
        self.longest += 0 if self.steady else steps

    def pick(self, rows_R: Tensor) -> None:
        """Keep these rows; once the longest have left, the positions that only they needed are free again."""
        self.lengths_R = self.lengths_R.index_select(0, rows_R)
        if not (self.even or self.steady):
            shortest, self.longest = (int(length) for length in self.lengths_R.aminmax())
            self.even = shortest == self.longest

    def fork(self) -> Clock:
        return Clock(self.lengths_R.clone(), self.longest, self.even, self.last, self.steady)


class Slot:
    """Abstract. One thing that a state carries."""

    of_source: ClassVar[bool] = False  # or of a row

    def pick(self, rows_R: Tensor) -> None:
        """Row r becomes what row rows_R[r] was."""
        raise NotImplementedError

    def fork(self, clock: Any) -> Self:
        raise NotImplementedError

    def steady(self, rows: int, capacity: int, clock: Any) -> Slot:
        """Empty room for `rows` of this kind. `capacity`: how many positions, where there are some."""
        raise TypeError("only states with fixed caches have a room: start with a `room`")

    def first(self, rows: int, capacity: int | None, clock: Any) -> Slot:
        """A view of the first rows (and positions)."""
        raise NotImplementedError

    def insert(self, other: Any, rows_R: Tensor, used: int) -> None:
        """Write the other's rows, of which `used` positions are in use, to these rows of this room."""
        raise NotImplementedError


class Values(Slot):
    """Tensors (R, …) that a step replaces by new ones: a hidden vector and a cell, a sum, the last ids."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors

    def pick(self, rows_R: Tensor) -> None:
        self.tensors = tuple(tensor.index_select(0, rows_R) for tensor in self.tensors)

    def fork(self, clock: Any) -> Self:
        return type(self)(*(tensor.clone() for tensor in self.tensors))

    def steady(self, rows: int, capacity: int, clock: Any) -> Self:
        return type(self)(*(tensor.new_zeros(rows, *tensor.shape[1:]) for tensor in self.tensors))

    def first(self, rows: int, capacity: int | None, clock: Any) -> Self:
        return type(self)(*(tensor[:rows] for tensor in self.tensors))

    def insert(self, other: Any, rows_R: Tensor, used: int) -> None:
        for mine, theirs in zip(self.tensors, other.tensors, strict=True):
            mine.index_copy_(0, rows_R, theirs)


class SourceValues(Values):
    """Tensors (B, …) of the sources, which no step changes: a fork shares them."""

    of_source = True

    def fork(self, clock: Any) -> Self:
        return type(self)(*self.tensors)


class Memory(SourceValues):
    """Keys and values of the source in one layer."""

    def __init__(self, k_BHSK: Tensor, v_BHSK: Tensor) -> None:
        super().__init__(k_BHSK, v_BHSK)

    @property
    def k_BHSK(self) -> Tensor:
        return self.tensors[0]

    @property
    def v_BHSK(self) -> Tensor:
        return self.tensors[1]

    def steady(self, rows: int, capacity: int, clock: Any) -> Memory:
        _, heads, _, width = self.k_BHSK.shape
        return Memory(*(tensor.new_zeros(rows, heads, capacity, width) for tensor in self.tensors))

    def first(self, rows: int, capacity: int | None, clock: Any) -> Memory:
        return Memory(*(tensor[:rows, :, :capacity] for tensor in self.tensors))

    def insert(self, other: Any, rows_R: Tensor, used: int) -> None:
        length = other.k_BHSK.shape[2]
        for mine_BHSK, theirs_BHSK in zip(self.tensors, other.tensors, strict=True):
            mine_BHSK[:, :, length:].index_fill_(0, rows_R, 0)  # weight 0 times what an earlier source left may be NaN
            mine_BHSK[:, :, :length].index_copy_(0, rows_R, theirs_BHSK)


class Cache(Slot):
    """Abstract. Keys and values of the tokens so far, in one layer. `append` hides the layout."""

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, these last."""
        raise NotImplementedError


class NoCache(Cache):
    """Keeps nothing: for a text that is given whole, as in training."""

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        return k_RHTK, v_RHTK

    def pick(self, rows_R: Tensor) -> None:
        raise TypeError("a state without caches takes no second step: start with another room")

    def fork(self, clock: Any) -> NoCache:
        return self


class GrowingCache(Cache):
    """Joins new keys and values to the old. Simple, differentiable, one copy of everything a step."""

    def __init__(self) -> None:
        self.k_RHSK: Tensor | None = None
        self.v_RHSK: Tensor | None = None

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        if self.k_RHSK is not None and self.v_RHSK is not None:
            k_RHTK, v_RHTK = torch.cat([self.k_RHSK, k_RHTK], 2), torch.cat([self.v_RHSK, v_RHTK], 2)
        self.k_RHSK, self.v_RHSK = k_RHTK, v_RHTK
        return k_RHTK, v_RHTK

    def pick(self, rows_R: Tensor) -> None:
        if self.k_RHSK is not None and self.v_RHSK is not None:
            self.k_RHSK, self.v_RHSK = self.k_RHSK.index_select(0, rows_R), self.v_RHSK.index_select(0, rows_R)

    def fork(self, clock: Any) -> GrowingCache:
        twin = GrowingCache()
        twin.k_RHSK, twin.v_RHSK = self.k_RHSK, self.v_RHSK
        return twin


class FixedCache(Cache):
    """Writes new keys and values in place into room of a fixed size, each row at its own length.

    The length axis comes first, so that the part in use is one range of memory: `pick` copies just that, into a spare
    that then changes places with it. Memory is taken with the first keys, which say how large they are. For use without
    gradients: torch refuses it otherwise.
    """

    def __init__(self, clock: Clock, capacity: int, rows: int | None = None, room: FixedCache | None = None) -> None:
        """`room`: the cache of which this is a view of the first rows."""
        self.clock, self.capacity, self.room = clock, capacity, room
        self.rows = len(clock.lengths_R) if rows is None else rows
        self.kv_2CRHK: Tensor | None = None
        self.spare: Tensor | None = None
        self._look()

    def _look(self) -> None:
        """See of the room what it has."""
        if self.room is not None and self.room.kv_2CRHK is not None:
            self.kv_2CRHK = self.room.kv_2CRHK[:, :, : self.rows]
            self.spare = None if self.room.spare is None else self.room.spare[:, :, : self.rows]

    def _allocate(self, like_RHTK: Tensor) -> None:
        if self.room is not None:
            self.room._allocate(like_RHTK)
            self._look()
        elif self.kv_2CRHK is None:
            heads, head_width = like_RHTK.shape[1], like_RHTK.shape[3]
            # Zeros: a kernel that reads only what a row has leaves the places behind it as they were.
            self.kv_2CRHK = like_RHTK.new_zeros(2, self.capacity, self.rows, heads, head_width)

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        rows, _, steps, _ = k_RHTK.shape
        used = self.used_after(steps)
        if self.kv_2CRHK is None:
            self._allocate(k_RHTK)
        assert self.kv_2CRHK is not None
        for part_CRHK, new_RHTK in zip(self.kv_2CRHK, (k_RHTK, v_RHTK), strict=True):
            new_TRHK = new_RHTK.permute(2, 0, 1, 3)
            if self.clock.even:
                part_CRHK[self.clock.longest : used] = new_TRHK
            else:
                if not self.clock.steady:
                    # A shorter row has nothing there yet, and weight 0 times whatever memory holds may be NaN.
                    part_CRHK[self.clock.longest : used] = 0
                steps_TR = self.clock.lengths_R + torch.arange(steps, device=new_TRHK.device)[:, None]
                part_CRHK[steps_TR, torch.arange(rows, device=new_TRHK.device)] = new_TRHK
        k_RHSK, v_RHSK = self.kv_2CRHK[:, :used].permute(0, 2, 3, 1, 4)
        return k_RHSK, v_RHSK

    def used_after(self, steps: int) -> int:
        """Positions that are in use when so many more have come."""
        used = self.clock.longest + steps
        if used > self.capacity:
            raise IndexError(f"a cache of {self.capacity} positions is full")
        return used

    def append_one(self, kv_R2HK: Tensor) -> tuple[Tensor, Tensor]:
        """`append` for one token of rows that are equally long, in one copy; the first came through `append`."""
        assert self.kv_2CRHK is not None and self.clock.even
        used = self.used_after(1)
        self.kv_2CRHK[:, used - 1] = kv_R2HK.transpose(0, 1)
        k_RHSK, v_RHSK = self.kv_2CRHK[:, :used].permute(0, 2, 3, 1, 4).unbind()
        return k_RHSK, v_RHSK

    def pick(self, rows_R: Tensor) -> None:
        if self.kv_2CRHK is None:
            self.rows = len(rows_R)
            return
        target_2CRHK, used = self._spare(len(rows_R)), self.clock.longest
        for new_CRHK, part_CRHK in zip(target_2CRHK, self.kv_2CRHK, strict=True):
            torch.index_select(part_CRHK[:used], 1, rows_R, out=new_CRHK[:used])
        self._swap(target_2CRHK)

    def _spare(self, rows: int) -> Tensor:
        """The second buffer that `pick` writes into."""
        assert self.kv_2CRHK is not None
        if self.room is not None and self.spare is None:
            assert self.room.kv_2CRHK is not None
            self.room.spare = torch.zeros_like(self.room.kv_2CRHK)
            self._look()
        if self.spare is None or self.spare.shape[2] != rows:
            shape = (2, self.capacity, rows, *self.kv_2CRHK.shape[3:])
            self.spare = self.kv_2CRHK.new_zeros(shape)
        return self.spare

    def _swap(self, new_2CRHK: Tensor) -> None:
        self.kv_2CRHK, self.spare, self.rows = new_2CRHK, self.kv_2CRHK, new_2CRHK.shape[2]
        if self.room is not None:
            self.room.kv_2CRHK, self.room.spare = self.room.spare, self.room.kv_2CRHK

    def fork(self, clock: Any) -> FixedCache:
        twin = FixedCache(clock, self.capacity, self.rows)
        twin.kv_2CRHK = None if self.kv_2CRHK is None else self.kv_2CRHK.clone()
        return twin

    def steady(self, rows: int, capacity: int, clock: Any) -> FixedCache:
        twin = FixedCache(clock, capacity, rows)
        if self.kv_2CRHK is not None:
            twin._allocate(self.kv_2CRHK[0].movedim(0, 2))
        return twin

    def first(self, rows: int, capacity: int | None, clock: Any) -> FixedCache:
        return FixedCache(clock, self.capacity, rows, room=self)

    def insert(self, other: Any, rows_R: Tensor, used: int) -> None:
        if other.kv_2CRHK is None:
            used = 0
        else:
            self._allocate(other.kv_2CRHK[0].movedim(0, 2))
        if self.kv_2CRHK is not None:
            # What an earlier row has left is no number that a later one may meet, even with weight 0.
            self.kv_2CRHK[:, used:].index_fill_(2, rows_R, 0)
            if used:
                self.kv_2CRHK[:, :used].index_copy_(2, rows_R, other.kv_2CRHK[:, :used])


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
            rows_R = torch.arange(self.rows, device=self._device()).repeat_interleave(group)
            self._pick(rows_R, None)
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

    def trim(self, lengths_R: Tensor) -> None:
        """Rows were padded on the right: each is only so long, and what stands behind is written over."""
        self.time.lengths_R, self.time.even = lengths_R, False

    def fork(self) -> State:
        """A copy whose steps leave this state alone."""
        clock = self.clock and self.clock.fork()
        return State(
            {name: [slot.fork(clock) for slot in slots] for name, slots in self.slots.items()}, clock, self.group
        )

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

        return State({name: [room(slot) for slot in slots] for name, slots in self.slots.items()}, clock, group)

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

        return State({name: [view(slot) for slot in slots] for name, slots in self.slots.items()}, clock, self.group)

    def insert(self, other: State, sources_B: Tensor) -> None:
        """Write another state's sources, with their rows, to these places of this room; where it has more rows of each
        source, every row as often."""
        used = other.clock.longest if other.clock is not None else 0
        copies = self.group // other.group  # rows of this room for each of the other's
        rows_RC = self.rows_of(sources_B).view(-1, copies)
        for mine, theirs in zip(self, other, strict=True):
            for rows_R in [sources_B] if mine.of_source else rows_RC.unbind(1):
                mine.insert(theirs, rows_R, used)
        if self.clock is not None and other.clock is not None:
            for rows_R in rows_RC.unbind(1):
                self.clock.lengths_R.index_copy_(0, rows_R, other.clock.lengths_R)

    def move(self, source_B: Tensor, target_B: Tensor) -> None:
        """Copy sources with their rows from some places of this room to others."""
        for slot in self:
            from_R, to_R = (source_B, target_B) if slot.of_source else (self.rows_of(source_B), self.rows_of(target_B))
            if isinstance(slot, FixedCache):
                if slot.kv_2CRHK is not None:
                    slot.kv_2CRHK.index_copy_(2, to_R, slot.kv_2CRHK.index_select(2, from_R))
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
            return type(slot)(*(next(given) for _ in slot.tensors))

        slots = {name: [renewed(slot) for slot in slots] for name, slots in self.slots.items()}
        return State(slots, self.clock, self.group)

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

    def _device(self) -> torch.device:
        return self.clock.lengths_R.device if self.clock is not None else self.parts()[0].device


def fresh_caches(layers: int, rows: int, device: torch.device, room: int | None) -> tuple[list[Cache], Clock]:
    """Empty ones: fixed at `room`, growing where it is None, keeping nothing where it is 0."""
    clock = Clock(torch.zeros(rows, dtype=torch.long, device=device), 0)

    def cache() -> Cache:
        if room is None:
            return GrowingCache()
        return FixedCache(clock, room) if room else NoCache()

    return [cache() for _ in range(layers)], clock
