"""Label-smoothed cross-entropy that never holds all the logits.

N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.compiling import Uncompiled
from headway.fast import cross_entropy as kernels


def smoothed_cross_entropy(logits_NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int) -> tuple[Tensor, Tensor]:
    """Σ −(1−ε) log p(y) − ε/V Σ_v log p(v) (Szegedy et al. 2016), and Σ −log p(y); the readable twin."""
    logp_NV = logits_NV.log_softmax(-1)
    # What is ignored may be no id at all.
    nll_N = -logp_NV.gather(1, labels_N[:, None].clamp(min=0))[:, 0]
    loss_N = (1 - smoothing) * nll_N - smoothing * logp_NV.mean(-1)
    kept = labels_N != ignore
    return loss_N[kept].sum(), nll_N[kept].sum()


# Not compiled: its chunks depend on the number of rows, and its passes are already few.
@Uncompiled
def linear_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy(hidden @ weightᵀ, …)`, some rows at a time, gradients made on the way.

    The logits of a chunk live only until its loss and its share of both gradients are known.
    """
    if hidden_ND.device.type == "cpu":
        # Padding costs a product with the whole vocabulary; on a GPU fixed shapes are worth more.
        kept = (labels_N != ignore).nonzero()[:, 0]
        if len(kept) < len(labels_N):
            hidden_ND, labels_N = hidden_ND.index_select(0, kept), labels_N.index_select(0, kept)
    rows = _rows(len(labels_N), len(weight_VD), hidden_ND.device)
    return _Chunks.apply(hidden_ND, weight_VD, labels_N, smoothing, ignore, rows)


