"""The pool of rows whose tokens are drawn.

N slots, R rows, L room for ids, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.generate import arranging, noise, samples
from headway.generate.arranging import Arrangement
from headway.generate.chain import Allowed, Choice, Link, LogitBias
from headway.generate.pool import Captured, PendingSteps, Pool, on_device, padded
from headway.generate.request import Keyed, Row, Token, Written
from headway.generate.samples import Group, Outputs, SampleRows, Step
from headway.nn.cache import FixedCache
from headway.nn.ragged import CALL
from headway.nn.state import State


class SamplePool(Pool[Row]):
    """Rows whose tokens are drawn. A row's text depends on its request, seed and sample number, never on the others."""

    rows: SampleRows
    at_once = 8
    bounds = (256, 4)  # a kernel reads only the positions that a row has: few sizes will do
    reorders = False
    patience = 3  # steps of a free slot that take less time than to close it up

    def room(self, state: State | None) -> SampleRows:
        ids_NL = torch.zeros(self.slots, self.length, dtype=torch.long, device=self.device)
        return SampleRows(self.steady(state, 1), ids_NL, *(ids_NL.new_zeros(self.slots) for _ in range(4)))

    def clear(self) -> None:
        super().clear()
        self.idle = 0  # steps of free slots since rows were moved or came
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
        return [row.keys for _, row in self.open()]

    @property
    def call(self) -> int:
        """Keys that are read in the time of a call, where a step on a CPU reads some rows together, out of a cache; 0:
        all are read in one call."""
        keys = next((slot.kv_2CRHK for slot in self.rows.state or () if isinstance(slot, FixedCache)), None)
        cpu = self.device.type == "cpu" and not self.kind.constrained
        return 0 if keys is None or not cpu else CALL // keys[:, 0, 0].nbytes

    def arrangement(self, slots: Sequence[int], coming: Sequence[Row]) -> Arrangement:
        call = self.call
        if not call or len(slots) > self.taken + len(coming):  # only free slots at the end are left out
            return super().arrangement(slots, coming)
        self.idle = 0
        lengths = [None if row is None else row.keys for row in self.entries]
        return arranging.arranged(lengths, [row.keys for row in coming], slots, call)

    @property
    def used(self) -> int:
        """A slot that has just become free may soon be taken."""
        if not self.call or self.idle >= self.patience * (len(self.entries) - self.taken):
            return self.taken
        return max((slot + 1 for slot, _ in self.open()), default=0)

    def leave(self, slots: Iterable[int]) -> None:
        """Rows that nobody reads any more are short ones, as long as they are stepped."""
        slots = list(slots)
        super().leave(slots)
        if slots and self.call:
            assert self.rows.state is not None and self.rows.state.clock is not None
            self.rows.state.clock.lengths_R[slots] = 0
            self.rows.lengths_R[slots] = self.rows.prompts_R[slots] = 1

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
        self.idle += len(self.entries) - self.taken
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
