"""The step engine: sources are admitted, stepped together and leave as they finish.

It sees a model only through `start`, `logits` and the state they pass. What is decided on the device stays
there; the host reads the record of some steps at a time, while the device already takes the next ones.

N slots, K beam, F sources that are done.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import TextInputs
from headway.device import sent
from headway.generate.beam import Board
from headway.generate.history import Branches, History
from headway.generate.search import Hypothesis, Request, Search
from headway.generate.stepper import Stepper
from headway.models.protocols import Steps
from headway.text.symbols import Symbols

Ints = NDArray[np.int64]


@dataclass
class Flights:
    """The sources in flight, slot by slot. A closed slot's source has left; its rows go along until the next
    move."""

    requests: list[Request]
    born_N: Ints  # the engine's step at which each was admitted
    longest_N: Ints
    open_N: NDArray[np.bool_]
    ended_N: Ints  # hypotheses that have ended
    top_Nb: NDArray[np.float64]  # the scores of the `best` of them

    @staticmethod
    def fresh(requests: list[Request], longest: list[int], closed: int, born: int, best: int) -> Flights:
        count = len(requests)
        return Flights(
            requests, np.full(count, born), np.array(longest, dtype=np.int64), np.arange(count) < count - closed,
            np.zeros(count, dtype=np.int64), np.full((count, best), -np.inf),
        )  # fmt: skip

    def __len__(self) -> int:
        """Those that are still open."""
        return int(self.open_N.sum())

    def keep(self, slots_N: Ints) -> Flights:
        arrays = {f.name: getattr(self, f.name)[slots_N] for f in fields(self) if f.name != "requests"}
        return Flights([self.requests[n] for n in slots_N], **arrays)

    def join(self, other: Flights) -> Flights:
        names = [f.name for f in fields(self) if f.name != "requests"]
        arrays = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names}
        return Flights(self.requests + other.requests, **arrays)


class Reading:
    """The record of some steps on its way to the host."""

    move: Ints | None = None  # slots to keep, decided on after the launch of these steps: after them it holds

    def __init__(self, record_5GNK: Tensor) -> None:
        self.record_5GNK, self.event = record_5GNK, None
        if record_5GNK.is_cuda:
            self.record_5GNK, self.event = record_5GNK.to("cpu", non_blocking=True), torch.cuda.Event()
            self.event.record(torch.cuda.current_stream(record_5GNK.device))

    def wait(self) -> NDArray[np.float64]:
        if self.event is not None:
            self.event.synchronize()
        return self.record_5GNK.numpy()


class SearchEngine:
    """Beam search over any number of sources, admitted at any time."""

    board: Board

    def __init__(
        self, model: Steps, search: Search, stepper: Stepper, *, symbols: Symbols, limit: int,
        device: torch.device, room: int = 0, branches: dict[int, Branches] | None = None,
    ) -> None:  # fmt: skip
        """`limit` is the most tokens that the model can take; `room` the least size of the caches, for sources
        that come later. `branches`: where what every beam did is put, under the request's key, for who asks."""
        self.branches = branches
        self.model, self.search, self.stepper, self.symbols = model, search, stepper, symbols
        # A row that is done may take some steps more before it is read: these need positions too.
        self.limit, self.device, self.least = limit - stepper.margin, device, room
        self.reach = stepper.pace * (1 + stepper.ahead)  # steps that are taken before the first of them is read
        self.room = 0
        self._clear()

    def _clear(self) -> None:
        self.flights, self.history = Flights.fresh([], [], closed=0, born=0, best=self.search.best), History()
        self.readings: deque[Reading] = deque()
        self.launched = 0  # steps; the history has those that are read

    @torch.inference_mode()
    def admit(self, requests: list[Request]) -> None:
        """Take sources in. Into a running engine only those that fit (see `fits`)."""
        if not self.flights:
            self._clear()
        elif not all(map(self.fits, requests)):
            raise ValueError("a source does not fit into the running batch: ask `fits` first, or let the batch end")
        old = len(self.flights.requests)
        spare = self.stepper.slots(old + len(requests)) - old - len(requests)
        everyone = requests + [requests[-1]] * spare  # rows that only fill the room repeat the last source
        longest = [self.search.longest(len(request.source), self.limit) for request in everyone]
        if not old:
            self.room = max(self.least, max(longest) + self.reach)
        new = Flights.fresh(everyone, longest, spare, self.launched, self.search.best)
        state = self.model.start(self._source(everyone), len(everyone), self.device, room=self.room + 1)
        board = Board.fresh(state, self.symbols.start, self.search.beam, longest, self.device)
        if old:
            self.board.settle()
            board = self.board.insert(board)
        self.board = board
        self.history.place(np.concatenate([np.arange(old), np.full(len(everyone), -1)]))
        self.flights = self.flights.join(new)

    def _source(self, requests: list[Request]) -> TextInputs:
        lengths = np.array([len(request.source) for request in requests])
        ids = np.full((len(requests), lengths.max()), self.symbols.end)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate([request.source for request in requests])
        even = bool((lengths == lengths.max()).all())
        lengths_N = None if even else torch.from_numpy(lengths).to(self.device)
        return TextInputs(torch.from_numpy(ids).to(self.device), lengths_N)

    def fits(self, request: Request) -> bool:
        """Whether the running caches have room for this source from now on."""
        if not self.flights or not self.stepper.joins:
            return not self.flights
        need = self.search.longest(len(request.source), self.limit) + self.reach
        return self._oldest() + need <= self.room

    def _oldest(self) -> int:
        return self.launched - int(self.flights.born_N[self.flights.open_N].min())

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Some tokens for every row; what has finished leaves, best hypothesis first."""
        if not self.flights:
            return []
        self._launch()
        finished = []
        while self.launched - self.history.steps > self.stepper.ahead * self.stepper.pace:
            finished += self._land()
        self._evict()
        if not self.flights:
            self.readings.clear()  # what is still under way is nobody's
        return finished

    def _launch(self) -> None:
        limit = self.limit + self.stepper.margin
        self.board, record_5GNK = self.stepper.steps(self.board, self.search, self.symbols, self._oldest(), limit)
        self.readings.append(Reading(record_5GNK))
        self.launched += self.stepper.pace

    def _land(self) -> list[tuple[int, list[Hypothesis]]]:
        """Read the oldest record that is under way, and follow the board in what it did after those steps."""
        reading = self.readings.popleft()
        finished = self._harvest(*self._read(reading.wait()))
        if reading.move is not None:
            self._move(reading.move)
        return finished

    def _read(self, record_5GNK: NDArray[np.float64]) -> tuple[Ints, Ints]:
        """Go through a record; returns the slots that are done, and after which step."""
        first, flights = self.history.steps, self.flights
        self.history.add(record_5GNK)
        done, until = [], []
        for step, (scores_NK, ended_NK) in enumerate(zip(*record_5GNK[2:4], strict=True), first):
            age_N = step + 1 - flights.born_N
            self._count_ends(ended_NK, age_N)
            done_N = np.flatnonzero(flights.open_N & self._is_done(age_N, scores_NK))
            flights.open_N[done_N] = False
            done.append(done_N)
            until.append(np.full(len(done_N), step + 1))
        return np.concatenate(done), np.concatenate(until)

    def _count_ends(self, ended_NK: NDArray[np.float32], age_N: Ints) -> None:
        flights = self.flights
        flights.ended_N += (ended_NK > -math.inf).sum(1)
        if self.search.finish == "bound":
            scores_NK = ended_NK / (age_N**self.search.length_penalty)[:, None]
            every = np.concatenate([flights.top_Nb, scores_NK], axis=1)
            flights.top_Nb = -np.sort(-every, axis=1)[:, : self.search.best]

    def _is_done(self, age_N: Ints, scores_NK: NDArray[np.float32]) -> NDArray[np.bool_]:
        flights, alpha = self.flights, self.search.length_penalty
        over_N = age_N > flights.longest_N
        if self.search.finish == "full":
            return over_N | (flights.ended_N >= self.search.beam)
        # A sum of log-probabilities only falls: the best that an open beam can still reach is its own sum
        # over the most forgiving length.
        forgiving_N = (flights.longest_N if alpha > 0 else age_N) + 1
        return over_N | (flights.top_Nb[:, -1] >= scores_NK.max(1) / forgiving_N**alpha)

    def _harvest(self, done_F: Ints, until_F: Ints) -> list[tuple[int, list[Hypothesis]]]:
        """The best hypotheses of the sources in these slots, traced back all at once."""
        if not len(done_F):
            return []
        search, born_F = self.search, self.flights.born_N[done_F]
        if self.branches is not None:
            for slot, born, until in zip(done_F.tolist(), born_F.tolist(), until_F.tolist(), strict=True):
                self.branches[self.flights.requests[slot].key] = self.history.branches(slot, born, until)
        scores_Fb, totals_Fb, ends_Fb, beams_Fb = self.history.best_ends(
            done_F, born_F, until_F, search.best, search.length_penalty
        )
        there = np.nonzero(scores_Fb > -math.inf)
        source = there[0]
        traced = self.history.trace_back(
            done_F[source], ends_Fb[there], beams_Fb[there], born_F[source], totals_Fb[there]
        )
        found: list[tuple[int, list[Hypothesis]]] = [(self.flights.requests[n].key, []) for n in done_F]
        for f, score, (ids, logp) in zip(source.tolist(), scores_Fb[there].tolist(), traced, strict=True):
            found[f][1].append(Hypothesis(ids, score, logp))
        return found

    def _evict(self) -> None:
        """Let finished rows go, when that makes the batch smaller. The board does so at once, the host when it has
        read what was launched before: until then their slots differ, and no other move may be decided on."""
        open_N = self.flights.open_N
        size = self.stepper.slots(len(self.flights)) if self.flights else 0
        if not size or size >= len(open_N) or any(reading.move is not None for reading in self.readings):
            return
        keep = np.concatenate([np.flatnonzero(open_N), np.flatnonzero(~open_N)])[:size]
        self.board = self.board.select(sent(torch.from_numpy(keep), self.device))
        if self.readings:
            self.readings[-1].move = keep
        else:
            self._move(keep)

    def _move(self, keep: Ints) -> None:
        self.flights = self.flights.keep(keep)
        self.history.place(keep)
