"""What every beam did at every step, as back-pointers on the host.

Steps are kept for all slots at once, as many as were read at a time; a source changes its slot when others leave or
come. Everything here works on many sources at a time: a loop over sources would cost more than the steps themselves.

N slots, K beams, G steps, F sources (or hypotheses) that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]


# Of each step of one source: tokens, parents and sums of its beams; sums and parents of what ended.
Branches = list[list[list[Any]]]


class Piece:
    """Steps that were read together. Nothing moves inside a piece."""

    def __init__(self, start: int, record_5GNK: Floats) -> None:
        self.start, self.stop = start, start + record_5GNK.shape[1]
        self.tokens_GNK, _, self.sums_GNK = record_5GNK[:3]
        self.parents_GNK = record_5GNK[1].astype(np.int64)
        self.ends_2GNK = record_5GNK[3:]  # sums and parents


class History:
    def __init__(self) -> None:
        self.steps = 0
        self._pieces: list[Piece] = []
        self._moves: dict[int, Ints] = {}  # before this step: for each slot the one it was in until then

    def add(self, record_5GNK: Floats) -> None:
        """Some steps: tokens, parents and sums of the beams; sums and parents of what ended."""
        self._pieces.append(Piece(self.steps, record_5GNK))
        self.steps = self._pieces[-1].stop

    def place(self, from_slots: Ints) -> None:
        """From now on slot n holds what was in from_slots[n]; −1 is a newcomer."""
        earlier = self._moves.get(self.steps)
        if earlier is not None:
            from_slots = np.where(from_slots < 0, -1, earlier[from_slots])
        self._moves[self.steps] = from_slots

    def _backwards(self, slot_F: Ints, first: int) -> Iterator[tuple[Piece, slice, Ints]]:
        """Every piece from the newest to that of step `first`, where it lies behind `first`, and the slots that the
        sources then had (any slot for one that had not come yet)."""
        for piece in reversed(self._pieces):
            if piece.start < first:
                return
            yield piece, slice(piece.start - first, piece.stop - first), slot_F
            if piece.start in self._moves:
                slot_F = self._moves[piece.start][slot_F]

    def branches(self, slot: int, born: int, until: int) -> Branches:
        """All that one source's beams did before step `until`."""
        steps: Branches = [[] for _ in range(self.steps - born)]
        for piece, span, at_F in self._backwards(np.array([slot]), born):
            columns = (piece.tokens_GNK.astype(np.int64), piece.parents_GNK, piece.sums_GNK, *piece.ends_2GNK)
            of_source = [column_GNK[:, at_F[0]].tolist() for column_GNK in columns]
            steps[span] = [list(step) for step in zip(*of_source, strict=True)]
        return steps[: until - born]

    def best_ends(
        self, slot_F: Ints, born_F: Ints, until_F: Ints, best: int, alpha: float
    ) -> tuple[Floats, Floats, Ints, Ints]:
        """Of each source the `best` hypotheses that ended before step `until`: score, sum, step and parent beam,
        best first, each (F, best); a score of −∞ means that there are no more."""
        first, sources, beams = int(born_F.min()), len(slot_F), self._pieces[0].ends_2GNK.shape[3]
        ends_2GFK = np.empty((2, self.steps - first, sources, beams))
        for piece, span, at_F in self._backwards(slot_F, first):
            ends_2GFK[:, span] = piece.ends_2GNK.take(at_F, axis=2)
        steps_G1 = np.arange(first, self.steps)[:, None]
        inside_GF = (steps_G1 >= born_F) & (steps_G1 < until_F)
        lengths_GF = np.maximum(steps_G1 - born_F + 1, 1)
        totals_GFK = ends_2GFK[0]
        ended_GFK = inside_GF[:, :, None] & (totals_GFK > -np.inf)  # which NaN is not
        scores_GFK = np.where(ended_GFK, totals_GFK / (lengths_GF**alpha)[:, :, None], -np.inf)
        scores = scores_GFK.swapaxes(0, 1).reshape(sources, -1)
        if best == 1:
            order_Fb = scores.argmax(axis=1)[:, None]
        else:
            order_Fb = np.argsort(-scores, axis=1, kind="stable")[:, :best]
        rows_F1, step_Fb, beam_Fb = np.arange(sources)[:, None], order_Fb // beams, order_Fb % beams
        totals_Fb, parents_Fb = ends_2GFK[:, step_Fb, rows_F1, beam_Fb]
        return scores[rows_F1, order_Fb], totals_Fb, first + step_Fb, parents_Fb.astype(np.int64)

    def trace_back(
        self, slot_F: Ints, end_F: Ints, beam_F: Ints, born_F: Ints, total_F: Floats
    ) -> list[tuple[list[int], list[float]]]:
        """Ids and log-probabilities, the end's last, of hypotheses that ended at step `end` out of `beam`."""
        if not len(slot_F):
            return []
        first, hypotheses = int(born_F.min()), len(slot_F)
        tokens_GF = np.empty((self.steps - first, hypotheses), dtype=np.int64)
        sums_GF = np.zeros((self.steps - first + 1, hypotheses))
        for piece, span, at_F in self._backwards(slot_F, first):
            steps, slots, beams = piece.parents_GNK.shape
            # Of all that the piece says, the place of each hypothesis.
            place_GF = np.arange(steps)[:, None] * (slots * beams) + at_F % slots * beams
            for g in reversed(range(steps)):
                place_GF[g] += beam_F
                beam_F = np.where(piece.start + g < end_F, piece.parents_GNK.take(place_GF[g]), beam_F)
            tokens_GF[span], sums_GF[span] = piece.tokens_GNK.take(place_GF), piece.sums_GNK.take(place_GF)
        steps_G1 = np.arange(first, self.steps + 1)[:, None]
        sums_GF[(steps_G1 < born_F) | (steps_G1 > end_F)] = 0.0
        sums_GF[end_F - first, np.arange(hypotheses)] = total_F
        logp_GF = np.diff(sums_GF, axis=0, prepend=0.0)
        spans = list(zip((born_F - first).tolist(), (end_F - first).tolist(), strict=True))
        return [
            (ids[start:end], logp[start : end + 1])
            for (start, end), ids, logp in zip(spans, tokens_GF.T.tolist(), logp_GF.T.tolist(), strict=True)
        ]
