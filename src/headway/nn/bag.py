"""The bag of words: the mean of all that was read, which is attention with equal weights.

B batch, R rows, T queries, S keys, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.mask import View
from headway.nn.state import Clock


def uniform(q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    """0 for every pair: `attend` with this score gives each of i visible keys the weight 1/i."""
    return q_BHTK.new_zeros(*q_BHTK.shape[:-1], k_BHSK.shape[-2])


class RunningMean(nn.Module):
    """z_i = Σ_{j≤i} p(j) x_j with p(j) = 1/i: attention that looks at all words alike.

    The fast twin of `attend(x, x, x, visible, score=uniform)`: one running sum instead of T² weights, and a row
    carries on with its sum alone. There is nothing to learn.
    """

    reach: ClassVar = math.inf

    def forward(self, x_BTD: Tensor, view: View, cache: Total | None = None) -> Tensor:
        scene = view.scene
        assert scene is not None, "a mean has to know where its rows stand"
        # Many small numbers are added: never in half precision.
        sums_BTD = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32)).cumsum(1)
        place_T = torch.arange(scene.queries, device=x_BTD.device)
        if scene.query_segments_BT is not None:
            sums_BTD, counts = _since_start(sums_BTD, scene.query_segments_BT, place_T)
        else:
            counts = place_T + 1 + (scene.start[:, None] if isinstance(scene.start, Tensor) else scene.start)
            if cache is not None:
                ends_B = scene.key_lengths_B
                sums_BTD = cache.add(sums_BTD, None if ends_B is None else ends_B - scene.start)
        if tap.recording() and tap.wants(self, "weights"):
            tap.save(self, "weights", _equal_weights(x_BTD, view), ("row", "head", "target", "source"))
        return (sums_BTD / counts[..., None]).to(x_BTD.dtype)


def _since_start(sums_BTD: Tensor, segments_BT: Tensor, place_T: Tensor) -> tuple[Tensor, Tensor]:
    """Sums and counts of each token's own segment only."""
    new_BT = F.pad(segments_BT[:, 1:] != segments_BT[:, :-1], (1, 0), value=True)
    first_BT = (place_T * new_BT).cummax(1).values
    before_BTD = F.pad(sums_BTD, (0, 0, 1, 0))[:, :-1]
    return sums_BTD - before_BTD.gather(1, first_BT[..., None].expand_as(sums_BTD)), place_T - first_BT + 1


def _equal_weights(x_BTD: Tensor, view: View) -> Tensor:
    assert view.scene is not None
    rows, queries, keys = len(x_BTD), view.scene.queries, view.scene.keys
    seen = view.matrix(queries, keys, x_BTD.device)
    weights_BHTS = x_BTD.new_ones(rows, 1, queries, keys) if seen is None else seen.to(x_BTD.dtype)
    return (weights_BHTS / weights_BHTS.sum(-1, keepdim=True)).expand(rows, 1, queries, keys)


class Total:
    """The sum of what each row has read, in one layer. How many that were, the clock knows."""

    def __init__(self, sum_RD: Tensor | None = None) -> None:
        self.sum_RD = sum_RD

    def add(self, sums_RTD: Tensor, counts_R: Tensor | None = None) -> Tensor:
        """The running sums with what was before them; of padded rows only the first `counts_R` are kept."""
        if self.sum_RD is None:
            self.sum_RD = torch.zeros_like(sums_RTD[:, 0])
        before_RD, sums_RTD = self.sum_RD, sums_RTD + self.sum_RD[:, None]
        if counts_R is None:
            self.sum_RD = sums_RTD[:, -1]
        else:
            all_RTD = torch.cat([before_RD[:, None], sums_RTD], 1)
            self.sum_RD = all_RTD[torch.arange(len(all_RTD), device=all_RTD.device), counts_R]
        return sums_RTD

    def reorder(self, rows_R: Tensor) -> None:
        if self.sum_RD is not None:
            self.sum_RD = self.sum_RD.index_select(0, rows_R)

    def insert(self, other: Total, rows: tuple[int, int]) -> Total:
        known = self.sum_RD if self.sum_RD is not None else other.sum_RD
        if known is None:
            return Total()
        parts = (
            part.sum_RD if part.sum_RD is not None else known.new_zeros(count, known.shape[1])
            for part, count in zip((self, other), rows, strict=True)
        )
        return Total(torch.cat(list(parts)))


@dataclass
class BagState:
    """A sum a layer, and how many tokens each row has read: of any text, however long."""

    caches: list[Total]
    clock: Clock

    def reorder(self, rows_R: Tensor) -> None:
        """Row r goes on from row rows_R[r]."""
        for total in self.caches:
            total.reorder(rows_R)
        self.clock.reorder(rows_R)

    def keep(self, rows_R: Tensor) -> None:
        """Only these rows, in this order."""
        for total in self.caches:
            total.reorder(rows_R)
        self.clock.select(rows_R)

    def repeat(self, group: int) -> None:
        """Every row `group` times, side by side."""
        rows = torch.arange(len(self.clock.lengths_R), device=self.clock.lengths_R.device)
        self.reorder(rows.repeat_interleave(group))

    def trim(self, lengths_R: Tensor) -> None:
        """Rows were padded on the right: each is only so long (its sum has left the padding out already)."""
        self.clock.lengths_R, self.clock.even = lengths_R, False

    def insert(self, other: BagState) -> BagState:
        """This state's rows, then the other's."""
        mine, theirs = self.clock, other.clock
        rows = len(mine.lengths_R), len(theirs.lengths_R)
        clock = Clock(
            torch.cat([mine.lengths_R, theirs.lengths_R]),
            max(mine.longest, theirs.longest),
            mine.even and theirs.even and mine.longest == theirs.longest,
        )
        return BagState([a.insert(b, rows) for a, b in zip(self.caches, other.caches, strict=True)], clock)

    def fork(self) -> BagState:
        """A copy whose steps leave this state alone; no step writes into a sum."""
        return BagState([Total(total.sum_RD) for total in self.caches], self.clock.fork())
