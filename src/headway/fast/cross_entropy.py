"""The loss and its gradient by the logits as one Triton kernel each: a row is read once and written once.

N tokens, V vocabulary, B logits of a row at a time, as L threads of E each where a thread sums its own.
A program has one row (or the two rows of a pair).
The readable twins are in `tests/train/readable_loss.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError
from headway.fast.jit import available, constexpr, jit, launch, needs_triton, tensor, tl, triton

__all__ = ["available", "cross_entropy_rows", "paired_rows"]

# Of a single row and of a pair: the most logits of a row that a program reads at a time. A warp has 256 of them: each
# thread then reads and writes 16 bytes of bfloat16 at once. The more warps a row has, the fewer rows are under way, and
# a row stays in the cache until it is read again. 16,384 rows of 50,304 take 0.82 ms, in steps of 2,048 1.09.
STEPS = {1: 8192, 2: 2048}


# In the kernels V is a constant of the compilation: Triton then infers how rows are aligned (of a variable it
# infers only a multiple of 16) and reads 16 bytes at once. Masked elements hold −10³⁰, not −∞: exp makes it 0 as well,
# and differences of two masked elements are no NaN. A running maximum starts from there too, whatever the logits are.


@jit
def _read(row: tensor, at_B: tensor, mask_B: tensor) -> tensor:
    """The logits of a row at some places, in float32."""
    return tl.where(mask_B, tl.load(row + at_B, mask=mask_B, other=0.0).to(tl.float32), -1.0e30)


@jit
def _label_logit(row: tensor, label: tensor, V: constexpr) -> tensor:
    """NaN for a label outside the vocabulary: it shows in the loss, where a stray read would not."""
    return tl.load(row + label, mask=(label >= 0) & (label < V), other=float("nan")).to(tl.float32)


@jit
def _target(at_B: tensor, label: tensor, smoothing: tensor, V: constexpr) -> tensor:
    """(1−ε)·onehot(y) + ε/V: the gradient of a cross-entropy is p minus this."""
    return tl.where(at_B == label, 1.0 - smoothing, 0.0) + smoothing / V


@jit
def _entropy(nll: tensor, lse: tensor, total: tensor, smoothing: tensor, V: constexpr) -> tensor:
    """−(1−ε) log p(y) − ε/V Σ_v log p(v), where the last sum is Σ logits − V·logsumexp.

    Without smoothing a logit of −∞, whose word is never the label, is no loss: 0 · ∞ is not computed.
    """
    return (1.0 - smoothing) * nll + tl.where(smoothing > 0.0, smoothing * (lse - total / V), 0.0)


@jit
def _shares(z_B: tensor, high_B: tensor, mask_B: tensor) -> tensor:
    """exp(old − new) and exp(z − new), new = max(z, old): the factors of a running Σ exp and of its next term.

    One of the two is always 1, so that a logit costs one exp.
    """
    lesser_B = tl.exp(-tl.abs(z_B - high_B))
    rises_B = z_B > high_B
    return tl.where(rises_B, lesser_B, 1.0), tl.where(rises_B, 1.0, tl.where(mask_B, lesser_B, 0.0))


@jit
def _bits(nats: tensor) -> tensor:
    """x·log₂e: the hardware has 2ˣ, and this product is fused with the subtraction that follows."""
    return nats * 1.4426950408889634


@jit
def _places(start: tensor, V: constexpr, L: constexpr, E: constexpr) -> tensor:
    """The places of L·E logits from `start`: a thread's own are neighbours, which it reads at once.

    Where rows start at odd places no two can be read at once; there, the threads' logits of one read are neighbours.
    """
    thread_L1, own_1E = tl.arange(0, L)[:, None], tl.arange(0, E)[None, :]
    return start + (thread_L1 * E + own_1E if V % 2 == 0 else thread_L1 + own_1E * L)


@jit
def _joined(z_LE: tensor, high_L: tensor, sum_L: tensor) -> tensor:
    """The maximum of a thread's logits so far and E more, in bits, and Σ 2^(z − maximum): 1 + 1/E powers a logit."""
    new_L = tl.maximum(high_L, _bits(tl.max(z_LE, 1)))
    return new_L, sum_L * tl.exp2(high_L - new_L) + tl.sum(tl.exp2(_bits(z_LE) - new_L[:, None]), 1)