def _rows(count: int, vocabulary: int, device: torch.device) -> int:
    """Rows of a chunk: even chunks whose logits stay in a CPU's cache, or are a fair share of a GPU's memory. The fewer
    chunks, the less often the gradient of all weights is read and written."""
    most = 2**21 if device.type == "cpu" else min(2**30, torch.cuda.get_device_properties(device).total_memory // 64)
    chunks = max(1, -(-count * vocabulary // most))
    return max(1, -(-count // chunks))


Gradients = tuple[Tensor, Tensor]


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, ignore: int, rows: int
    ) -> tuple[Tensor, Tensor]:
        learning = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        loss, nll = (torch.zeros((), dtype=wide, device=hidden_ND.device) for _ in range(2))
        grads = (torch.empty_like(hidden_ND), _total(weight_VD, wide, len(hidden_ND))) if learning else None
        chunk = _chunk_by_kernel if kernels.available(hidden_ND) and learning else _chunk
        for at in range(0, len(hidden_ND), rows):
            cut = slice(at, at + rows)
            part_loss, part_nll = chunk(hidden_ND, weight_VD, labels_N[cut], cut, smoothing, ignore, grads)
            loss, nll = loss + part_loss, nll + part_nll
        if grads is not None:
            ctx.save_for_backward(grads[0], grads[1].to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return *_scaled(ctx.saved_tensors, outer[0]), None, None, None, None


def _chunk(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, cut: slice, smoothing: float, ignore: int,
    grads: Gradients | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Loss and nll of some rows; their gradients go into `grads`. As few passes over the logits as there are."""
    wide = torch.promote_types(hidden_ND.dtype, torch.float32)
    # Without smoothing the passes over the weights that only it needs are left out.
    mean_D = weight_VD.mean(0, dtype=wide) if smoothing else None
    h_ND, kept_N1 = hidden_ND[cut], labels_N[:, None] != ignore
    y_N1 = labels_N[:, None].clamp(min=0)  # what is ignored may be no id at all
    logits_NV = h_ND @ weight_VD.T
    logp_NV = F.log_softmax(logits_NV, -1, dtype=wide)
    nll_N1 = loss_N1 = -logp_NV.gather(1, y_N1)
    if mean_D is not None:
        # Σ_v −log p(v)/V = logsumexp − mean logit, and the mean logit is h · mean(W): no pass over V.
        uniform_N1 = nll_N1 + logits_NV.gather(1, y_N1).to(wide) - (h_ND.to(wide) @ mean_D)[:, None]
        loss_N1 = (1 - smoothing) * nll_N1 + smoothing * uniform_N1
    if grads is not None:
        # ∂loss/∂logits = p − (1−ε)·onehot(y) − ε/V; the last term is added to both gradients by hand.
        p_NV = logp_NV.exp_().to(hidden_ND.dtype)
        p_NV.scatter_add_(1, y_N1, torch.full_like(y_N1, smoothing - 1, dtype=p_NV.dtype))
        h_kept_ND = h_ND * kept_N1
        grad_ND = p_NV @ weight_VD
        _add_product(grads[1], p_NV, h_kept_ND, first=cut.start == 0)
        if mean_D is not None:
            grad_ND = grad_ND - smoothing * mean_D.to(h_ND.dtype)
            grads[1].sub_((smoothing / len(weight_VD)) * h_kept_ND.sum(0, dtype=wide))
        grads[0][cut] = grad_ND * kept_N1
    return (loss_N1 * kept_N1).sum(), (nll_N1 * kept_N1).sum()


def _chunk_by_kernel(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, cut: slice, smoothing: float, ignore: int,
    grads: Gradients | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same on a GPU: one kernel from logits to their gradient."""
    assert grads is not None
    grad_NV, loss_N, nll_N = kernels.cross_entropy_rows(hidden_ND[cut] @ weight_VD.T, labels_N, smoothing, ignore)
    grads[0][cut] = grad_NV @ weight_VD
    _add_product(grads[1], grad_NV, hidden_ND[cut], first=cut.start == 0)
    return loss_N.sum(), nll_N.sum()


def _total(weight_VD: Tensor, wide: torch.dtype, rows: int) -> Tensor:
    """Where the weights' gradient is added up. The first chunk writes it; zeros are for when there is none."""
    return (torch.empty_like if rows else torch.zeros_like)(weight_VD, dtype=wide)


def _add_product(total_VD: Tensor, grad_NV: Tensor, h_ND: Tensor, first: bool) -> None:
    """total += gradᵀ h, or total = gradᵀ h for the first chunk, added in the total's own precision."""
    if total_VD.dtype == h_ND.dtype:
        total_VD.addmm_(grad_NV.T, h_ND, beta=0 if first else 1)
    elif total_VD.is_cuda:
        # In the product's own accumulator: nothing narrow is written and read back.
        torch.addmm(total_VD, grad_NV.T, h_ND, out_dtype=total_VD.dtype, beta=0 if first else 1, out=total_VD)
    else:
        # Widened as it is added, not before.
        (total_VD.copy_ if first else total_VD.add_)(grad_NV.T @ h_ND)


def _scaled(grads: Gradients, scale: Tensor) -> Gradients:
    # One launch for both; a product with a number that is on the GPU itself would go an element at a time.
    grad_hidden, grad_weight = torch._foreach_mul(grads, scale.to(grads[0].dtype))
    return grad_hidden, grad_weight


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


@Uncompiled
def paired_cross_entropy(
    hidden_2ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, ignore: int, weight: float
) -> tuple[Tensor, Tensor]:
    """The same from hidden vectors (pass one above pass two), some rows at a time, gradients made on the way."""
    rows = _rows(len(labels_N), 2 * len(weight_VD), hidden_2ND.device)
    return _PairedChunks.apply(hidden_2ND, weight_VD, labels_N, smoothing, ignore, weight, rows)


class _PairedChunks(torch.autograd.Function):
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
        grad_weight = _total(weight_VD, wide, len(labels_N))
        both_2ND, grads_2ND = hidden_2ND.unflatten(0, (2, -1)), grad_hidden.view(2, -1, hidden_2ND.shape[1])
        by_rows = kernels.paired_rows if kernels.available(hidden_2ND) else _paired_rows
        for at in range(0, len(labels_N), rows):
            h_2ND = both_2ND[:, at : at + rows]
            grad_2NV, loss_N, nll_N = by_rows(h_2ND @ weight_VD.T, labels_N[at : at + rows], smoothing, ignore, weight)
            grads_2ND[:, at : at + rows] = grad_2NV @ weight_VD
            _add_product(grad_weight, grad_2NV.flatten(0, 1), h_2ND.flatten(0, 1), first=at == 0)
            loss, nll = loss + loss_N.sum(), nll + nll_N.sum()
        ctx.save_for_backward(grad_hidden, grad_weight.to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return *_scaled(ctx.saved_tensors, outer[0]), *(None for _ in range(5))


def _paired_rows(
    logits_2NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient by the logits, loss and nll of each row."""
    wide = torch.promote_types(logits_2NV.dtype, torch.float32)
    kept_N1 = (labels_N != ignore).to(wide)[:, None]
    y_2N1 = labels_N[None, :, None].clamp(min=0).expand(2, -1, -1)  # what is ignored may be no id at all
    logp_2NV = F.log_softmax(logits_2NV, -1, dtype=wide)
    p_2NV = logp_2NV.exp()
    nll_2N1 = -logp_2NV.gather(2, y_2N1)
    uniform_2N1 = -logp_2NV.mean(2, keepdim=True)
    apart_2NV = logp_2NV - logp_2NV.flip(0)
    kl_2N1 = (p_2NV * apart_2NV).sum(2, keepdim=True)
    loss_2N1 = (1 - smoothing) * nll_2N1 + smoothing * uniform_2N1 + weight * kl_2N1
    # ∂KL(p‖q)/∂z = p(log p − log q − KL) and ∂KL(q‖p)/∂z = p − q, for the logits z of p.
    grad_2NV = p_2NV - smoothing / logits_2NV.shape[2]
    grad_2NV.scatter_add_(2, y_2N1, torch.full_like(y_2N1, smoothing - 1, dtype=wide))
    grad_2NV += weight * (p_2NV * (apart_2NV - kl_2N1) + p_2NV - p_2NV.flip(0))
    grad_2NV = (grad_2NV * (kept_N1 / 2)).to(logits_2NV.dtype)
    return grad_2NV, (loss_2N1 * kept_N1).sum((0, 2)) / 2, (nll_2N1 * kept_N1).sum((0, 2)) / 2
