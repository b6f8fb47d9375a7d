"""The step engine, for language models and sequence-to-sequence models: requests are admitted, stepped together and
leave as they finish.

It sees a model only through `start`, `read` and `head`. Rows live in slots of a room: those that join take free ones,
and when rows leave, others take their slots. What is decided on the device stays there; the host reads the record of
some steps at a time, while the device takes the next ones.

B requests, R rows, T length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from headway.generate.beam_pool import BeamPool
from headway.generate.pool import Key, PendingSteps, Pool, on_device, source_length
from headway.generate.prefixes import Prefixes
from headway.generate.prompts import PromptMemoryError, Reading
from headway.generate.request import Found, Keyed, Kind, Request, Token, Written
from headway.generate.sample_pool import SamplePool
from headway.generate.stepper import PlainStepper, stepper_for
from headway.models.protocols import Steps
from headway.nn.state import State

TOKENS = {"cpu": 4096, "cuda": 1 << 15}  # that are read together, padding counted
FEW = 512  # that are read together whatever is padded, on a CPU
WORK = 1 << 40  # parameters times tokens: with less a GPU is sooner done than the host has launched it
PADDING = 1.25  # the longest of a batch over its shortest


class Engine:
    """Continues any number of requests, admitted at any time."""

    def __init__(
        self, model: Steps, *, context: int, device: torch.device, slots: int = 0, length: int = 0,
        stepper: PlainStepper | None = None, prefixes: Prefixes | None = None, chunk: int = 0,
    ) -> None:  # fmt: skip
        """`context` is the most tokens that a row may have; `slots` and `length` the least size of a pool, for requests
        that come later; such a pool stays when it is empty. What a `stepper` has captured serves every engine that it
        is given to. `prefixes`: what was read of earlier prompts is not read again. `chunk`: tokens of prompts that are
        read before the rows that are open take their next step (0: all of them)."""
        self.model, self.context, self.device, self.least = model, context, device, (slots, length)
        self.widest = 0  # source so far: a pool takes any, so that one after the other is the same pool
        self.stepper = stepper or stepper_for(model, device)
        self.pools: list[Pool[Any]] = []
        self.prefixes, self.chunk = prefixes, chunk
        self.reading: deque[Reading] = deque()
        self._evicted = set[tuple[int, int]]()  # rows of those that have been evicted already
        on_gpu = device.type == "cuda"
        few = WORK // max(1, sum(weight.numel() for weight in model.parameters())) if on_gpu else FEW
        self.together = TOKENS["cuda" if on_gpu else "cpu"], few
        self.quick = few >= self.together[0]  # so small a model that the host is what takes time

    def __len__(self) -> int:
        """Slots that are still open, and those of prompts that are being read."""
        return sum(map(len, self.pools)) + sum(map(len, self.reading))

    @torch.inference_mode()
    def admit(self, requests: Sequence[Keyed], checked: bool = False) -> None:
        """Take requests in, each under a key of the caller's own."""
        if not checked:
            for key, request in requests:
                request.check(f"prompt {key + 1}", self.model.vocabulary, self.context)
        by_kind: dict[Kind, list[Keyed]] = {}
        last: tuple[Any, list[Keyed]] = None, []
        for keyed in requests:  # thousands may have the very same settings
            if not keyed[1].like(last[0]):
                last = keyed[1], by_kind.setdefault(keyed[1].kind(self.context), [])
            last[1].append(keyed)
        self._settle()
        for kind, some in by_kind.items():
            self._read(kind, some)

    def _read(self, kind: Kind, requests: list[Keyed]) -> None:
        """What is given but for its last tokens is read, requests of similar length together, and written into slots
        of a pool."""
        slots = sum(request.slots for _, request in requests)
        length = max(request.whole if kind.sliding else request.need(self.context) for _, request in requests)
        most, few = self.together
        for wave in self._waves(requests):  # fewer prompts together rather than a part of each: that is quicker
            for some in _batches(wave, self._left, min(most, self.chunk or most), few):
                self.reading.append(Reading(kind, some, slots, length))
                slots -= len(self.reading[-1])
        try:
            while self.reading and not self.chunk:
                self._read_on(0)
        except BaseException:
            self.reading.clear()
            raise

    def _waves(self, requests: list[Keyed]) -> list[list[Keyed]]:
        """Requests whose prompts begin with those of others are read after them."""
        if self.prefixes is None:
            return [requests]
        places = self.prefixes.waves([request.given[:-1] for _, request in requests])
        return [[requests[at] for at in wave] for wave in places]

    def _left(self, request: Request) -> int:
        """Tokens of a request, those that need not be read again left out."""
        known = self.prefixes.known(request.given[:-1]) if self.prefixes and request.inputs is None else 0
        return request.size - known

    def _read_on(self, most: int) -> int:
        """Read some tokens (0: all) of the first prompts that wait; those that were read whole enter a pool. How many
        were read."""
        reading = self.reading[0]
        read = 0 if reading.done else reading.read_some(self.model, self.device, self.prefixes, most)
        if reading.done:
            pool = self._pool(reading.kind, reading.state, reading.slots, reading.length)
            pool.enter(reading.requests, reading.state)
            pool.evict(self._left_by(self.reading.popleft()))
        return read

    def _fits(self, read: int) -> bool:
        """Whether the first prompts that wait are read before the next step too: prompts that are read in two parts
        take longer than those that are read in one."""
        return not read or read + min(self.chunk, self.reading[0].left) <= self.chunk

    def _left_by(self, reading: Reading) -> set[tuple[int, int]]:
        """Rows that were evicted while they were read."""
        gone = self._evicted & reading.rows
        self._evicted -= gone
        return gone

    def _pool(self, kind: Kind, state: State | None, slots: int, length: int) -> Pool[Any]:
        """One that has room for these, or a new one."""
        width = source_length(state)
        for pool in self.pools:
            if pool.kind == kind and pool.fits(slots, length, width):
                return pool
        length, self.widest = max(length, self.least[1]), max(width, self.widest)
        if not kind.sliding:
            length = self.stepper.length(length, self.context + 2)
        key = Key(kind, self.stepper.slots(max(slots, self.least[0])), length, -(-self.widest // 16) * 16, self.context)
        pool_class = BeamPool if kind.search else SamplePool
        self.pools.append(self.stepper.lease(key, partial(pool_class, self.model, key, state, self.device)))
        return self.pools[-1]

    @torch.inference_mode()
    def step(self) -> list[Token | Found]:
        """The next token of every sampled row, and what searches have found; what has ended leaves."""
        self._settle()
        try:
            read = 0
            while self.reading and (self._fits(read) or not any(map(len, self.pools))):  # or no row waits for its step
                read += self._read_on(self.chunk)
        except (MemoryError, torch.OutOfMemoryError) as error:
            reading = self.reading.popleft()
            self._left_by(reading)
            for pool in self.pools:  # what was short may have been room for what was read
                pool.evict(reading.rows)
            raise PromptMemoryError(reading.keys) from error
        return [output for pool in self.pools for output in self._next(pool)]

    def _next(self, pool: Pool[Any]) -> list[Any]:
        outputs = pool.landed()
        while outputs is None:
            if not pool.pending:
                self._launch(pool)
            if pool.pending and self.stepper.ahead(pool):
                self._launch(pool)
            if not pool.pending:
                return []
            outputs = pool.take(pool.pending.popleft())
        return outputs

    def _launch(self, pool: Pool[Any]) -> None:
        count = pool.due(self.stepper.at_once(pool))
        if count:
            record = self.stepper.steps(pool, count)
            pool.pending.append(PendingSteps(list(pool.entries), record))
            pool.launched(count)

    def _settle(self) -> None:
        """Rows that have outgrown the context continue in its sliding window; slots that are free are closed up where
        that makes a step smaller; a pool without rows is given back."""
        for pool in list(self.pools):
            if slots := pool.outgrown():
                rows: list[Any] = [pool.entries[slot] for slot in slots]
                texts = pool.rows.without_state(on_device(slots, self.device))
                pool.leave(slots)
                window, length = pool.kind._replace(sliding=True), max(row.request.whole for row in rows)
                self._pool(window, None, len(rows), length).put(rows, texts)
        for pool in list(self.pools):
            size = self.stepper.size(pool)
            if not len(pool) and not self._stays(pool):
                self.pools.remove(pool)
                self.stepper.release(pool)
            elif size < len(pool.entries):
                pool.compact(size)

    def _stays(self, pool: Pool[Any]) -> bool:
        """The first of its kind that has the least size: it is likely that others come."""
        first = next(own for own in self.pools if own.kind == pool.kind)
        return bool(self.least[0]) and pool is first and not pool.kind.sliding and pool.kind.search is None

    @torch.inference_mode()
    def evict(self, rows: Iterable[tuple[int, int]]) -> list[Written]:
        """End these rows (key, sample) now, as stopped: for a caller that sees more than ids, or whose reader has left.
        A search that is evicted reports nothing."""
        wanted = set(rows)
        for reading in list(self.reading):
            self._evicted |= wanted & reading.rows
            if reading.rows <= self._evicted:
                self.reading.remove(reading)
                self._left_by(reading)
        return [written for pool in self.pools for written in pool.evict(wanted)]

    def close(self) -> None:
        """Give the pools back, whatever is in them."""
        for pool in self.pools:
            self.stepper.release(pool)
        self.pools = []
        self.reading.clear()
        self._evicted.clear()


def _batches(
    requests: Sequence[Keyed], size_of: Callable[[Request], int], most: int, few: int
) -> Iterator[list[Keyed]]:
    """Requests of similar length, the longest first, so that little is padded; at most so many tokens."""
    some: list[Keyed] = []
    longest = 0
    sizes = [size_of(request) for _, request in requests]
    for at in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        size, keyed, tokens = sizes[at], requests[at], longest * (len(some) + 1)
        if some and (tokens > most or (tokens > few and longest > PADDING * size)):
            yield some
            some = []
        longest = longest if some else size
        some.append(keyed)
    if some:
        yield some
