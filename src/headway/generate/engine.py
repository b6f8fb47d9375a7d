"""The step engine: sources are admitted, stepped together and leave as they finish.

It sees a model only through `encode`, `decode` and the state they pass. What is decided on the device stays
there; the host reads the record of some steps at a time.

N sources in flight, K beam, R = N·K rows, V vocabulary, G steps since the last reading.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.generate.history import History
from headway.generate.search import Hypothesis, Request, Search
from headway.generate.top_k import top_k
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

    scores_NK: Tensor  # sum of log-probabilities of every beam
    last_NK: Tensor  # its newest token
    limits_N: Tensor  # the longest output of a source
    ages_N: Tensor  # and how long it is so far

    def __init__(
        self, model: Seq2Seq, search: Search, *, start: int, end: int, limit: int, device: torch.device,
        pace: int = 1, room: int = 0,
    ) -> None:  # fmt: skip
        """`limit` is the most tokens that the model can take; `pace` how many steps pass between readings;
        `room` the least size of the caches, for sources that come later."""
        self.model, self.search, self.start, self.end = model, search, start, end
        # A row that is done takes up to pace − 1 steps more before it is read: these need positions too.
        self.limit, self.device, self.pace, self.least = limit + 1 - pace, device, pace, room
        self.flights: list[Flight] = []
        self.state: Any = None
        self.room = 0
        self.record: list[tuple[Tensor, ...]] = []
        self.history = History()

    def admit(self, requests: list[Request]) -> None:
        """Take sources in, between readings. Into a running engine only those that fit (see `fits`)."""
        now = self.history.steps + len(self.record)
        flights = [Flight(r, now, self.search.longest(len(r.source), self.limit)) for r in requests]
        if not self.flights:
            self.room = max(self.least, max(flight.longest for flight in flights) + self.pace)
        lengths = [len(request.source) for request in requests]
        ids = torch.full((len(requests), max(lengths)), self.end, dtype=torch.long)
        for row, request in enumerate(requests):
            ids[row, : lengths[row]] = torch.tensor(request.source)
        even = min(lengths) == max(lengths)
        lengths_N = None if even else torch.tensor(lengths, device=self.device)
        state = self.model.encode(ids.to(self.device), lengths_N, room=self.room + 1)
        state.widen(self.search.beam)
        scores_NK = torch.full((len(requests), self.search.beam), -math.inf, device=self.device)
        scores_NK[:, 0] = 0.0  # all beams start equal: only one may speak
        last_NK = torch.full((len(requests), self.search.beam), self.start, device=self.device)
        limits_N = torch.tensor([flight.longest for flight in flights], device=self.device)
        ages_N = torch.zeros(len(requests), dtype=torch.long, device=self.device)
        if self.flights:
            state = self.state.insert(state)
            scores_NK, last_NK = torch.cat([self.scores_NK, scores_NK]), torch.cat([self.last_NK, last_NK])
            limits_N, ages_N = torch.cat([self.limits_N, limits_N]), torch.cat([self.ages_N, ages_N])
        self.state, self.scores_NK, self.last_NK = state, scores_NK, last_NK
        self.limits_N, self.ages_N = limits_N, ages_N
        self.history.place([*range(len(self.flights)), *(-1 for _ in flights)])
        self.flights = self.flights + flights

    def fits(self, request: Request) -> bool:
        """Whether it can be admitted now: the running caches have room for it, and no steps wait to be read."""
        if not self.flights:
            return True
        need = self.search.longest(len(request.source), self.limit) + self.pace
        return not self.record and self.state.clock.longest + need <= self.room

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """One token for every row; every `pace` steps what has finished leaves, best hypothesis first."""
        self.record.append(self._advance())
        if len(self.record) < self.pace:
            return []
        finished = self._read()
        if finished:
            self._evict({key for key, _ in finished})
        return finished

    def _advance(self) -> tuple[Tensor, ...]:
        beam, (sources, _) = self.search.beam, self.scores_NK.shape
        logits_RTV, self.state = self.model.decode(self.last_NK.view(-1, 1), self.state)
        logp_RV = F.log_softmax(logits_RTV[:, -1], -1, dtype=torch.promote_types(logits_RTV.dtype, torch.float32))
        if self.search.min_length:
            young_R = (self.ages_N < self.search.min_length).repeat_interleave(beam)
            logp_RV[:, self.end].masked_fill_(young_R, -math.inf)
        # Twice the beam: even if every beam's best is its end, `beam` others go on.
        values_RC, ids_RC = top_k(logp_RV, min(2 * beam, logp_RV.shape[1]))
        last_N = self.ages_N >= self.limits_N
        values_RC, ids_RC = self._force_end(logp_RV, values_RC, ids_RC, last_N.repeat_interleave(beam))
        width = values_RC.shape[1]
        totals_NC = (self.scores_NK[:, :, None] + values_RC.view(sources, beam, width)).flatten(1)
        totals_NC, at_NC = totals_NC.topk(min(2 * beam, beam * width))
        parents_NC = at_NC // width
        tokens_NC = ids_RC.view(sources, -1).gather(1, at_NC)
        ends_NC = tokens_NC == self.end
        # The first `beam` candidates that do not end, in order: ended ones are moved behind all others.
        order_NC = torch.arange(tokens_NC.shape[1], device=self.device) + ends_NC * tokens_NC.shape[1]
        going_NK = order_NC.topk(beam, largest=False).indices
        self.scores_NK = totals_NC.gather(1, going_NK).masked_fill(ends_NC.gather(1, going_NK), -math.inf)
        self.last_NK = tokens_NC.gather(1, going_NK)
        parents_NK = parents_NC.gather(1, going_NK)
        if beam > 1:
            base_N1 = torch.arange(sources, device=self.device)[:, None] * beam
            self.state.reorder((base_N1 + parents_NK).flatten())
        self.ages_N = self.ages_N + 1
        # Only ends among the first `beam` candidates count: a worse one would not have been kept either.
        ended_NK = totals_NC[:, :beam].masked_fill(~ends_NC[:, :beam], -math.inf)
        return self.last_NK, parents_NK, self.scores_NK, ended_NK, parents_NC[:, :beam]

    def _force_end(self, logp_RV: Tensor, values_RC: Tensor, ids_RC: Tensor, last_R: Tensor) -> tuple[Tensor, Tensor]:
        """A row at its longest may only end."""
        only_RC = torch.full_like(values_RC, -math.inf)
        only_RC[:, 0] = logp_RV[:, self.end]
        first_RC = ids_RC.clone()
        first_RC[:, 0] = self.end
        return torch.where(last_R[:, None], only_RC, values_RC), torch.where(last_R[:, None], first_RC, ids_RC)

    def _read(self) -> list[tuple[int, list[Hypothesis]]]:
        """Bring the record to the host and go through it step by step; returns the sources that are done."""
        columns = [torch.stack(column).cpu().numpy() for column in zip(*self.record, strict=True)]
        self.record = []
        first = self.history.steps
        self.history.add(*columns[:3])
        done: dict[int, int] = {}  # slot of a source that is done, in order
        for g, (scores_NK, ended_NK, from_NK) in enumerate(zip(*columns[2:], strict=True)):
            for n, c in np.argwhere(ended_NK > -math.inf).tolist():
                if n not in done:
                    self._note_end(self.flights[n], float(ended_NK[n, c]), first + g, int(from_NK[n, c]))
            for n, flight in enumerate(self.flights):
                if n not in done and self._is_done(flight, first + g + 1, scores_NK[n]):
                    done[n] = n
        return self._harvest(list(done))

    def _note_end(self, flight: Flight, total: float, step: int, beam: int) -> None:
        length = step - flight.born + 1
        flight.ended.append((total / length**self.search.length_penalty, total, step, beam))

    def _is_done(self, flight: Flight, now: int, scores_K: NDArray[np.float32]) -> bool:
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

    def _harvest(self, slots: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """The best hypotheses of the sources in these slots, traced back all at once."""
        chosen = [
            (n, end)
            for n in slots
            for end in sorted(self.flights[n].ended, key=lambda end: -end[0])[: self.search.best]
        ]
        found: dict[int, list[Hypothesis]] = {n: [] for n in slots}
        traced = self.history.trace_back(
            [n for n, _ in chosen], [end[2] for _, end in chosen], [end[3] for _, end in chosen],
            [self.flights[n].born for n, _ in chosen],
        )  # fmt: skip
        for (n, (score, total, _, _)), (ids, sums) in zip(chosen, traced, strict=True):
            steps = np.diff([0.0, *sums, total]).tolist()
            found[n].append(Hypothesis(ids, score, steps))
        return [(self.flights[n].request.key, hypotheses) for n, hypotheses in found.items()]

    def _evict(self, gone: set[int]) -> None:
        stay = [n for n, flight in enumerate(self.flights) if flight.request.key not in gone]
        self.flights = [self.flights[n] for n in stay]
        self.history.place(stay)
        if not stay:
            self.state, self.history = None, History()
            return
        stay_N = torch.tensor(stay, device=self.device)
        self.state.select(stay_N)
        self.scores_NK, self.last_NK = self.scores_NK[stay_N], self.last_NK[stay_N]
        self.limits_N, self.ages_N = self.limits_N[stay_N], self.ages_N[stay_N]
