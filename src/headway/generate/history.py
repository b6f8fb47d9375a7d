"""What every beam did at every step, as back-pointers on the host.

A step is kept for all slots at once; a source changes its slot when others leave or come. Everything here works
on many sources at a time: a loop over sources would cost more than the steps themselves.

N slots, K beams, G steps, F sources (or hypotheses) that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]


class History:
    def __init__(self) -> None:
        self.steps = 0
        self._columns: list[tuple[NDArray, ...]] = []  # of each step, as `add` gets them, each (N, K)
        self._moves: dict[int, Ints] = {}  # before this step: for each slot the one it was in until then

    def add(self, columns: list[NDArray]) -> None:
        """Some steps: tokens, parents and sums of the beams; sums and parents of what ended (each (G, N, K))."""
        self._columns += zip(*columns, strict=True)
        self.steps = len(self._columns)

    def place(self, from_slots: Ints) -> None:
        """From now on slot n holds what was in from_slots[n]; −1 is a newcomer."""
        earlier = self._moves.get(self.steps)
        if earlier is not None:
            from_slots = np.where(from_slots < 0, -1, earlier[from_slots])
        self._moves[self.steps] = from_slots

    def _backwards(self, slot_F: Ints, first: int) -> Iterator[tuple[int, Ints]]:
        """Every step from the newest to `first`, with the slots that the sources then had."""
        for step in range(self.steps - 1, first - 1, -1):
            yield step, slot_F
            if step in self._moves:
                slot_F = self._moves[step][slot_F]

    def best_ends(
        self, slot_F: Ints, born_F: Ints, until_F: Ints, best: int, alpha: float
    ) -> tuple[Floats, Floats, Ints, Ints]:
        """Of each source the `best` hypotheses that ended before step `until`: score, sum, step and parent beam,
        best first, each (F, best); a score of −∞ means that there are no more."""
        first = int(born_F.min())
        beams = self._columns[0][0].shape[1]
        totals_FGK = np.full((len(slot_F), self.steps - first, beams), -np.inf)
        parents_FGK = np.zeros(totals_FGK.shape, dtype=np.int64)
        for step, at_F in self._backwards(slot_F, first):
            inside = (step >= born_F) & (step < until_F)
            _, _, _, ended_NK, from_NK = self._columns[step]
            totals_FGK[inside, step - first] = ended_NK[at_F[inside]]
            parents_FGK[inside, step - first] = from_NK[at_F[inside]]
        lengths_FG = np.maximum(np.arange(first, self.steps) - born_F[:, None] + 1, 1)
        scores = (totals_FGK / (lengths_FG**alpha)[:, :, None]).reshape(len(slot_F), -1)
        order_Fb = np.argsort(-scores, axis=1, kind="stable")[:, :best]
        rows_F1 = np.arange(len(slot_F))[:, None]
        totals, parents = totals_FGK.reshape(scores.shape), parents_FGK.reshape(scores.shape)
        ends = first + order_Fb // beams
        return scores[rows_F1, order_Fb], totals[rows_F1, order_Fb], ends, parents[rows_F1, order_Fb]

    def trace_back(
        self, slot_F: Ints, end_F: Ints, beam_F: Ints, born_F: Ints, total_F: Floats
    ) -> list[tuple[list[int], list[float]]]:
        """Ids and log-probabilities, the end's last, of hypotheses that ended at step `end` out of `beam`."""
        if not len(slot_F):
            return []
        first = int(born_F.min())
        tokens_FG = np.zeros((len(slot_F), self.steps - first), dtype=np.int64)
        sums_FG = np.zeros((len(slot_F), self.steps - first + 1))
        beam_F = beam_F.copy()
        for step, at_F in self._backwards(slot_F, first):
            inside = (step < end_F) & (step >= born_F)
            at = at_F[inside], beam_F[inside]
            tokens_NK, parents_NK, sums_NK, _, _ = self._columns[step]
            tokens_FG[inside, step - first] = tokens_NK[at]
            sums_FG[inside, step - first] = sums_NK[at]
            beam_F[inside] = parents_NK[at]
        sums_FG[np.arange(len(slot_F)), end_F - first] = total_F
        logp_FG = np.diff(sums_FG, axis=1, prepend=0.0)
        spans = list(zip((born_F - first).tolist(), (end_F - first).tolist(), strict=True))
        return [
            (ids[start:end], logp[start : end + 1])
            for (start, end), ids, logp in zip(spans, tokens_FG.tolist(), logp_FG.tolist(), strict=True)
        ]
