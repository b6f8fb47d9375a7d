"""The best continuations of each row, exactly, without sorting the row. R rows, V vocabulary, C continuations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.fast import sampling as kernels
from headway.fast.jit import available


def best_continuations(logits_RV: Tensor, k: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
    """log softmax(logits): its k largest of each row, best first, their ids, and its column `end`.

    log p(v) = z(v) − logsumexp(z) is in the order of the logits: where kernels can take them, the softmax is never
    built.
    """
    return (kernels.continuations if available(logits_RV) else readable_continuations)(logits_RV, k, end)


def readable_continuations(logits_RV: Tensor, k: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
    logp_RV = F.log_softmax(logits_RV, -1, dtype=torch.promote_types(logits_RV.dtype, torch.float32))
    values_RC, ids_RC = top_k(logp_RV, k)
    return values_RC, ids_RC, logp_RV[:, end]


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
    values_RC, at_RC = scores_RV.gather(1, candidates_RC).topk(k)
    return values_RC, candidates_RC.gather(1, at_RC)
