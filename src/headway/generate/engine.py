"""The step engine, for language models and sequence-to-sequence models: requests are admitted, stepped together and
leave as they finish.

It sees a model only through `start`, `read` and `head`. Rows live in fixed slots of a room: nothing is moved when a row
joins, and when rows leave, the last ones take their slots. What is decided on the device stays there; the host reads
the record of some steps at a time, while the device takes the next ones.

B requests, R rows, T length.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.generate import noise
from headway.generate.beam import BeamRows, Ends
from headway.generate.beam_pool import BeamPool
from headway.generate.pool import PendingSteps, Pool, SamplePool, on_device
from headway.generate.request import Found, Request, Row, Token, Written
from headway.generate.samples import SampleRows
from headway.generate.search import Search
from headway.generate.stepper import PlainStepper, stepper_for
from headway.models.protocols import Steps
from headway.nn.slots import Memory
from headway.nn.state import State

Keyed = tuple[int, Request]
TOKENS = {"cpu": 4096, "cuda": 1 << 15}  # that are read together, padding counted
FEW = 512  # tokens that are read together whatever is padded
PADDING = 1.25  # the longest of a batch over its shortest


class Engine:
    """Continues any number of requests, admitted at any time."""

    def __init__(
        self, model: Steps, *, context: int, device: torch.device, slots: int = 0, length: int = 0,
        stepper: PlainStepper | None = None,
    ) -> None:  # fmt: skip
        """`context` is the most tokens that a row may have; `slots` and `length` the least size of a pool, for requests
        that come later. What a `stepper` has captured serves every engine that it is given to."""
        self.model, self.context, self.device, self.least = model, context, device, (slots, length)
        self.stepper = stepper or stepper_for(model, device)
        self.pools: list[tuple[Hashable, Pool[Any]]] = []

    def __len__(self) -> int:
        """Slots that are still open."""
        return sum(len(pool) for _, pool in self.pools)

    @torch.inference_mode()
    def admit(self, requests: Sequence[Keyed]) -> None:
        """Take requests in, each under a key of the caller's own."""
        for key, request in requests:
            request.check(f"prompt {key + 1}", self.model.vocabulary, self.context)
        self._settle()
        by_kind: dict[Hashable, list[Keyed]] = {}
        for key, request in requests:
            by_kind.setdefault(self._kind(request), []).append((key, request))
        for kind, some in by_kind.items():
            if kind == "sliding":
                self._slide([row for keyed in some for row in _rows(keyed)])
            else:
                self._read(kind, some)

    def _kind(self, request: Request) -> Hashable:
        """Requests of one kind share a pool."""
        if isinstance(request.choose, Search):
            return request.choose, Ends(tuple(sorted(request.stops)), request.never), request.constrain is not None
        if not request.need(self.context):
            return "sliding"
        return "sample" if request.constrain is None else "constrained"

    def _read(self, kind: Hashable, requests: list[Keyed]) -> None:
        """What is given but for its last tokens is read, requests of similar length together, and written into slots
        of a pool."""
        slots = sum(request.slots for _, request in requests)
        length = max(request.need(self.context) for _, request in requests)
        for some in _batches(requests, TOKENS[self.device.type if self.device.type in TOKENS else "cpu"]):
            state = self._state([request for _, request in some])
            rows: Any = self._beams(kind, some, state) if isinstance(kind, tuple) else self._samples(some, state)
            source_length = _source_length(state)
            pool = self._pool(kind, rows, slots, length, source_length)
            entries: Sequence[Any] = [row for keyed in some for row in _rows(keyed)]
            if isinstance(pool, BeamPool):
                entries = pool.number(some, self._limits(some))
            pool.put(entries, rows, source_length)
            slots -= len(entries)

    def _state(self, requests: Sequence[Request]) -> State:
        inputs = None
        if requests[0].inputs is not None:
            given = [request.inputs for request in requests if request.inputs is not None]
            inputs = type(given[0]).join(given).map(lambda tensor: tensor.to(self.device))
        lengths = [len(request.given) - 1 for request in requests]
        longest = max(lengths)
        state: State = self.model.start(inputs, len(requests), self.device, room=max(1, longest))
        if longest:
            ids_BT = self._padded([request.given[:-1] for request in requests])
            lengths_B = None if min(lengths) == longest else on_device(lengths, self.device)
            _, state = self.model.read(ids_BT, state, lengths_R=lengths_B)
        return state

    def _samples(self, requests: list[Keyed], state: State | None) -> SampleRows:
        """The rows of these requests, one for each sample, from one state of each."""
        if state is not None and any(request.samples > 1 for _, request in requests):
            copies = np.repeat(np.arange(len(requests)), [request.samples for _, request in requests])
            state.keep(on_device(copies, self.device))
        rows = [row for keyed in requests for row in _rows(keyed)]
        lengths_R, seeds_R, samples_R, newest_R = (
            on_device(numbers, self.device)
            for numbers in zip(
                *((row.length, row.request.seed, row.sample, row.request.given[-1]) for row in rows), strict=True
            )
        )
        ids_RL = self._padded([row.request.given for row in rows])
        return SampleRows(state, ids_RL, lengths_R, lengths_R, noise.streams(seeds_R, samples_R), newest_R)

    def _beams(self, kind: Any, requests: list[Keyed], state: State) -> BeamRows:
        last_N = on_device([request.given[-1] for _, request in requests], self.device)
        return BeamRows.fresh(state, last_N, on_device(self._limits(requests), self.device), kind[0].beam)

    def _limits(self, requests: list[Keyed]) -> list[int]:
        """The most tokens of each output."""
        return [min(request.max_new, self.context - len(request.given)) for _, request in requests]

    def _padded(self, texts: Sequence[Sequence[int]]) -> Tensor:
        ids = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text)] = text
        return torch.from_numpy(ids).to(self.device)

    def _slide(self, rows: list[Row], texts: SampleRows | None = None) -> None:
        """Rows that do not fit into the context: they are read anew at each step."""
        length = max(len(row.request.given) + row.request.max_new + 1 for row in rows)
        texts = texts or self._samples([(row.key, row.request) for row in rows if not row.sample], None)
        self._pool("sliding", texts, len(rows), length, 0).put(rows, texts, 0)

    def _pool(self, kind: Hashable, rows: Any, slots: int, length: int, source_length: int) -> Pool[Any]:
        """One that has room for these, or a new one."""
        for _, pool in self.pools:
            if pool.kind == kind and pool.fits(slots, length, source_length):
                return pool
        sizes = self.stepper.slots(max(slots, self.least[0])), max(length, self.least[1])
        slots = sizes[0]
        length = sizes[1] if kind == "sliding" else self.stepper.length(sizes[1], self.context + 2)
        source_length = -(-source_length // 16) * 16
        key = (kind, slots, length, source_length, self.context)
        pool = self.stepper.lease(key, self._make(kind, rows, slots, length, source_length))
        self.pools.append((key, pool))
        return pool

    def _make(
        self, kind: Any, rows: Any, slots: int, length: int, source_length: int
    ) -> Callable[[], Pool[Any]]:  # fmt: skip
        def make() -> Pool[Any]:
            how = {"context": self.context, "length": length, "source_length": source_length}
            capacity = min(length, self.context)
            if isinstance(rows, BeamRows):
                room = rows.room(slots, capacity, kind[0].beam, source_length)
                return BeamPool(self.model, kind, room, **how)
            room = rows.room(slots, capacity, 1, source_length)
            room.ids_RL = room.ids_RL.new_zeros(slots, length)
            return SamplePool(self.model, kind, room, **how)

        return make

    @torch.inference_mode()
    def step(self) -> list[Token | Found]:
        """The next token of every sampled row, and what searches have found; what has ended leaves."""
        self._settle()
        return [output for _, pool in self.pools for output in self._next(pool)]

    def _next(self, pool: Pool[Any]) -> list[Any]:
        if isinstance(pool, SamplePool) and (tokens := pool.next()):
            return tokens
        while True:
            if not pool.pending:
                self._launch(pool)
            if pool.pending and self.stepper.ahead(pool):
                self._launch(pool)
            if not pool.pending:
                return []
            outputs = pool.take(pool.pending.popleft())
            if outputs or isinstance(pool, BeamPool):
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
        for _, pool in list(self.pools):
            if isinstance(pool, SamplePool) and pool.rows.state is not None:
                outgrown = [
                    (slot, row) for slot, row in enumerate(pool.entries)
                    if row is not None and not row.ahead and row.length > self.context
                ]  # fmt: skip
                if outgrown:
                    slots, rows = map(list, zip(*outgrown, strict=True))
                    pool.leave(slots)
                    self._slide(rows, pool.rows.without_state(on_device(slots, self.device)))
        for key, pool in list(self.pools):
            size = self.stepper.size(pool)
            if not len(pool):
                self.pools.remove((key, pool))
                self.stepper.release(key, pool)
            elif size < len(pool.entries):
                pool.compact(size)

    def evict(self, rows: Iterable[tuple[int, int]]) -> list[Written]:
        """End these rows (key, sample) now, as stopped: for a caller that sees more than ids, or whose reader has left.
        A search that is evicted reports nothing."""
        wanted, found = set(rows), []
        for _, pool in self.pools:
            if isinstance(pool, BeamPool):
                pool.evict({key for key, _ in wanted})
                continue
            for slot, row in enumerate(pool.entries):
                if row is not None and (row.key, row.sample) in wanted:
                    row.ended = "stop"
                    pool.leave([slot])
                    found.append(row.written())
        return found

    def close(self) -> None:
        """Give the pools back, whatever is in them."""
        for key, pool in self.pools:
            self.stepper.release(key, pool)
        self.pools = []


def _rows(keyed: Keyed) -> Iterator[Row]:
    key, request = keyed
    for sample in range(request.slots):
        yield Row(key, sample, request, state=request.constrain.start() if request.constrain is not None else None)


def _source_length(state: State) -> int:
    return max((slot.k_BHSK.shape[2] for slot in state if isinstance(slot, Memory)), default=0)


def _batches(requests: Sequence[Keyed], most: int) -> Iterator[list[Keyed]]:
    """Requests of similar length, the longest first, so that little is padded; at most so many tokens."""

    def size(keyed: Keyed) -> int:
        inputs: Any = keyed[1].inputs
        return len(keyed[1].given) + (0 if inputs is None else next(inputs.tensors())[1].shape[1])

    some: list[Keyed] = []
    longest = 0
    for keyed in sorted(requests, key=size, reverse=True):
        tokens = longest * (len(some) + 1)
        if some and (tokens > most or (tokens > FEW and longest > PADDING * size(keyed))):
            yield some
            some = []
        longest = size(keyed) if not some else longest
        some.append(keyed)
    if some:
        yield some
