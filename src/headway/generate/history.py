"""What every hypothesis did at every step, as back-pointers on the host.

Steps are kept for all slots at once, as many as were read together, with the number of the source that had each slot.
Everything here works on many sources at a time: a loop over sources would cost more than the steps themselves.

N slots, K beams, G steps, F sources (or hypotheses).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]

# Of each step of one source: tokens, parents and sums of its hypotheses; sums and parents of what ended.
Branches = list[list[list[Any]]]


class Chunk:
    """Steps that were read together. `sources_N`: the number of the source in each slot, −1 where there is none."""

    def __init__(self, start: int, record_5GNK: Floats, sources_N: Ints) -> None:
        self.start, self.stop = start, start + record_5GNK.shape[1]
        self.tokens_GNK, _, self.sums_GNK = record_5GNK[:3]
        self.parents_GNK = record_5GNK[1].astype(np.int64)
        self.ends_2GNK = record_5GNK[3:]  # sums and parents
        there = sources_N >= 0
        self.first = int(sources_N[there].min()) if there.any() else 0
        self.slots = np.zeros(int(sources_N.max()) - self.first + 1 if there.any() else 1, dtype=np.int64)
        self.slots[sources_N[there] - self.first] = np.flatnonzero(there)

    def slots_of(self, sources_F: Ints) -> Ints:
        """The slots of these sources, any slot for one that had not come yet."""
        return self.slots[np.minimum(np.maximum(sources_F - self.first, 0), len(self.slots) - 1)]


class History:
    def __init__(self) -> None:
        self.steps = 0
        self._chunks: list[Chunk] = []

    def add(self, record_5GNK: Floats, sources_N: Ints) -> None:
        """Some steps: tokens, parents and sums of the hypotheses; sums and parents of what ended."""
        self._chunks.append(Chunk(self.steps, record_5GNK, sources_N))
        self.steps = self._chunks[-1].stop

    def forget(self, before: int) -> None:
        """Steps before this one are no longer needed."""
        while self._chunks and self._chunks[0].stop <= before:
            del self._chunks[0]

    def _backwards(self, sources_F: Ints, first: int) -> Iterator[tuple[Chunk, slice, Ints]]:
        """Every chunk from the newest to that of step `first`, where it lies behind `first`, and the slots that the
        sources then had."""
        for chunk in reversed(self._chunks):
            if chunk.stop <= first:
                return
            yield chunk, slice(chunk.start - first, chunk.stop - first), chunk.slots_of(sources_F)

    def branches(self, source: int, born: int, until: int) -> Branches:
        """All that one source's hypotheses did before step `until`."""
        steps: Branches = [[] for _ in range(self.steps - born)]
        for chunk, span, at_F in self._backwards(np.array([source]), born):
            columns = (chunk.tokens_GNK.astype(np.int64), chunk.parents_GNK, chunk.sums_GNK, *chunk.ends_2GNK)
            of_source = [column_GNK[:, at_F[0]].tolist() for column_GNK in columns]
            steps[span] = [list(step) for step in zip(*of_source, strict=True)]
        return steps[: until - born]

    def best_ends(
        self, sources_F: Ints, born_F: Ints, until_F: Ints, most_F: Ints, best: int, alpha: float
    ) -> tuple[Floats, Floats, Ints, Ints]:
        """Of each source the `best` hypotheses that ended before step `until`: score, sum, step and parent beam,
        best first, each (F, best); a score of −∞ means that there are no more. `most`: the length that a longest one
        counts for."""
        first, sources, beams = int(born_F.min()), len(sources_F), self._chunks[0].ends_2GNK.shape[3]
        ends_2GFK = np.empty((2, self.steps - first, sources, beams))
        for chunk, span, at_F in self._backwards(sources_F, first):
            ends_2GFK[:, span] = chunk.ends_2GNK.take(at_F, axis=2)
        steps_G1 = np.arange(first, self.steps)[:, None]
        inside_GF = (steps_G1 >= born_F) & (steps_G1 < until_F)
        lengths_GF = np.clip(steps_G1 - born_F + 1, 1, most_F)
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
        self, sources_F: Ints, end_F: Ints, beam_F: Ints, born_F: Ints, total_F: Floats
    ) -> list[tuple[list[int], list[float]]]:
        """Ids and log-probabilities, the end's last, of hypotheses that ended at step `end` out of `beam`."""
        if not len(sources_F):
            return []
        first, first_end, hypotheses = int(born_F.min()), int(end_F.min()), len(sources_F)
        tokens_GF = np.empty((self.steps - first, hypotheses), dtype=np.int64)
        sums_GF = np.zeros((self.steps - first + 1, hypotheses))
        for chunk, span, at_F in self._backwards(sources_F, first):
            steps, slots, beams = chunk.parents_GNK.shape
            # Of all that the chunk holds, the place of each hypothesis.
            place_GF = np.arange(steps)[:, None] * (slots * beams) + at_F * beams
            for step, place_F in zip(range(chunk.stop - 1, chunk.start - 1, -1), place_GF[::-1], strict=True):
                place_F += beam_F
                parent_F = chunk.parents_GNK.take(place_F)
                beam_F = parent_F if step < first_end else np.where(step < end_F, parent_F, beam_F)
            tokens_GF[span], sums_GF[span] = chunk.tokens_GNK.take(place_GF), chunk.sums_GNK.take(place_GF)
        steps_G1 = np.arange(first, self.steps + 1)[:, None]
        sums_GF[(steps_G1 < born_F) | (steps_G1 > end_F)] = 0.0
        sums_GF[end_F - first, np.arange(hypotheses)] = total_F
        logp_GF = np.diff(sums_GF, axis=0, prepend=0.0)
        spans = list(zip((born_F - first).tolist(), (end_F - first).tolist(), strict=True))
        return [
            (ids[start:end], logp[start : end + 1])
            for (start, end), ids, logp in zip(spans, tokens_GF.T.tolist(), logp_GF.T.tolist(), strict=True)
        ]
