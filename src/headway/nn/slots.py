"""Slots of a state: vectors that a step replaces, what belongs to a source, and how far each row is.

B sources, R rows, H heads, S source length, K head width, D width, N ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from headway.fast import step as step_kernels
from headway.nn.position import Scene

BLANK = 0  # stands where there is no token yet: the id of padding, which no text holds

Places = Tensor | slice  # of a room's rows: any, or some side by side, which is several times as fast


def put(room: Tensor, dim: int, at: Places, rows: Tensor | None, copies: int = 1) -> None:
    """Write rows to these places of a room, each to `copies` rows side by side; None: zeros."""
    if copies > 1:
        room, rows = room.unflatten(dim, (-1, copies)), rows if rows is None else rows.unsqueeze(dim + 1)
    if isinstance(at, slice):
        place = room.narrow(dim, at.start, at.stop - at.start)
        place.zero_() if rows is None else place.copy_(rows)
    elif rows is None:
        room.index_fill_(dim, at, 0)
    else:
        copy_rows(rows.expand_as(room.narrow(dim, 0, len(at))), room, dim, None, at)


def copy_rows(source: Tensor, target: Tensor, dim: int, from_N: Tensor | None, to_N: Tensor) -> None:
    """Copy rows (None: all) to these places. On a CPU torch's own functions copy number by number where the rows are
    not the first axis in memory; a row at a time is several times as fast."""
    if source.is_cuda or dim == 0:
        target.index_copy_(dim, to_N, source if from_N is None else source.index_select(dim, from_N))
        return
    places = to_N.tolist()
    for old, new in zip(range(len(places)) if from_N is None else from_N.tolist(), places, strict=True):
        target.select(dim, new).copy_(source.select(dim, old))


@dataclass
class Clock:
    """How far each row is. `longest` bounds the lengths on the host, so that the device need not be asked."""

    lengths_R: Tensor
    longest: int
    even: bool = True  # all rows are `longest` long
    last: int | None = None  # in a room: lengths are advanced in place, up to this one
    steady: bool = False  # `longest` is a bound that stays (for captured steps)
    ends_R: Tensor | None = None  # how far each row will be after what is being read, where that is padded

    @property
    def start(self) -> int | Tensor:
        return self.longest if self.even else self.lengths_R

    def advance(self, steps: int) -> None:
        if self.last is None:
            self.lengths_R = self.lengths_R + steps
        else:
            step_kernels.advance(self.lengths_R, steps, self.last)
        self.longest += 0 if self.steady else steps
        self.ends_R = None

    def scene(self, steps: int, segments_RT: Tensor | None) -> Scene:
        """Of so many new tokens and all earlier ones."""
        device, keys = self.lengths_R.device, self.longest + steps
        return Scene(steps, keys, device, self.start, self.ends_R, segments_RT, segments_RT)

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

    def insert(self, other: Any, at: Places, copies: int, used: int) -> None:
        """Write the other's rows, of which `used` positions are in use, to these places of this room: each to `copies`
        rows side by side."""
        raise NotImplementedError


class Values(Slot):
    """Tensors (R, …) that a step replaces by new ones: a hidden vector and a cell, a sum, the last ids."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors

    def of(self, tensors: Sequence[Tensor], clock: Any) -> Self:
        """The same slot with other tensors."""
        return type(self)(*tensors)

    def pick(self, rows_R: Tensor) -> None:
        self.tensors = tuple(tensor.index_select(0, rows_R) for tensor in self.tensors)

    def fork(self, clock: Any) -> Self:
        return self.of([tensor.clone() for tensor in self.tensors], clock)

    def steady(self, rows: int, capacity: int, clock: Any) -> Self:
        return self.of([tensor.new_zeros(rows, *tensor.shape[1:]) for tensor in self.tensors], clock)

    def first(self, rows: int, capacity: int | None, clock: Any) -> Self:
        return self.of([tensor[:rows] for tensor in self.tensors], clock)

    def insert(self, other: Any, at: Places, copies: int, used: int) -> None:
        for mine, theirs in zip(self.tensors, other.tensors, strict=True):
            put(mine, 0, at, theirs, copies)


def last_of(all_RS: Tensor, kept: int, lengths_R: Tensor | None) -> Tensor:
    """(R, kept, …) of (R, kept + T, …), which were kept before or came now: the last ones, or where rows are padded on
    the right, those up to each row's own end."""
    if lengths_R is None:
        return all_RS[:, all_RS.shape[1] - kept :]
    last_RN = lengths_R[:, None] + torch.arange(kept, device=all_RS.device)
    places = last_RN.view(*last_RN.shape, *[1] * (all_RS.dim() - 2))
    return all_RS.gather(1, places.expand(-1, -1, *all_RS.shape[2:]))


class Recent(Values):
    """The last N ids of each row, the latest last; BLANK before the first."""

    @classmethod
    def start(cls, rows: int, tokens: int, device: torch.device) -> Recent:
        return cls(torch.full((rows, tokens), BLANK, device=device))

    def read(self, ids_RT: Tensor, lengths_R: Tensor | None = None) -> Tensor:
        """(R, T, N): after each new token, that token and the N − 1 before it. Rows that are padded on the right
        continue from their own last token."""
        (ids_RN,) = self.tensors
        tokens = ids_RN.shape[1]
        all_RS = torch.cat([ids_RN, ids_RT], 1)
        self.tensors = (last_of(all_RS, tokens, lengths_R),)
        return all_RS.unfold(1, tokens, 1)[:, 1:]


class SourceValues(Values):
    """Tensors (B, …) of the sources, which no step changes: a fork shares them."""

    of_source = True

    def fork(self, clock: Any) -> Self:
        return type(self)(*self.tensors)


class Memory(SourceValues):
    """Keys and values of the source in one layer."""

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

    def insert(self, other: Any, at: Places, copies: int, used: int) -> None:
        length = other.k_BHSK.shape[2]
        for mine_BHSK, theirs_BHSK in zip(self.tensors, other.tensors, strict=True):
            # Weight 0 times what an earlier source left may be NaN.
            put(mine_BHSK[:, :, length:], 0, at, None)
            put(mine_BHSK[:, :, :length], 0, at, theirs_BHSK)


class SourceIds(SourceValues):
    """The ids of the sources, (B, S): what a head may copy."""

    def steady(self, rows: int, capacity: int, clock: Any) -> SourceIds:
        return SourceIds(self.tensors[0].new_full((rows, capacity), BLANK))

    def first(self, rows: int, capacity: int | None, clock: Any) -> SourceIds:
        return SourceIds(self.tensors[0][:rows, :capacity])

    def insert(self, other: Any, at: Places, copies: int, used: int) -> None:
        (mine_BS,), (theirs_BS,) = self.tensors, other.tensors
        put(mine_BS[:, theirs_BS.shape[1] :], 0, at, None)
        put(mine_BS[:, : theirs_BS.shape[1]], 0, at, theirs_BS)
