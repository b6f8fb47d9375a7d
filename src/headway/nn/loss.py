"""Label-smoothed cross-entropy that never holds all the logits.

    Σ −(1−ε) log p(y) − ε/V Σ_v log p(v) (Szegedy et al. 2016)

N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headway.compiling import Uncompiled
from headway.fast import cross_entropy as kernels

Gradients = tuple[Tensor, Tensor]  # by the hidden vectors of a chunk, and by the weight, which all chunks add to


# Not compiled: its chunks depend on the number of rows, and its passes are already few.
@Uncompiled
def linear_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor]:
    """The smoothed loss of the logits hidden · weightᵀ, and Σ −log p(y), some rows at a time, gradients on the way.

    The logits of a chunk live only until its loss and its share of both gradients are known.
    """
    if hidden_ND.device.type == "cpu":
        # Padding costs a product with the whole vocabulary; on a GPU fixed shapes are worth more.
        kept = (labels_N != ignore).nonzero()[:, 0]
        if len(kept) < len(labels_N):
            hidden_ND, labels_N = hidden_ND.index_select(0, kept), labels_N.index_select(0, kept)
    rows = _rows(len(labels_N), len(weight_VD), hidden_ND.device)
    learning = torch.is_grad_enabled() and (hidden_ND.requires_grad or weight_VD.requires_grad)
    if kernels.available(hidden_ND) and learning:
        by_rows = partial(kernels.cross_entropy_rows, smoothing=smoothing, ignore=ignore)
        return _Chunks.apply(hidden_ND, weight_VD, labels_N, partial(_by_rows, by_rows), rows)
    return _Chunks.apply(hidden_ND, weight_VD, labels_N, partial(_in_few_passes, smoothing, ignore), rows)


@Uncompiled
def paired_cross_entropy(
    hidden_2ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, ignore: int, weight: float
) -> tuple[Tensor, Tensor]:
    """The mean of two passes' losses (pass one above pass two) plus weight · ½(KL(p‖q) + KL(q‖p)), in the same way."""
    rows = _rows(len(labels_N), 2 * len(weight_VD), hidden_2ND.device)
    by_rows = kernels.paired_rows if kernels.available(hidden_2ND) else _paired_rows
    by_rows = partial(by_rows, smoothing=smoothing, ignore=ignore, weight=weight)
    return _Chunks.apply(hidden_2ND.unflatten(0, (2, -1)), weight_VD, labels_N, partial(_by_rows, by_rows), rows)


@Uncompiled
def log_likelihoods(hidden_ND: Tensor, weight_VD: Tensor, labels_BT: Tensor, ignore: int) -> Tensor:
    """(B,): Σ log p(y) of each row, of the logits hidden · weightᵀ. Some tokens at a time; for the gradient their
    logits are computed again."""
    labels_N = labels_BT.flatten()
    if hidden_ND.device.type == "cpu":  # as above
        kept = (labels_N != ignore).nonzero()[:, 0]
        row_N = kept // labels_BT.shape[1]
        found_N = _log_probabilities(hidden_ND.index_select(0, kept), weight_VD, labels_N.index_select(0, kept), ignore)
        return found_N.new_zeros(len(labels_BT)).index_add(0, row_N, found_N)
    return _log_probabilities(hidden_ND, weight_VD, labels_N, ignore).view_as(labels_BT).sum(1)


def _log_probabilities(hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, ignore: int) -> Tensor:
    size = _rows(max(1, len(labels_N)), len(weight_VD), hidden_ND.device)
    parts = zip(hidden_ND.split(size), labels_N.split(size), strict=True)
    how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([checkpoint(_log_p, h_ND, weight_VD, some_N, ignore, **how) for h_ND, some_N in parts])


def _log_p(h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, ignore: int) -> Tensor:
    logits_NV = h_ND @ weight_VD.T
    wide = torch.promote_types(logits_NV.dtype, torch.float32)
    return -F.cross_entropy(logits_NV.to(wide), labels_N, ignore_index=ignore, reduction="none")


def _rows(count: int, vocabulary: int, device: torch.device) -> int:
    """Rows of a chunk: even chunks whose logits stay in a CPU's cache, or are a fair share of a GPU's memory. The fewer
    chunks, the less often the gradient of all weights is read and written."""
    most = 2**21 if device.type == "cpu" else min(2**30, torch.cuda.get_device_properties(device).total_memory // 64)
    chunks = max(1, -(-count * vocabulary // most))
    return max(1, -(-count // chunks))


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight_VD: Tensor, labels_N: Tensor, chunk: Callable[..., tuple[Tensor, Tensor]],
        rows: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """`hidden`: (N, D), or (2, N, D) of two passes. `chunk` gives the loss and nll of some rows, and writes their
        gradients."""
        wide = torch.promote_types(hidden.dtype, torch.float32)
        loss, nll = (torch.zeros((), dtype=wide, device=hidden.device) for _ in range(2))
        learning = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        if learning:
            grad_hidden = torch.empty_like(hidden)
            # The first chunk writes the weight's gradient; zeros are for when there is none.
            grad_weight = (torch.empty_like if len(labels_N) else torch.zeros_like)(weight_VD, dtype=wide)
        for at in range(0, len(labels_N), rows):
            cut = slice(at, at + rows)
            grads = (grad_hidden[..., cut, :], grad_weight) if learning else None
            part_loss, part_nll = chunk(hidden[..., cut, :], weight_VD, labels_N[cut], grads, first=at == 0)
            loss, nll = loss + part_loss, nll + part_nll
        if learning:
            ctx.save_for_backward(grad_hidden, grad_weight.to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        # One launch for both; a product with a number that is on the GPU itself would go an element at a time.
        grads = torch._foreach_mul(ctx.saved_tensors, outer[0].to(ctx.saved_tensors[0].dtype))
        return *grads, None, None, None


def _by_rows(
    by_rows: Callable[..., tuple[Tensor, Tensor, Tensor]], hidden: Tensor, weight_VD: Tensor, labels_N: Tensor,
    grads: Gradients | None, first: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """By what gives for some logits their gradient, and the loss and nll of each row: on a GPU one kernel."""
    grad, loss_N, nll_N = by_rows(hidden @ weight_VD.T, labels_N)
    if grads is not None:
        grads[0].copy_(grad @ weight_VD)
        _add_product(grads[1], grad.flatten(0, -2), hidden.flatten(0, -2), first)
    return loss_N.sum(), nll_N.sum()


def _in_few_passes(
    smoothing: float, ignore: int, h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, grads: Gradients | None,
    first: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As few passes over the logits as there are."""
    wide = torch.promote_types(h_ND.dtype, torch.float32)
    # Without smoothing the passes over the weights that only it needs are left out.
    mean_D = weight_VD.mean(0, dtype=wide) if smoothing else None
    kept_N1 = labels_N[:, None] != ignore
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
        p_NV = logp_NV.exp_().to(h_ND.dtype)
        p_NV.scatter_add_(1, y_N1, torch.full_like(y_N1, smoothing - 1, dtype=p_NV.dtype))
        h_kept_ND = h_ND * kept_N1
        grad_ND = p_NV @ weight_VD
        _add_product(grads[1], p_NV, h_kept_ND, first)
        if mean_D is not None:
            grad_ND = grad_ND - smoothing * mean_D.to(h_ND.dtype)
            grads[1].sub_((smoothing / len(weight_VD)) * h_kept_ND.sum(0, dtype=wide))
        grads[0].copy_(grad_ND * kept_N1)
    return (loss_N1 * kept_N1).sum(), (nll_N1 * kept_N1).sum()


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