@jit
def _logsumexp(row: tensor, V: constexpr, L: constexpr, E: constexpr, SMOOTH: constexpr) -> tensor:
    """logsumexp of a row, in bits, and where `SMOOTH` the sum of its logits.

    Each thread has a running maximum and sums of its own: the warps synchronise once a row, not at every step.
    """
    WHOLE: constexpr = V // (L * E) * (L * E)
    high_L = tl.full([L], -1.0e30, tl.float32)
    sum_L, total_L = tl.zeros([L], tl.float32), tl.zeros([L], tl.float32)
    for start in range(0, WHOLE, L * E):
        # Kept in the cache: it is read again for the gradient.
        z_LE = tl.load(row + _places(start, V, L, E), eviction_policy="evict_last").to(tl.float32)
        high_L, sum_L = _joined(z_LE, high_L, sum_L)
        if SMOOTH:
            total_L += tl.sum(z_LE, 1)
    if WHOLE < V:
        at_LE = _places(WHOLE, V, L, E)
        # −∞, not −10³⁰: a thread without logits so far would raise 2 to the rounding error of 10³⁰.
        z_LE = tl.load(row + at_LE, mask=at_LE < V, other=-float("inf")).to(tl.float32)
        high_L, sum_L = _joined(z_LE, high_L, sum_L)
        if SMOOTH:
            total_L += tl.sum(tl.where(at_LE < V, z_LE, 0.0), 1)
    high = tl.max(high_L, 0)
    return high + tl.log2(tl.sum(sum_L * tl.exp2(high_L - high), 0)), tl.sum(total_L, 0)


@jit
def _zero_row(grad_row: tensor, V: constexpr, L: constexpr, E: constexpr) -> None:
    for start in range(0, V, L * E):
        at_LE = _places(start, V, L, E)
        tl.store(grad_row + at_LE, tl.zeros([L, E], tl.float32), mask=at_LE < V)


@jit
def _entropy_row(
    logits: tensor, labels: tensor, grads: tensor, losses: tensor, nlls: tensor,
    smoothing: tensor, ignore: tensor, V: constexpr, B: constexpr, SMOOTH: constexpr
) -> None:  # fmt: skip
    """One row, B logits at a time: logsumexp first, then the gradient, from the end, which is still in the cache.

    Arithmetic should take less time than memory. So whole steps have no mask, the label's gradient is corrected once
    at the end, and ε/V is subtracted only where it is not 0.
    """
    n = tl.program_id(0).to(tl.int64)
    row, grad_row, label = logits + n * V, grads + n * V, tl.load(labels + n)
    E: constexpr = 128 // logits.dtype.element_ty.primitive_bitwidth  # 16 bytes, the most a thread reads at once
    L: constexpr = B // E
    WHOLE: constexpr = V // B * B
    if label == ignore:
        tl.store(losses + n, 0.0)
        tl.store(nlls + n, 0.0)
        _zero_row(grad_row, V, L, E)
    else:
        lse_bits, total = _logsumexp(row, V, L, E, SMOOTH)
        label_logit = _label_logit(row, label, V)
        lse = lse_bits * 0.6931471805599453
        nll = lse - label_logit
        tl.store(losses + n, _entropy(nll, lse, total, smoothing, V))
        tl.store(nlls + n, nll)
        spread = smoothing / V if SMOOTH else 0.0
        if WHOLE < V:
            at_LE = _places(WHOLE, V, L, E)
            z_LE = tl.load(row + at_LE, mask=at_LE < V).to(tl.float32)
            tl.store(grad_row + at_LE, tl.exp2(_bits(z_LE) - lse_bits) - spread, mask=at_LE < V)
        for done in range(0, WHOLE, B):
            at_LE = _places(WHOLE - B - done, V, L, E)
            z_LE = tl.load(row + at_LE, eviction_policy="evict_first").to(tl.float32)
            tl.store(grad_row + at_LE, tl.exp2(_bits(z_LE) - lse_bits) - spread, cache_modifier=".cs")
        tl.debug_barrier()  # another thread has written the label's place
        grad = tl.exp2(_bits(label_logit) - lse_bits) - (1.0 - smoothing) - spread
        tl.store(grad_row + label, grad, mask=(label >= 0) & (label < V))


