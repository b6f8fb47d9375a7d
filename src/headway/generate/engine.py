"""The step engine: sources are admitted, stepped together and leave as they finish.

It sees a model only through `encode`, `decode` and the state they pass. What is decided on the device stays
there; the host reads the record of some steps at a time.

N slots, K beam, G steps since the last reading.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from headway.generate.beam import Board, Record
from headway.generate.history import History
from headway.generate.search import Hypothesis, Request, Search
from headway.generate.stepper import Stepper
from headway.models.protocols import Seq2Seq


@dataclass
class Flight:
    """A source in flight: when it came, how long it may get, and the hypotheses that have ended."""

    request: Request
    born: int  # the engine's step at which it was admitted
    longest: int
    ended: list[tuple[float, float, int, int]] = field(default_factory=list)  # score, sum, step, parent beam


class SearchEngine:
    """Beam search over any number of sources, admitted at any time."""

    board: Board

    def __init__(
        self, model: Seq2Seq, search: Search, stepper: Stepper, *, start: int, end: int, limit: int,
        device: torch.device, room: int = 0,
    ) -> None:  # fmt: skip
        """`limit` is the most tokens that the model can take; `room` the least size of the caches, for sources
        that come later."""
        self.model, self.search, self.stepper, self.start, self.end = model, search, stepper, start, end
        # A row that is done may take some steps more before it is read: these need positions too.
        self.limit, self.device, self.least = limit - stepper.margin, device, room
        self.slots: list[Flight | None] = []  # None: its source has finished, its rows go along until the next move
        self.room = 0
        self.history = History()

    @property
    def flights(self) -> list[Flight]:
        return [flight for flight in self.slots if flight is not None]

    @torch.inference_mode()
    def admit(self, requests: list[Request]) -> None:
        """Take sources in. Into a running engine only those that fit (see `fits`)."""
        new = [Flight(r, self.history.steps, self.search.longest(len(r.source), self.limit)) for r in requests]
        if not self.flights:
            self.slots, self.history = [], History()
            for flight in new:
                flight.born = 0
            self.room = max(self.least, max(flight.longest for flight in new) + self.stepper.pace)
        spare = self.stepper.slots(len(self.slots) + len(new)) - len(self.slots) - len(new)
        everyone: list[Flight] = new + [new[-1]] * spare  # rows that only fill the room repeat the last source
        state = self.model.encode(*self._source(everyone), room=self.room + 1)
        board = Board.fresh(state, self.start, self.search.beam, [f.longest for f in everyone], self.device)
        self.board = self.board.insert(board) if self.slots else board
        self.history.place([*range(len(self.slots)), *(-1 for _ in everyone)])
        self.slots = [*self.slots, *new, *(None for _ in range(spare))]

    def _source(self, flights: list[Flight]) -> tuple[torch.Tensor, torch.Tensor | None]:
        lengths = np.array([len(flight.request.source) for flight in flights])
        ids = np.full((len(flights), lengths.max()), self.end)
        for row, flight in enumerate(flights):
            ids[row, : lengths[row]] = flight.request.source
        even = bool((lengths == lengths.max()).all())
        lengths_N = None if even else torch.from_numpy(lengths).to(self.device)
        return torch.from_numpy(ids).to(self.device), lengths_N

    def fits(self, request: Request) -> bool:
        """Whether the running caches have room for this source from now on."""
        flights = self.flights
        if not flights or not self.stepper.joins:
            return not flights
        need = self.search.longest(len(request.source), self.limit) + self.stepper.pace
        return self.history.steps - min(flight.born for flight in flights) + need <= self.room

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Some tokens for every row; what has finished leaves, best hypothesis first."""
        age = self.history.steps - min(flight.born for flight in self.flights)
        limit = self.limit + self.stepper.margin + 1
        self.board, records = self.stepper.steps(self.board, self.search, self.end, age, limit)
        done = self._read(records)
        finished = self._harvest(done)
        for n in done:
            self.slots[n] = None
        self._evict()
        return finished

    def _read(self, records: list[Record]) -> list[int]:
        """Bring the record to the host and go through it step by step; returns the slots that are done."""
        columns = [torch.stack(column).cpu().numpy() for column in zip(*records, strict=True)]
        first = self.history.steps
        self.history.add(*columns[:3])
        open_N = np.array([flight is not None for flight in self.slots])
        done: list[int] = []
        for step, (scores_NK, ended_NK, from_NK) in enumerate(zip(*columns[2:], strict=True), first):
            for n, c in np.argwhere((ended_NK > -math.inf) & open_N[:, None]).tolist():
                self._note_end(self.slots[n], float(ended_NK[n, c]), step, int(from_NK[n, c]))
            for n in np.flatnonzero(open_N).tolist():
                if self._is_done(self.slots[n], step + 1, scores_NK[n]):
                    done.append(n)
                    open_N[n] = False
        return done

    def _note_end(self, flight: Flight | None, total: float, step: int, beam: int) -> None:
        assert flight is not None
        length = step - flight.born + 1
        flight.ended.append((total / length**self.search.length_penalty, total, step, beam))

    def _is_done(self, flight: Flight | None, now: int, scores_K: NDArray[np.float32]) -> bool:
        assert flight is not None
        age = now - flight.born
        if age > flight.longest:
            return True
        if self.search.finish == "full":
            return len(flight.ended) >= self.search.beam
        if len(flight.ended) < self.search.best:
            return False
        # A sum of log-probabilities only falls: the best that an open beam can still reach is its own sum
        # over the most forgiving length.
        alpha = self.search.length_penalty
        reach = float(scores_K.max()) / (flight.longest + 1 if alpha > 0 else age + 1) ** alpha
        return sorted((end[0] for end in flight.ended), reverse=True)[self.search.best - 1] >= reach

    def _harvest(self, done: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """The best hypotheses of the sources in these slots, traced back all at once."""
        flights = {n: flight for n in done if (flight := self.slots[n]) is not None}
        chosen = [
            (n, flight, end)
            for n, flight in flights.items()
            for end in sorted(flight.ended, key=lambda end: -end[0])[: self.search.best]
        ]
        found: dict[int, tuple[int, list[Hypothesis]]] = {n: (f.request.key, []) for n, f in flights.items()}
        traced = self.history.trace_back(
            [n for n, _, _ in chosen], [end[2] for _, _, end in chosen], [end[3] for _, _, end in chosen],
            [flight.born for _, flight, _ in chosen],
        )  # fmt: skip
        for (n, _, (score, total, _, _)), (ids, sums) in zip(chosen, traced, strict=True):
            pieces = [after - before for before, after in zip([0.0, *sums], [*sums, total], strict=True)]
            found[n][1].append(Hypothesis(ids, score, pieces))
        return list(found.values())

    def _evict(self) -> None:
        """Let finished rows go, when that makes the batch smaller."""
        stay = [n for n, flight in enumerate(self.slots) if flight is not None]
        size = self.stepper.slots(len(stay)) if stay else 0
        if not stay or size >= len(self.slots):
            return
        gone = [n for n, flight in enumerate(self.slots) if flight is None]
        keep = stay + gone[: size - len(stay)]
        self.slots = [self.slots[n] for n in keep]
        self.history.place(keep)
        self.board = self.board.select(torch.tensor(keep, device=self.device))
