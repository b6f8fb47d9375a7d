"""The pool of one kind of beam search: sources with their beams, in slots of one room.

N slots, K beam, F sources that are done, U sources by number, b best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.generate import beam
from headway.generate.beam import BeamRows
from headway.generate.history import History, Ints
from headway.generate.pool import Captured, Key, PendingSteps, Pool, on_device
from headway.generate.request import Found, Keyed, Written
from headway.generate.search import Hypothesis
from headway.models.protocols import Steps
from headway.nn.state import State


class BeamPool(Pool[int]):
    """Sources whose outputs are searched for with one kind of beam. An entry is the number of a source; what the host
    keeps of the sources is in a table by their numbers."""

    rows: BeamRows
    at_once = 4  # even: a cache and its spare have then changed places an even number of times
    bounds = (16, 2)
    reorders = True

    def __init__(self, model: Steps, key: Key, *how: Any) -> None:
        assert key.kind.search is not None and key.kind.ends is not None
        self.search, self.ends = key.kind.search, key.kind.ends
        super().__init__(model, key, *how)

    def room(self, state: State | None) -> BeamRows:
        scores_NK = torch.zeros(self.slots, self.search.beam, device=self.device)
        last_NK = torch.zeros_like(scores_NK, dtype=torch.long)
        numbers = (last_NK.new_zeros(self.slots) for _ in range(2))
        return BeamRows(self.steady(state, self.search.beam), scores_NK, last_NK, *numbers)

    def clear(self) -> None:
        super().clear()
        self.requests: dict[int, Keyed] = {}
        self.states: dict[int, list[Any]] = {}  # of the constraint, of each hypothesis
        self.history, self.steps = History(), 0  # steps that were launched
        self.done: list[tuple[Ints, Ints]] = []  # sources to trace back, and until which step
        numbers: list[Any] = [(name, np.int64) for name in ("born", "longest", "given", "ended")]
        top = ("top", np.float64, (self.search.best,))
        self.table_U = np.zeros(0, [*numbers, ("open", np.bool_), top])

    def enter(self, requests: Sequence[Keyed], state: State | None) -> None:
        new_U = np.zeros(len(requests), self.table_U.dtype)
        new_U["given"] = [len(request.given) for _, request in requests]
        new_U["longest"] = np.minimum([request.max_new for _, request in requests], self.context - new_U["given"])
        new_U["born"], new_U["open"], new_U["top"] = self.steps, True, -np.inf
        numbers = list(range(len(self.table_U), len(self.table_U) + len(requests)))
        self.table_U = np.concatenate([self.table_U, new_U])
        self.requests |= dict(zip(numbers, requests, strict=True))
        if self.kind.constrained:
            for number, (_, request) in zip(numbers, requests, strict=True):
                constraint: Any = request.constrain
                self.states[number] = [constraint.start()] * self.search.beam
        last_N = on_device([request.given[-1] for _, request in requests], self.device)
        limits_N = on_device(new_U["longest"].tolist(), self.device)
        scores_NK = torch.full((len(requests), self.search.beam), -math.inf, device=self.device)
        scores_NK[:, 0] = 0.0  # all hypotheses of a source start equal: only one may continue
        last_NK = last_N[:, None].expand(-1, self.search.beam)
        self.put(numbers, BeamRows(state, scores_NK, last_NK, limits_N, torch.zeros_like(limits_N)))

    def lengths(self) -> list[int]:
        open_U = self.table_U["open"]
        return (self.table_U["given"][open_U] - 1 + self.steps - self.table_U["born"][open_U]).tolist()

    def due(self, most: int) -> int:
        return most if len(self) and not (self.kind.constrained and self.pending) else 0

    def launched(self, count: int) -> None:
        self.steps += count

    def advance(self, view: BeamRows) -> Tensor:
        return beam.pack([beam.advance(self.model, view, self.search, self.ends, self._allowed())])

    def capture(self, captured: Captured, predict: Callable[..., Tensor]) -> Callable[[], None]:
        view = captured.view

        def step() -> None:
            homes = view.homes()
            captured.record = beam.pack(
                [beam.advance(self.model, view, self.search, self.ends) for _ in range(self.at_once)]
            )
            view.settle(homes)

        return step

    def replay(self, captured: Captured, count: int) -> Tensor:
        assert captured.record is not None
        captured.graph.replay()
        return captured.record

    def evict(self, rows: set[tuple[int, int]]) -> list[Written]:
        keys = {key for key, _ in rows}
        for slot, number in self.open():
            if self.requests[number][0] in keys:
                self.table_U["open"][number] = False
                del self.requests[number]
                self.leave([slot])
        return []

    def _allowed(self) -> Tensor | None:
        if not self.kind.constrained:
            return None
        allowed_NKV = torch.ones(len(self.entries), self.search.beam, self.model.vocabulary, dtype=torch.bool)
        for slot, number in self.open():
            constraint: Any = self.requests[number][1].constrain
            allowed_NKV[slot] = False
            for k, state in enumerate(self.states[number]):
                allowed_NKV[slot, k, sorted(constraint.allowed(state))] = True
        return allowed_NKV.flatten(0, 1).to(self.device)

    def take(self, pending: PendingSteps) -> list[Found]:
        sources_N = np.array([-1 if number is None else number for number in pending.entries], dtype=np.int64)
        record_5GNK = pending.read().numpy()[:, :, : len(sources_N)]
        first = self.history.steps
        self.history.add(record_5GNK, sources_N)
        there_N, table_N = sources_N >= 0, self.table_U[sources_N]  # where nobody is, anybody's row
        done_GN = self._done(record_5GNK, first, table_N)
        done_N = done_GN.any(0) & table_N["open"] & there_N
        table_N["open"] &= ~done_N
        self.table_U[sources_N[there_N]] = table_N[there_N]
        if self.kind.constrained:
            self._follow(record_5GNK, sources_N)
        waited = bool(self.done)
        if done_N.any():
            self.done.append((sources_N[done_N], first + 1 + done_GN.argmax(0)[done_N]))
        # Tracing back few takes as long as many: where steps are replayed, the first wait for those of the next steps.
        at_once = done_GN.shape[0] == 1 or not self.table_U["open"].any()
        return self._harvest() if waited or at_once else []

    def _follow(self, record_5GNK: NDArray[np.float64], sources_N: Ints) -> None:
        """The states of the constraint after one step. A hypothesis that has none of its own keeps its parent's."""
        tokens_NK, parents_NK, scores_NK = record_5GNK[:3, 0]
        for slot, number in enumerate(sources_N.tolist()):
            if number in self.states:
                constraint: Any = self.requests[number][1].constrain
                before = [self.states[number][int(parent)] for parent in parents_NK[slot]]
                self.states[number] = [
                    constraint.advance(state, int(token)) if score > -math.inf else state
                    for state, token, score in zip(before, tokens_NK[slot], scores_NK[slot], strict=True)
                ]

    def _done(self, record_5GNK: NDArray[np.float64], first: int, table_N: NDArray[Any]) -> NDArray[np.bool_]:
        """After which of these steps the search in each slot is done; `table_N` is brought to the last one."""
        search, longest_N = self.search, table_N["longest"]
        scores_GNK, ended_GNK = record_5GNK[2:4]
        age_GN = np.arange(first + 1, first + 1 + len(scores_GNK))[:, None] - table_N["born"]
        over_GN = age_GN > longest_N
        if search.finish == "full" or search.beam == 1:
            count_GN = table_N["ended"] + (ended_GNK > -math.inf).sum(2).cumsum(0)
            table_N["ended"] = count_GN[-1]
            return over_GN | (count_GN >= search.beam)
        # A sum of log-probabilities only falls: the best that an open hypothesis can still reach is its own sum over
        # the most forgiving length.
        alpha = search.length_penalty
        reach_GN = scores_GNK.max(2) / ((longest_N if alpha > 0 else age_GN) + 1) ** alpha
        for over_N, age_N, ended_NK, reach_N in zip(over_GN, age_GN, ended_GNK, reach_GN, strict=True):
            every = np.concatenate([table_N["top"], ended_NK / (age_N**alpha)[:, None]], axis=1)
            table_N["top"] = -np.sort(-every, axis=1)[:, : search.best]
            over_N |= table_N["top"][:, -1] >= reach_N
        return over_GN

    def _harvest(self) -> list[Found]:
        """The best hypotheses of the sources that are done, traced back all at once."""
        if not self.done:
            return []
        done_F, until_F = (np.concatenate(parts) for parts in zip(*self.done, strict=True))
        self.done = []
        there_F = np.array([number in self.requests for number in done_F.tolist()])  # not evicted since
        done_F, until_F = done_F[there_F], until_F[there_F]
        if not len(done_F):
            return []
        search, born_F = self.search, self.table_U["born"][done_F]
        longest_F = self.table_U["longest"][done_F]
        scores_Fb, totals_Fb, ends_Fb, beams_Fb = self.history.best_ends(
            done_F, born_F, until_F, longest_F + (not self.ends.cut), search.best, search.length_penalty
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
            was_cut = self.ends.cut and len(ids) == longest_F[f]
            found[f].hypotheses.append(Hypothesis(ids, score, logp[:-1] if was_cut else logp))
        self.leave([slot for slot, number in enumerate(self.entries) if number not in self.requests])
        oldest = self.table_U["born"][self.table_U["open"]].min(initial=self.steps)
        self.history.forget(int(oldest))
        return found
