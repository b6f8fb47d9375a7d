"""What every beam did at every step, as back-pointers on the host.

A step is kept for all sources in flight at once; sources change their slot when others leave or come.

N slots, K beams, G steps, F hypotheses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class History:
    def __init__(self) -> None:
        self.steps = 0
        self._tokens: list[Ints] = []  # of each step, (N, K)
        self._parents: list[Ints] = []
        self._sums: list[NDArray[np.float32]] = []
        self._moves: dict[int, Ints] = {}  # before this step: for each slot the one it was in until then

    def add(self, tokens_GNK: Ints, parents_GNK: Ints, sums_GNK: NDArray[np.float32]) -> None:
        """Token of each beam, the beam it continues, and its sum of log-probabilities, for some steps."""
        self._tokens += list(tokens_GNK)
        self._parents += list(parents_GNK)
        self._sums += list(sums_GNK)
        self.steps += len(tokens_GNK)

    def place(self, from_slots: Sequence[int]) -> None:
        """From now on slot n holds what was in from_slots[n]; −1 is a newcomer."""
        move = np.asarray(from_slots, dtype=np.int64)
        earlier = self._moves.get(self.steps)
        if earlier is not None:
            move = np.where(move < 0, -1, earlier[move])
        self._moves[self.steps] = move

    def trace_back(
        self, slots: Sequence[int], ends: Sequence[int], beams: Sequence[int], born: Sequence[int]
    ) -> list[tuple[list[int], list[float]]]:
        """Ids and running sums of hypotheses that ended at step `ends` out of beam `beams`, oldest first."""
        slot_F, end_F, beam_F, born_F = (np.asarray(x, dtype=np.int64) for x in (slots, ends, beams, born))
        if not len(slot_F):
            return []
        first = int(born_F.min())
        tokens_FG = np.zeros((len(slot_F), self.steps - first), dtype=np.int64)
        sums_FG = np.zeros((len(slot_F), self.steps - first), dtype=np.float64)
        for step in range(self.steps - 1, first - 1, -1):
            inside = np.flatnonzero((step < end_F) & (step >= born_F))
            at = slot_F[inside], beam_F[inside]
            tokens_FG[inside, step - first] = self._tokens[step][at]
            sums_FG[inside, step - first] = self._sums[step][at]
            beam_F[inside] = self._parents[step][at]
            if step in self._moves:
                slot_F = self._moves[step][slot_F]
        return [
            (tokens_FG[f, b - first : e - first].tolist(), sums_FG[f, b - first : e - first].tolist())
            for f, (b, e) in enumerate(zip(born_F.tolist(), end_F.tolist(), strict=True))
        ]
