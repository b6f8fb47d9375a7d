"""State: what a model carries from one step to the next. It is passed, never stored on a module.

A call consumes a state (and may update it in place); `fork` copies. Rows come in groups: R hypotheses over B
sources, R a multiple of B. `reorder` picks hypotheses inside their groups and leaves the source alone;
`select` keeps some sources with all their hypotheses; `insert` puts the rows of another state behind.

B sources, R rows, H heads, S source length, C capacity, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headway.fast import step as step_kernels


@dataclass
class Memory:
    """Keys and values of the source in one layer."""

    k_BHSK: Tensor
    v_BHSK: Tensor

    def select(self, sources_B: Tensor) -> Memory:
        return Memory(self.k_BHSK.index_select(0, sources_B), self.v_BHSK.index_select(0, sources_B))

    def insert(self, other: Memory) -> Memory:
        return Memory(*(_stack(a, b) for a, b in ((self.k_BHSK, other.k_BHSK), (self.v_BHSK, other.v_BHSK))))


def _stack(a: Tensor, b: Tensor) -> Tensor:
    """Rows of b behind rows of a, the shorter padded with zeros on the right of the length axis."""
    length = max(a.shape[2], b.shape[2])
    return torch.cat([torch.nn.functional.pad(x, (0, 0, 0, length - x.shape[2])) for x in (a, b)])


class Cache(Protocol):
    """Keys and values of the target so far, in one layer. `append` hides the layout."""

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]: ...
    def reorder(self, rows_R: Tensor) -> None: ...
    def fork(self, clock: Clock) -> Cache: ...


class NoCache:
    """Keeps nothing: for a target that is given whole, as in training."""

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        return k_RHTK, v_RHTK

    def reorder(self, rows_R: Tensor) -> None:
        raise TypeError("a state without caches takes no second step: encode with another room")

    def fork(self, clock: Clock) -> NoCache:
        return self


class GrowingCache:
    """Joins new keys and values to the old. Simple, differentiable, one copy of everything a step."""

    def __init__(self) -> None:
        self.k_RHSK: Tensor | None = None
        self.v_RHSK: Tensor | None = None

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        if self.k_RHSK is not None and self.v_RHSK is not None:
            k_RHTK, v_RHTK = torch.cat([self.k_RHSK, k_RHTK], 2), torch.cat([self.v_RHSK, v_RHTK], 2)
        self.k_RHSK, self.v_RHSK = k_RHTK, v_RHTK
        return k_RHTK, v_RHTK

    def reorder(self, rows_R: Tensor) -> None:
        if self.k_RHSK is not None and self.v_RHSK is not None:
            self.k_RHSK, self.v_RHSK = self.k_RHSK.index_select(0, rows_R), self.v_RHSK.index_select(0, rows_R)

    def fork(self, clock: Clock) -> GrowingCache:
        twin = GrowingCache()
        twin.k_RHSK, twin.v_RHSK = self.k_RHSK, self.v_RHSK
        return twin


@dataclass
class Clock:
    """How far each row is. `longest` bounds the lengths on the host, so that nobody has to ask the device."""

    lengths_R: Tensor
    longest: int
    even: bool = True  # all rows are `longest` long
    steady: bool = False  # `longest` is a bound that stays; lengths end there (for captured steps)

    @property
    def start(self) -> int | Tensor:
        return self.longest if self.even else self.lengths_R

    def advance(self, steps: int) -> None:
        if self.steady:
            step_kernels.advance(self.lengths_R, steps, self.longest)
        else:
            self.lengths_R = self.lengths_R + steps
            self.longest += steps

    def reorder(self, rows_R: Tensor) -> None:
        self.lengths_R = self.lengths_R.index_select(0, rows_R)

    def select(self, rows_R: Tensor) -> None:
        """Keep these rows; once the longest have left, the room that only they needed is free again."""
        self.reorder(rows_R)
        if not (self.even or self.steady):
            shortest, self.longest = (int(length) for length in self.lengths_R.aminmax())
            self.even = shortest == self.longest

    def fork(self) -> Clock:
        # A copy, since a captured step writes the lengths where it read them.
        return Clock(self.lengths_R.clone(), self.longest, self.even, self.steady)


class FixedCache:
    """Writes new keys and values in place into room of a fixed size, each row at its own length.

    The length axis comes first, so that the part in use is one piece of memory: a reorder copies just that,
    into a spare that then changes places with it. For use without gradients: torch refuses it otherwise.
    """

    def __init__(self, clock: Clock, capacity: int) -> None:
        self.clock, self.capacity = clock, capacity
        self.kv_2CRHK: Tensor | None = None
        self.spare: Tensor | None = None

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        rows, heads, steps, head_width = k_RHTK.shape
        used = self.used_after(steps)
        if self.kv_2CRHK is None:
            # Zeros: a kernel that reads only what a row has leaves the places behind it as they were.
            self.kv_2CRHK = k_RHTK.new_zeros(2, self.capacity, rows, heads, head_width)
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

    def reorder(self, rows_R: Tensor) -> None:
        if self.kv_2CRHK is None:
            return
        used, shape = self.clock.longest, (2, self.capacity, len(rows_R), *self.kv_2CRHK.shape[3:])
        new_2CRHK = self._spare_room(shape)
        for new_CRHK, part_CRHK in zip(new_2CRHK, self.kv_2CRHK, strict=True):
            torch.index_select(part_CRHK[:used], 1, rows_R, out=new_CRHK[:used])
        self.kv_2CRHK, self.spare = new_2CRHK, self.kv_2CRHK

    def _spare_room(self, shape: tuple[int, ...]) -> Tensor:
        """The spare in this shape: fewer rows need no new memory."""
        assert self.kv_2CRHK is not None
        size = math.prod(shape)
        if self.spare is None or self.spare.numel() < size:
            return self.kv_2CRHK.new_zeros(shape)
        return self.spare.view(-1)[:size].view(shape)

    def fork(self, clock: Clock) -> FixedCache:
        twin = FixedCache(clock, self.capacity)
        twin.kv_2CRHK = None if self.kv_2CRHK is None else self.kv_2CRHK.clone()
        return twin

    def insert(self, other: FixedCache, clock: Clock) -> FixedCache:
        twin = FixedCache(clock, self.capacity)
        known = self.kv_2CRHK if self.kv_2CRHK is not None else other.kv_2CRHK
        if known is not None:
            parts = [cache._room_like(known) for cache in (self, other)]
            for part_2CRHK, part in zip(parts, (self, other), strict=True):
                part_2CRHK[:, part.clock.longest :] = 0
            twin.kv_2CRHK = torch.cat(parts, dim=2)
        return twin

    def load(self, other: FixedCache) -> None:
        """Copy what the other holds, as far as there is room."""
        if self.kv_2CRHK is not None and other.kv_2CRHK is not None:
            used, rows = min(self.capacity, other.clock.longest), other.kv_2CRHK.shape[2]
            self.kv_2CRHK[:, :used, :rows].copy_(other.kv_2CRHK[:, :used])

    def _room_like(self, other_2CRHK: Tensor) -> Tensor:
        if self.kv_2CRHK is not None:
            return self.kv_2CRHK
        two, capacity, _, *head = other_2CRHK.shape
        return other_2CRHK.new_zeros(two, capacity, len(self.clock.lengths_R), *head)


@dataclass
class StreamState:
    """Caches and their clock: all that a decoder carries of what it has read and written."""

    caches: Sequence[Cache]
    clock: Clock

    def reorder(self, rows_R: Tensor) -> None:
        """Row r goes on from row rows_R[r]."""
        for cache in self.caches:
            cache.reorder(rows_R)
        if not self.clock.even:
            self.clock.reorder(rows_R)

    def keep(self, rows_R: Tensor) -> None:
        """Only these rows, in this order."""
        for cache in self.caches:
            cache.reorder(rows_R)
        self.clock.select(rows_R)

    def repeat(self, group: int) -> None:
        """Every row `group` times, side by side."""
        rows = torch.arange(len(self.clock.lengths_R), device=self.clock.lengths_R.device)
        for cache in self.caches:
            cache.reorder(rows.repeat_interleave(group))
        self.clock.reorder(rows.repeat_interleave(group))

    def trim(self, lengths_R: Tensor) -> None:
        """Rows were padded on the right: each is only so long, and what stands behind is written over."""
        self.clock.lengths_R, self.clock.even = lengths_R, False

    def joined(self, other: StreamState) -> tuple[list[FixedCache], Clock]:
        """Caches and clock of this state's rows, then the other's (fixed caches of the same capacity)."""
        mine, theirs = self.clock, other.clock
        clock = Clock(
            torch.cat([mine.lengths_R, theirs.lengths_R]),
            max(mine.longest, theirs.longest),
            mine.even and theirs.even and mine.longest == theirs.longest,
        )
        return [a.insert(b, clock) for a, b in zip(self.fixed(), other.fixed(), strict=True)], clock

    def insert(self, other: StreamState) -> StreamState:
        return StreamState(*self.joined(other))

    def steady_caches(
        self, shapes: list[Tensor], capacity: int, rows: int | None = None, spare: bool = True
    ) -> tuple[list[FixedCache], Clock]:
        """Room of as many rows (or of `rows`) at addresses that stay, whose steps need nothing from the host: for
        capture. `shapes` has a tensor of each layer whose second and last axes are heads and head width; `spare`
        is for who reorders."""
        rows = rows or len(self.clock.lengths_R)
        clock = Clock(self.clock.lengths_R.new_zeros(rows), capacity - 1, even=False, steady=True)
        caches = []
        for like in shapes:
            cache = FixedCache(clock, capacity)
            shape = (2, capacity, rows, like.shape[1], like.shape[-1])
            cache.kv_2CRHK, cache.spare = like.new_zeros(shape), like.new_zeros(shape) if spare else None
            caches.append(cache)
        return caches, clock

    @property
    def capacity(self) -> int:
        """Positions of its fixed caches."""
        return self.fixed()[0].capacity

    @property
    def may_stay(self) -> bool:
        """Whether `steady_rows` can be asked for: the caches are fixed, and something was read, so that it is known
        how large their entries are."""
        return all(isinstance(cache, FixedCache) and cache.kv_2CRHK is not None for cache in self.caches)

    def steady_rows(self, rows: int) -> StreamState:
        """Room for `rows` of this capacity at addresses that stay (see `steady_caches`); its rows stay in order."""
        shapes = [cache.kv_2CRHK[0, 0] for cache in self.fixed() if cache.kv_2CRHK is not None]
        return StreamState(*self.steady_caches(shapes, self.capacity, rows, spare=False))

    def load(self, other: StreamState) -> None:
        """Copy another state into this room: its rows become the first ones."""
        for cache, other_cache in zip(self.fixed(), other.fixed(), strict=True):
            cache.load(other_cache)
        self.clock.lengths_R[: len(other.clock.lengths_R)].copy_(other.clock.lengths_R)

    def homes(self) -> list[Tensor]:
        """The tensors that a step replaces by new ones, where a captured step would write in place."""
        return [self.clock.lengths_R]

    def settle(self, homes: list[Tensor]) -> None:
        """Bring what has replaced them back to `homes`."""
        (home_R,) = homes
        self.clock.lengths_R = home_R.copy_(self.clock.lengths_R)  # nothing to do where it has never left

    def fork(self) -> StreamState:
        """A copy whose steps leave this state alone."""
        clock = self.clock.fork()
        return StreamState([cache.fork(clock) for cache in self.caches], clock)

    def fixed(self) -> list[FixedCache]:
        found = [cache for cache in self.caches if isinstance(cache, FixedCache)]
        if len(found) < len(self.caches):
            raise TypeError("only states with fixed caches can be joined or loaded: ask for a room")
        return found


@dataclass
class DecoderState(StreamState):
    """What an encoder-decoder carries: the source's memories and lengths beside the target's caches."""

    memories: list[Memory]
    source_lengths_B: Tensor | None  # None: no row is padded

    @property
    def sources(self) -> int:
        return len(self.memories[0].k_BHSK)

    @property
    def source_length(self) -> int:
        """Of the longest source, padding of the shorter ones counted."""
        return self.memories[0].k_BHSK.shape[2]

    @property
    def group(self) -> int:
        """Hypotheses of each source."""
        return len(self.clock.lengths_R) // self.sources

    def widen(self, group: int) -> None:
        """From one hypothesis of each source to `group` equal ones; the source stays as it is."""
        self.repeat(group)

    def select(self, sources_B: Tensor, parents_R: Tensor | None = None) -> None:
        """Keep these sources, in this order, each with all its hypotheses; with `parents_R`, as after
        `reorder(parents_R)`, but in one copy instead of two."""
        group = self.group
        rows_R = (sources_B[:, None] * group + torch.arange(group, device=sources_B.device)).flatten()
        self.memories = [memory.select(sources_B) for memory in self.memories]
        if self.source_lengths_B is not None:
            self.source_lengths_B = self.source_lengths_B.index_select(0, sources_B)
        self.keep(rows_R if parents_R is None else parents_R[rows_R])

    def insert(self, other: StreamState) -> DecoderState:
        """This state's rows, then the other's (of the same group size, with fixed caches of the same capacity)."""
        assert isinstance(other, DecoderState)
        lengths = torch.cat([self._source_lengths(), other._source_lengths()])
        memories = [a.insert(b) for a, b in zip(self.memories, other.memories, strict=True)]
        return DecoderState(*self.joined(other), memories, lengths)

    def steady(self, capacity: int, source_length: int) -> DecoderState:
        """Room of the same rows at addresses that stay (see `steady_caches`)."""
        memories = []
        for memory in self.memories:
            batch, heads, _, head_width = memory.k_BHSK.shape
            k_BHSK, v_BHSK = memory.k_BHSK.new_zeros(2, batch, heads, source_length, head_width)
            memories.append(Memory(k_BHSK, v_BHSK))
        room = self.steady_caches([memory.k_BHSK for memory in memories], capacity)
        return DecoderState(*room, memories, self._source_lengths().clone())

    def load(self, other: StreamState) -> None:
        assert isinstance(other, DecoderState)
        super().load(other)
        for mine, theirs in zip(self.memories, other.memories, strict=True):
            length = min(mine.k_BHSK.shape[2], theirs.k_BHSK.shape[2])
            mine.k_BHSK[:, :, :length].copy_(theirs.k_BHSK[:, :, :length])
            mine.v_BHSK[:, :, :length].copy_(theirs.v_BHSK[:, :, :length])
        if self.source_lengths_B is None:
            raise TypeError("only room that `steady` has made can be loaded")
        self.source_lengths_B.copy_(other._source_lengths())

    def fork(self) -> DecoderState:
        """A copy whose steps leave this state alone; the source's memories, which no step changes, are shared."""
        twin = super().fork()
        return DecoderState(twin.caches, twin.clock, list(self.memories), self.source_lengths_B)

    def _source_lengths(self) -> Tensor:
        if self.source_lengths_B is not None:
            return self.source_lengths_B
        return torch.full((self.sources,), self.source_length, device=self.clock.lengths_R.device)


def fresh_caches(layers: int, rows: int, device: torch.device, room: int | None) -> tuple[list[Cache], Clock]:
    """Empty ones: fixed at `room`, growing where it is None, keeping nothing where it is 0."""
    clock = Clock(torch.zeros(rows, dtype=torch.long, device=device), 0)

    def cache() -> Cache:
        if room is None:
            return GrowingCache()
        return FixedCache(clock, room) if room else NoCache()

    return [cache() for _ in range(layers)], clock