@jit
def _pair_losses(
    row_p: tensor, row_q: tensor, label: tensor, lse_p: tensor, lse_q: tensor, total: tensor, both_kl: tensor,
    smoothing: tensor, weight: tensor, V: constexpr
) -> tensor:  # fmt: skip
    """½(CE(p) + CE(q)) + weight · ½(KL(p‖q) + KL(q‖p)), and the mean −log p(y); `total` is the sum of all logits."""
    nll = lse_p + lse_q - _label_logit(row_p, label, V) - _label_logit(row_q, label, V)
    loss = _entropy(nll, lse_p + lse_q, total, smoothing, V) + weight * both_kl
    return 0.5 * loss, 0.5 * nll


@jit
def _pair_grads(
    logp_B: tensor, logq_B: tensor, kl_p: tensor, kl_q: tensor, target_B: tensor, weight: tensor
) -> tensor:  # fmt: skip
    """∂KL(p‖q)/∂z = p(log p − log q − KL) and ∂KL(q‖p)/∂z = p − q, for the logits z of p; and mirrored for q."""
    p_B, q_B = tl.exp(logp_B), tl.exp(logq_B)
    apart_B, over_B = logp_B - logq_B, p_B - q_B
    grad_p_B = p_B - target_B + weight * (p_B * (apart_B - kl_p) + over_B)
    grad_q_B = q_B - target_B - weight * (q_B * (apart_B + kl_q) + over_B)
    return 0.5 * grad_p_B, 0.5 * grad_q_B


@jit
def _paired_row(
    logits: tensor, labels: tensor, grads: tensor, losses: tensor, nlls: tensor,
    smoothing: tensor, ignore: tensor, weight: tensor, V: constexpr, B: constexpr
) -> None:  # fmt: skip
    """The two rows of a pair, B logits at a time: logsumexps and KLs first, then the gradients.

    The sum in KL(p‖q) = Σ p·(z_p − z_q) − (logsumexp_p − logsumexp_q) runs along with the one in logsumexp.
    """
    n = tl.program_id(0).to(tl.int64)
    at_p, at_q = n * V, (tl.num_programs(0) + n) * V
    row_p, row_q, label = logits + at_p, logits + at_q, tl.load(labels + n)
    kept = label != ignore
    high_p_B, high_q_B = tl.full([B], -1.0e30, tl.float32), tl.full([B], -1.0e30, tl.float32)
    sum_p_B, sum_q_B = tl.zeros([B], tl.float32), tl.zeros([B], tl.float32)
    gap_p_B, gap_q_B, total_B = tl.zeros([B], tl.float32), tl.zeros([B], tl.float32), tl.zeros([B], tl.float32)
    for start in range(0, V, B):
        at_B = start + tl.arange(0, B)
        zp_B, zq_B = _read(row_p, at_B, (at_B < V) & kept), _read(row_q, at_B, (at_B < V) & kept)
        old_B, new_B = _shares(zp_B, high_p_B, at_B < V)
        sum_p_B, gap_p_B = sum_p_B * old_B + new_B, gap_p_B * old_B + new_B * (zp_B - zq_B)
        old_B, new_B = _shares(zq_B, high_q_B, at_B < V)
        sum_q_B, gap_q_B = sum_q_B * old_B + new_B, gap_q_B * old_B + new_B * (zq_B - zp_B)
        high_p_B, high_q_B = tl.maximum(zp_B, high_p_B), tl.maximum(zq_B, high_q_B)
        total_B += tl.where(at_B < V, zp_B + zq_B, 0.0)
    high_p, high_q = tl.max(high_p_B, 0), tl.max(high_q_B, 0)
    share_p_B, share_q_B = tl.exp(high_p_B - high_p), tl.exp(high_q_B - high_q)
    sum_p, sum_q = tl.sum(sum_p_B * share_p_B, 0), tl.sum(sum_q_B * share_q_B, 0)
    lse_p, lse_q = high_p + tl.log(sum_p), high_q + tl.log(sum_q)
    kl_p = tl.sum(gap_p_B * share_p_B, 0) / sum_p - (lse_p - lse_q)
    kl_q = tl.sum(gap_q_B * share_q_B, 0) / sum_q - (lse_q - lse_p)
    total, both_kl = tl.sum(total_B, 0), kl_p + kl_q
    loss, nll = _pair_losses(row_p, row_q, label, lse_p, lse_q, total, both_kl, smoothing, weight, V)
    tl.store(losses + n, tl.where(kept, loss, 0.0))
    tl.store(nlls + n, tl.where(kept, nll, 0.0))
    for start in range(0, V, B):
        at_B = start + tl.arange(0, B)
        logp_B = _read(row_p, at_B, (at_B < V) & kept) - lse_p
        logq_B = _read(row_q, at_B, (at_B < V) & kept) - lse_q
        grad_p_B, grad_q_B = _pair_grads(logp_B, logq_B, kl_p, kl_q, _target(at_B, label, smoothing, V), weight)
        tl.store(grads + at_p + at_B, tl.where(kept, grad_p_B, 0.0), mask=at_B < V)
        tl.store(grads + at_q + at_B, tl.where(kept, grad_q_B, 0.0), mask=at_B < V)


