"""Prefixes that prompts share are read once: the states of prompts that were read, found again by their first tokens.

A state can serve any prompt that begins alike, since its keys and values up to some token depend on no later one. So
only states of such caches are kept, of language models without a source.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headway.nn.cache import FixedCache
from headway.nn.slots import Clock
from headway.nn.state import State

LEAST_SHARED = 32  # tokens that are worth looking for


class Shared(NamedTuple):
    """The first tokens of a prompt, as a state of one row that has read them; it may have read more."""

    tokens: int
    state: State | None

    def cut(self, tokens: int) -> State:
        """The state as it was behind so many tokens."""
        assert self.state is not None
        return State(self.state.slots, Clock(torch.tensor([tokens], device=self.state.time.lengths_R.device), tokens))


NOTHING = Shared(0, None)


@dataclass
class Entry:
    ids: NDArray[np.int64]
    state: State
    size: int


class Prefixes:
    """At most so many bytes of them: those that were used last stay. `asked` and `shared` count tokens of prompts, and
    those that were not read again."""

    def __init__(self, most: int) -> None:
        self.most, self.size, self.asked, self.shared = most, 0, 0, 0
        self.entries: OrderedDict[int, Entry] = OrderedDict()
        self._numbers = 0
        self._by_start: dict[tuple[int, ...], list[int]] = {}

    def known(self, ids: Sequence[int]) -> int:
        """How many of the first tokens of a prompt were read before."""
        return self._longest(ids)[1]

    def find(self, ids: Sequence[int]) -> Shared:
        """The longest prefix of a prompt that was read before."""
        number, tokens = self._longest(ids)
        if not tokens:
            return NOTHING
        self.entries.move_to_end(number)
        return Shared(tokens, self.entries[number].state)

    def count(self, ids: Sequence[int], tokens: int) -> None:
        self.asked += len(ids)
        self.shared += tokens

    def _longest(self, ids: Sequence[int]) -> tuple[int, int]:
        found, wanted = (0, 0), np.asarray(ids, np.int64)
        for number in self._by_start.get(tuple(ids[:LEAST_SHARED]), ()) if len(ids) >= LEAST_SHARED else ():
            found = max(found, (alike(wanted, self.entries[number].ids), number))
        return found[1], found[0]

    def keep(self, ids: Sequence[int], state: State, row: int) -> None:
        """Keep what a row of a state has read: these ids. Entries that it begins with are not needed any more."""
        caches = [slot.kv_2CRHK for slot in state if isinstance(slot, FixedCache) and slot.kv_2CRHK is not None]
        if len(ids) < LEAST_SHARED or len(caches) < len(list(state)):
            return
        size = sum(kv_2CRHK[:, : len(ids), row].nbytes for kv_2CRHK in caches)
        if size > self.most:
            return
        wanted, start = np.array(ids, np.int64), tuple(ids[:LEAST_SHARED])
        for number in list(self._by_start.get(start, ())):
            same = alike(wanted, self.entries[number].ids)
            if same == len(wanted):
                return
            if same == len(self.entries[number].ids):
                self._drop(number)
        self._numbers += 1
        self.entries[self._numbers] = Entry(wanted, _row(state, row, len(ids)), size)
        self._by_start.setdefault(start, []).append(self._numbers)
        self.size += size
        while self.size > self.most:
            self._drop(next(iter(self.entries)))

    def _drop(self, number: int) -> None:
        entry = self.entries.pop(number)
        self.size -= entry.size
        start = tuple(entry.ids[:LEAST_SHARED].tolist())
        self._by_start[start].remove(number)
        if not self._by_start[start]:
            del self._by_start[start]

    def clear(self) -> None:
        self.entries.clear()
        self._by_start.clear()
        self.size = 0

    def waves(self, texts: Sequence[Sequence[int]]) -> list[list[int]]:
        """The texts in two groups, by their places: those of the second share more with one of the first than with
        anything that was read."""
        order = sorted(range(len(texts)), key=lambda at: list(texts[at]), reverse=True)  # the longer of two first
        first, second = list[int](), list[int]()
        for at in order:
            same = alike(np.asarray(texts[at]), np.asarray(texts[first[-1]])) if first else 0
            (second if same >= LEAST_SHARED and same > self.known(texts[at]) else first).append(at)
        return [sorted(first), sorted(second)] if second else [sorted(first)]


def alike(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """How many ids two texts begin with alike."""
    most = min(len(a), len(b))
    apart = np.flatnonzero(a[:most] != b[:most])
    return int(apart[0]) if len(apart) else most


def _row(state: State, row: int, tokens: int) -> State:
    """A copy of what one row has read."""
    clock = Clock(torch.tensor([tokens], device=state.time.lengths_R.device), tokens)

    def copied(slot: FixedCache) -> FixedCache:
        twin = FixedCache(clock, tokens, 1)
        assert slot.kv_2CRHK is not None
        twin.kv_2CRHK = slot.kv_2CRHK[:, :tokens, row : row + 1].clone()
        return twin

    return State({name: [copied(slot) for slot in slots] for name, slots in state.slots.items()}, clock)
