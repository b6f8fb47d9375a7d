"""The pool of one kind of beam search: sources with their beams, in slots of one room.

N slots, K beam, F sources that are done, U sources by number, b best.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.generate import beam
from headway.generate.beam import BeamRows, Ends
from headway.generate.history import History, Ints
from headway.generate.pool import PendingSteps, Pool
from headway.generate.request import Found, Request
from headway.generate.search import Hypothesis, Search
from headway.models.protocols import Steps


class BeamPool(Pool[int]):
    """Sources whose outputs are searched for with one kind of beam. An entry is the number of a source; what the host
    keeps of the sources is in arrays by their numbers."""

    rows: BeamRows

    def __init__(self, model: Steps, kind: tuple[Search, Ends, bool], rows: BeamRows, **how: Any) -> None:
        self.search, self.ends, self.constrained = kind
        super().__init__(model, kind, rows, **how)
        self.capturable = self.capturable and not self.constrained

    def clear(self) -> None:
        super().clear()
        self.requests: dict[int, tuple[int, Request]] = {}
        self.states: dict[int, list[Any]] = {}  # of the constraint, of each hypothesis
        self.history, self.steps, self.count = History(), 0, 0  # steps that were launched; sources that have come
        self.born_U, self.longest_U, self.given_U, self.ended_U = (np.zeros(0, dtype=np.int64) for _ in range(4))
        self.open_U, self.top_Ub = np.zeros(0, dtype=bool), np.zeros((0, self.search.best))

    def number(self, requests: Sequence[tuple[int, Request]], limits: Sequence[int]) -> list[int]:
        """Numbers for sources that come."""
        numbers, count = list(range(self.count, self.count + len(requests))), len(requests)
        self.count += count
        self.requests |= dict(zip(numbers, requests, strict=True))
        zeros = np.zeros(count, dtype=np.int64)
        given = np.array([len(request.given) for _, request in requests])
        for name, new in {
            "born_U": zeros + self.steps, "longest_U": np.array(limits), "given_U": given, "ended_U": zeros,
            "open_U": np.ones(count, dtype=bool), "top_Ub": np.full((count, self.search.best), -np.inf),
        }.items():  # fmt: skip
            setattr(self, name, np.concatenate([getattr(self, name), new]))
        for number, (_, request) in zip(numbers, requests, strict=True):
            if request.constrain is not None:
                self.states[number] = [request.constrain.start()] * self.search.beam
        return numbers

    def lengths(self) -> list[int]:
        live = np.array([number for number in self.entries if number is not None], dtype=np.int64)
        return (self.given_U[live] - 1 + self.steps - self.born_U[live]).tolist()

    def due(self, most: int) -> int:
        return most if len(self) and not (self.constrained and self.pending) else 0

    def launched(self, count: int) -> None:
        self.steps += count

    def advance(self, view: BeamRows) -> Tensor:
        return beam.pack([beam.advance(self.model, view, self.search, self.ends, self._allowed())])

    def evict(self, keys: set[int]) -> None:
        for slot, number in enumerate(self.entries):
            if number is not None and self.requests[number][0] in keys:
                self.open_U[number] = False
                del self.requests[number]
                self.leave([slot])

    def _allowed(self) -> Tensor | None:
        if not self.constrained:
            return None
        allowed_NKV = torch.ones(len(self.entries), self.search.beam, self.model.vocabulary, dtype=torch.bool)
        for slot, number in enumerate(self.entries):
            if number is not None and number in self.states:
                constraint = self.requests[number][1].constrain
                assert constraint is not None
                allowed_NKV[slot] = False
                for k, state in enumerate(self.states[number]):
                    allowed_NKV[slot, k, sorted(constraint.allowed(state))] = True
        return allowed_NKV.flatten(0, 1).to(self.device)

    def capture_key(self) -> Hashable:
        return None

    def take(self, pending: PendingSteps) -> list[Found]:
        record_5GNK = pending.read().numpy()
        sources_N = np.array([-1 if number is None else number for number in pending.entries], dtype=np.int64)
        first = self.history.steps
        self.history.add(record_5GNK[:, :, : len(sources_N)], sources_N)
        there_N = np.flatnonzero(sources_N >= 0)
        numbers_N = sources_N[there_N]
        done, until = [], []
        for g in range(record_5GNK.shape[1]):
            scores_NK, ended_NK = record_5GNK[2:4, g, there_N]
            age_N = first + g + 1 - self.born_U[numbers_N]
            self._count_ends(numbers_N, ended_NK, age_N)
            done_F = numbers_N[self.open_U[numbers_N] & self._is_done(numbers_N, age_N, scores_NK)]
            self.open_U[done_F] = False
            done.append(done_F)
            until.append(np.full(len(done_F), first + g + 1))
        if self.constrained:
            self._follow(record_5GNK, sources_N)
        return self._harvest(np.concatenate(done), np.concatenate(until))

    def _follow(self, record_5GNK: NDArray[np.float64], sources_N: Ints) -> None:
        """The states of the constraint after one step. A hypothesis that has none of its own keeps its parent's."""
        tokens_NK, parents_NK, scores_NK = record_5GNK[:3, 0]
        for slot, number in enumerate(sources_N.tolist()):
            if number in self.states:
                constraint = self.requests[number][1].constrain
                assert constraint is not None
                before = [self.states[number][int(parent)] for parent in parents_NK[slot]]
                self.states[number] = [
                    constraint.advance(state, int(token)) if score > -math.inf else state
                    for state, token, score in zip(before, tokens_NK[slot], scores_NK[slot], strict=True)
                ]

    def _count_ends(self, numbers_N: Ints, ended_NK: NDArray[np.float64], age_N: Ints) -> None:
        self.ended_U[numbers_N] += (ended_NK > -math.inf).sum(1)
        if self.search.finish == "bound":
            scores_NK = ended_NK / (age_N**self.search.length_penalty)[:, None]
            every = np.concatenate([self.top_Ub[numbers_N], scores_NK], axis=1)
            self.top_Ub[numbers_N] = -np.sort(-every, axis=1)[:, : self.search.best]

    def _is_done(self, numbers_N: Ints, age_N: Ints, scores_NK: NDArray[np.float64]) -> NDArray[np.bool_]:
        alpha, longest_N = self.search.length_penalty, self.longest_U[numbers_N]
        over_N = age_N > longest_N
        if self.search.finish == "full":
            return over_N | (self.ended_U[numbers_N] >= self.search.beam)
        # A sum of log-probabilities only falls: the best that an open hypothesis can still reach is its own sum over
        # the most forgiving length.
        forgiving_N = (longest_N if alpha > 0 else age_N) + 1
        return over_N | (self.top_Ub[numbers_N, -1] >= scores_NK.max(1) / forgiving_N**alpha)

    def _harvest(self, done_F: Ints, until_F: Ints) -> list[Found]:
        """The best hypotheses of these sources, traced back all at once."""
        if not len(done_F):
            return []
        search, born_F = self.search, self.born_U[done_F]
        scores_Fb, totals_Fb, ends_Fb, beams_Fb = self.history.best_ends(
            done_F, born_F, until_F, search.best, search.length_penalty
        )
        there = np.nonzero(scores_Fb > -math.inf)
        source = there[0]
        traced = self.history.trace_back(
            done_F[source], ends_Fb[there], beams_Fb[there], born_F[source], totals_Fb[there]
        )
        found: list[Found] = []
        for number, born, until in zip(done_F.tolist(), born_F.tolist(), until_F.tolist(), strict=True):
            key, request = self.requests.pop(number)
            self.states.pop(number, None)
            found.append(Found(key, [], self.history.branches(number, born, until) if request.branches else None))
        for f, score, (ids, logp) in zip(source.tolist(), scores_Fb[there].tolist(), traced, strict=True):
            found[f].hypotheses.append(Hypothesis(ids, score, logp))
        gone = set(done_F.tolist())
        self.leave(slot for slot, number in enumerate(self.entries) if number in gone)
        oldest = self.born_U[self.open_U].min(initial=self.steps)
        self.history.forget(int(oldest))
        return found