def _outputs(logits: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # Not empty_like: it would keep strides, and the kernels write whole rows.
    loss_N, nll_N = (torch.empty(labels_N.shape[0], dtype=torch.float32, device=logits.device) for _ in range(2))
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device), loss_N, nll_N


def _launch(
    kernel: Any, logits: Tensor, labels_N: Tensor, *numbers: float, **settings: bool
) -> tuple[Tensor, Tensor, Tensor]:
    needs_triton("loss", "the functions of headway.train.loss")
    grad, loss_N, nll_N = _outputs(logits, labels_N)
    V = logits.shape[-1]
    step = min(STEPS[logits.dim() - 1], max(256, triton.next_power_of_2(V)))
    launch(
        kernel, (len(labels_N),), logits.contiguous(), labels_N.contiguous(), grad, loss_N, nll_N, *numbers,
        V=V, B=step, **settings, num_warps=step // 256,
    )  # fmt: skip
    return grad, loss_N, nll_N


def _check(logits: Tensor, labels_N: Tensor, shape: tuple[int, ...]) -> None:
    if labels_N.dim() != 1 or tuple(logits.shape[:-1]) != shape:
        raise InputError(
            f"logits of shape {tuple(logits.shape)} do not fit labels of shape {tuple(labels_N.shape)}: "
            f"expected ({', '.join(map(str, shape))}, V)"
        )


@torch.library.custom_op("headway::cross_entropy_rows", mutates_args=())
def cross_entropy_rows(
    logits_NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor, Tensor]:
    """p − (1−ε)·onehot(y) − ε/V, the gradient in the dtype of the logits, and each row's loss and −log p(y).

    All three are zero in rows whose label is `ignore`. It has no backward: the gradient is a result.
    """
    _check(logits_NV, labels_N, (len(labels_N),))
    return _launch(_entropy_row, logits_NV, labels_N, float(smoothing), ignore, SMOOTH=smoothing > 0)


@torch.library.custom_op("headway::paired_rows", mutates_args=())
def paired_rows(
    logits_2NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """½(CE(p) + CE(q)) + weight · ½(KL(p‖q) + KL(q‖p)) of two passes: its gradient, itself, and the mean −log p(y).

    All three are zero where the label is `ignore`. It has no backward: the gradient is a result.
    """
    _check(logits_2NV, labels_N, (2, len(labels_N)))
    return _launch(_paired_row, logits_2NV, labels_N, float(smoothing), ignore, float(weight))


for op in (cross_entropy_rows, paired_rows):
    op.register_fake(lambda logits, labels_N, *_numbers: _outputs(logits, labels_N))
