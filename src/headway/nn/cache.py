"""Caches: the slots that hold keys and values of what was read, in three layouts behind one `append`.

R rows, H heads, T new positions, S positions so far, C capacity, K head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.fast.step import pick_rows
from headway.nn.position import Scene
from headway.nn.slots import Clock, Places, Slot, put


class Cache(Slot):
    """Abstract. Keys and values of the tokens so far, in one layer. `append` hides the layout."""

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, these last."""
        raise NotImplementedError

    def scene(self, clock: Clock, steps: int, segments_RT: Tensor | None) -> Scene:
        """Of so many new tokens and of what `append` will return."""
        return clock.scene(steps, segments_RT)


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

    def __init__(self, *kv_RHSK: Tensor) -> None:
        """`kv_RHSK`: the keys and values so far, none in a new one."""
        self.kv_RHSK = kv_RHSK

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        if self.kv_RHSK:
            k_RHTK, v_RHTK = (torch.cat(both, 2) for both in zip(self.kv_RHSK, (k_RHTK, v_RHTK), strict=True))
        self.kv_RHSK = k_RHTK, v_RHTK
        return k_RHTK, v_RHTK

    def pick(self, rows_R: Tensor) -> None:
        self.kv_RHSK = tuple(part.index_select(0, rows_R) for part in self.kv_RHSK)

    def fork(self, clock: Any) -> GrowingCache:
        return GrowingCache(*self.kv_RHSK)


class FixedCache(Cache):
    """Writes new keys and values in place into room of a fixed size, each row at its own length.

    The length axis comes first, and `pick` copies just the part in use, into a spare that then changes places with it.
    Memory is taken with the first keys, which say how large they are. For use without gradients: torch refuses it
    otherwise.
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
            self.kv_2CRHK = _zeros(like_RHTK, self.capacity, self.rows, heads, head_width)

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
        k_RHSK, v_RHSK = self.kv_2CRHK[:, :used].permute(0, 2, 3, 1, 4).unbind()
        return k_RHSK, v_RHSK

    def used_after(self, steps: int) -> int:
        """Positions that are in use when so many more have come."""
        used = self.clock.longest + steps
        if used > self.capacity:
            raise IndexError(f"a cache of {self.capacity} positions is full")
        return used

    def append_one(self, k_RHK: Tensor, v_RHK: Tensor) -> tuple[Tensor, Tensor]:
        """`append` for one token of rows that are equally long, in few calls; the first came through `append`."""
        assert self.kv_2CRHK is not None and self.clock.even
        used = self.used_after(1)
        self.kv_2CRHK[0, used - 1], self.kv_2CRHK[1, used - 1] = k_RHK, v_RHK
        k_RHSK, v_RHSK = self.kv_2CRHK[:, :used].permute(0, 2, 3, 1, 4).unbind()
        return k_RHSK, v_RHSK

    def pick(self, rows_R: Tensor) -> None:
        if self.kv_2CRHK is None:
            self.rows = len(rows_R)
            return
        target_2CRHK, used = self._spare(len(rows_R)), self.clock.longest
        pick_rows(self.kv_2CRHK[:, :used], rows_R, target_2CRHK[:, :used])
        self.kv_2CRHK, self.spare, self.rows = target_2CRHK, self.kv_2CRHK, len(rows_R)
        if self.room is not None:
            self.room.kv_2CRHK, self.room.spare = self.room.spare, self.room.kv_2CRHK

    def _spare(self, rows: int) -> Tensor:
        """The second buffer that `pick` writes into."""
        assert self.kv_2CRHK is not None
        if self.room is not None and self.spare is None:
            assert self.room.kv_2CRHK is not None
            self.room.spare = torch.zeros_like(self.room.kv_2CRHK)
            self._look()
        if self.spare is None or self.spare.shape[2] != rows:
            self.spare = _zeros(self.kv_2CRHK, self.capacity, rows, *self.kv_2CRHK.shape[3:])
        return self.spare

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

    def insert(self, other: Any, at: Places, copies: int, used: int) -> None:
        if other.kv_2CRHK is None:
            used = 0
        else:
            self._allocate(other.kv_2CRHK[0].movedim(0, 2))
        if self.kv_2CRHK is not None:
            # What an earlier row has left is no number that a later one may meet, even with weight 0.
            put(self.kv_2CRHK[:, used:], 2, at, None, copies)
            if used:
                put(self.kv_2CRHK[:, :used], 2, at, other.kv_2CRHK[:, :used], copies)


def _zeros(like: Tensor, capacity: int, rows: int, heads: int, head_width: int) -> Tensor:
    """(2, C, R, H, K). On a CPU the keys of a head lie one behind the other, as a step reads them: with each in another
    page of memory the attention of many rows takes far longer."""
    if like.is_cuda:
        return like.new_zeros(2, capacity, rows, heads, head_width)
    return like.new_zeros(2, rows, heads, capacity, head_width).permute(0, 3, 1, 2, 4)


def fresh_caches(layers: int, rows: int, device: torch.device, room: int | None) -> tuple[list[Cache], Clock]:
    """Empty ones: fixed at `room`, growing where it is None, keeping nothing where it is 0."""
    clock = Clock(torch.zeros(rows, dtype=torch.long, device=device), 0)

    def cache() -> Cache:
        if room is None:
            return GrowingCache()
        return FixedCache(clock, room) if room else NoCache()

    return [cache() for _ in range(layers)], clock
