"""The k largest of each row, exactly, without sorting the row. R rows, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor


def top_k(scores_RV: Tensor, k: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """`torch.topk(scores, k)` in two small selections and one pass over the row.

    The k largest lie in the k blocks with the largest maxima: one reading finds those maxima, and only k
    blocks are looked at again.
    """
    rows, width = scores_RV.shape
    blocks = width // block
    if blocks < 2 * k:
        return scores_RV.topk(k)
    even = blocks * block
    best_RC = scores_RV[:, :even].unflatten(1, (blocks, block)).amax(-1).topk(k, sorted=False).indices
    inside = torch.arange(block, device=scores_RV.device)
    candidates_RC = (best_RC[:, :, None] * block + inside).flatten(1)
    if even < width:
        rest = torch.arange(even, width, device=scores_RV.device).expand(rows, -1)
        candidates_RC = torch.cat([candidates_RC, rest], 1)
    values_Rk, at_Rk = scores_RV.gather(1, candidates_RC).topk(k)
    return values_Rk, candidates_RC.gather(1, at_Rk)
