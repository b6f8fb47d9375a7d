"""The bag of words: the mean of all that was read, which is attention with equal weights.

B batch, R rows, T queries, S keys, D width.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.slots import Values
from headway.nn.view import View


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


class Total(Values):
    """The sum of what each row has read, in one layer; the clock has how many that were."""

    def add(self, sums_RTD: Tensor, counts_R: Tensor | None = None) -> Tensor:
        """The running sums with what was before them; of padded rows only the first `counts_R` are kept."""
        (before_RD,) = self.tensors
        sums_RTD = sums_RTD + before_RD[:, None]
        if counts_R is None:
            self.tensors = (sums_RTD[:, -1],)
        else:
            all_RTD = torch.cat([before_RD[:, None], sums_RTD], 1)
            self.tensors = (all_RTD[torch.arange(len(all_RTD), device=all_RTD.device), counts_R],)
        return sums_RTD
