"""Label-smoothed cross-entropy that never holds all the logits.

N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def smoothed_cross_entropy(logits_NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int) -> tuple[Tensor, Tensor]:
    """Σ −(1−ε) log p(y) − ε/V Σ_v log p(v) (Szegedy et al. 2016), and Σ −log p(y); the readable twin."""
    logp_NV = logits_NV.log_softmax(-1)
    nll_N = -logp_NV.gather(1, labels_N[:, None])[:, 0]
    loss_N = (1 - smoothing) * nll_N - smoothing * logp_NV.mean(-1)
    kept = labels_N != ignore
    return loss_N[kept].sum(), nll_N[kept].sum()


def linear_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy(hidden @ weightᵀ, …)`, some rows at a time, gradients made on the way.

    The logits of a piece live only until its loss and its share of both gradients are known.
    """
    if hidden_ND.device.type == "cpu":
        # Padding costs a product with the whole vocabulary; on a GPU fixed shapes are worth more.
        kept = (labels_N != ignore).nonzero()[:, 0]
        if len(kept) < len(labels_N):
            hidden_ND, labels_N = hidden_ND.index_select(0, kept), labels_N.index_select(0, kept)
    most = 2**21 if hidden_ND.device.type == "cpu" else 2**28
    rows = max(1, min(len(hidden_ND), most // len(weight_VD)))
    return _Pieces.apply(hidden_ND, weight_VD, labels_N, smoothing, ignore, rows)


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        labels_N: Tensor,
        smoothing: float,
        ignore: int,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        learning = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        mean_D = weight_VD.mean(0, dtype=wide)
        loss, nll = (torch.zeros((), dtype=wide, device=hidden_ND.device) for _ in range(2))
        grad_hidden = torch.empty_like(hidden_ND) if learning else None
        grad_weight = torch.zeros_like(weight_VD, dtype=wide) if learning else None
        for at in range(0, len(hidden_ND), rows):
            h_ND, y_N1 = hidden_ND[at : at + rows], labels_N[at : at + rows, None]
            kept_N1 = y_N1 != ignore
            logits_NV = h_ND @ weight_VD.T
            logp_NV = F.log_softmax(logits_NV, -1, dtype=wide)
            nll_N1 = -logp_NV.gather(1, y_N1)
            # Σ_v −log p(v)/V = logsumexp − mean logit, and the mean logit is h · mean(W): no pass over V.
            uniform_N1 = nll_N1 + logits_NV.gather(1, y_N1).to(wide) - (h_ND.to(wide) @ mean_D)[:, None]
            nll = nll + (nll_N1 * kept_N1).sum()
            loss = loss + (((1 - smoothing) * nll_N1 + smoothing * uniform_N1) * kept_N1).sum()
            if grad_hidden is None or grad_weight is None:
                continue
            # ∂loss/∂logits = p − (1−ε)·onehot(y) − ε/V; the last term is added to both gradients by hand.
            p_NV = logp_NV.exp_().to(hidden_ND.dtype)
            p_NV.scatter_add_(1, y_N1, torch.full_like(y_N1, smoothing - 1, dtype=p_NV.dtype))
            h_kept_ND = h_ND * kept_N1
            grad_hidden[at : at + rows] = (p_NV @ weight_VD - smoothing * mean_D.to(h_ND.dtype)) * kept_N1
            if wide == hidden_ND.dtype:
                grad_weight.addmm_(p_NV.T, h_kept_ND)
            else:
                grad_weight += (p_NV.T @ h_kept_ND).to(wide)
            grad_weight -= (smoothing / len(weight_VD)) * h_kept_ND.sum(0, dtype=wide)
        if grad_hidden is not None and grad_weight is not None:
            ctx.save_for_backward(grad_hidden, grad_weight.to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = outer[0]
        return (
            grad_hidden * scale.to(grad_hidden.dtype),
            grad_weight * scale.to(grad_weight.dtype),
            None,
            None,
            None,
            None,
        )


def readable_paired_cross_entropy(
    logits_2NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int, weight: float
) -> tuple[Tensor, Tensor]:
    """Mean of two passes' smoothed cross-entropies plus weight · ½(KL(p‖q) + KL(q‖p)); the readable twin."""
    first, second = logits_2NV.chunk(2)
    (loss_a, nll_a), (loss_b, nll_b) = (smoothed_cross_entropy(x, labels_N, smoothing, ignore) for x in (first, second))
    logp_NV, logq_NV = first.log_softmax(-1), second.log_softmax(-1)
    distance_N = ((logp_NV.exp() - logq_NV.exp()) * (logp_NV - logq_NV)).sum(-1) / 2
    distance = distance_N[labels_N != ignore].sum()
    return (loss_a + loss_b) / 2 + weight * distance, (nll_a + nll_b) / 2


def paired_cross_entropy(
    hidden_2ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, ignore: int, weight: float
) -> tuple[Tensor, Tensor]:
    """The same from hidden vectors (pass one above pass two), some rows at a time, gradients made on the way."""
    most = 2**20 if hidden_2ND.device.type == "cpu" else 2**27
    rows = max(1, min(len(labels_N), most // len(weight_VD)))
    return _PairedPieces.apply(hidden_2ND, weight_VD, labels_N, smoothing, ignore, weight, rows)


class _PairedPieces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_2ND: Tensor,
        weight_VD: Tensor,
        labels_N: Tensor,
        smoothing: float,
        ignore: int,
        weight: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden_2ND.dtype, torch.float32)
        loss, nll = (torch.zeros((), dtype=wide, device=hidden_2ND.device) for _ in range(2))
        grad_hidden = torch.empty_like(hidden_2ND)
        grad_weight = torch.zeros_like(weight_VD, dtype=wide)
        both_2ND, grads_2ND = hidden_2ND.unflatten(0, (2, -1)), grad_hidden.view(2, -1, hidden_2ND.shape[1])
        for at in range(0, len(labels_N), rows):
            y_N1 = labels_N[at : at + rows, None]
            kept_N1 = (y_N1 != ignore).to(wide)
            h_2ND = both_2ND[:, at : at + rows]
            logp_2NV = F.log_softmax(h_2ND @ weight_VD.T, -1, dtype=wide)
            p_2NV = logp_2NV.exp()
            y_2N1 = y_N1.expand(2, -1, -1)
            nll_2N1 = -logp_2NV.gather(2, y_2N1)
            uniform_2N1 = -logp_2NV.mean(2, keepdim=True)
            apart_NV = logp_2NV[0] - logp_2NV[1]
            kl_2N1 = torch.stack([(p_2NV[0] * apart_NV).sum(1), -(p_2NV[1] * apart_NV).sum(1)])[:, :, None]
            nll = nll + (nll_2N1 * kept_N1).sum() / 2
            entropy_2N1 = (1 - smoothing) * nll_2N1 + smoothing * uniform_2N1
            loss = loss + ((entropy_2N1 + weight * kl_2N1) * kept_N1).sum() / 2
            # ∂KL(p‖q)/∂z = p(log p − log q − KL) and ∂KL(q‖p)/∂z = p − q, for the logits z of p.
            signed_2NV = torch.stack([apart_NV, -apart_NV])
            swapped_2NV = p_2NV.flip(0)
            grad_2NV = p_2NV - smoothing / len(weight_VD)
            grad_2NV.scatter_add_(2, y_2N1, torch.full_like(y_2N1, smoothing - 1, dtype=wide))
            grad_2NV += weight * (p_2NV * (signed_2NV - kl_2N1) + p_2NV - swapped_2NV)
            grad_2NV = (grad_2NV * (kept_N1 / 2)).to(hidden_2ND.dtype)
            grads_2ND[:, at : at + rows] = grad_2NV @ weight_VD
            grad_weight += (grad_2NV.flatten(0, 1).T @ h_2ND.flatten(0, 1)).to(wide)
        ctx.save_for_backward(grad_hidden, grad_weight.to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = outer[0]
        return (
            grad_hidden * scale.to(grad_hidden.dtype),
            grad_weight * scale.to(grad_weight.dtype),
            *(None for _ in range(5)),
        )
