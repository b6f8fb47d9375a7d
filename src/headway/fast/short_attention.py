"""Attention over short sequences in training, as one Triton kernel forward and one backward.

The usual kernels are made for long sequences: they go over the keys in tiles, and the backward reads all of them a
second time. Up to `LONGEST` queries and keys, what a head needs fits into the registers of one program, which reads
each query, key and value once in each direction. The readable twin is `attend` in `headway.nn.attention`.

B rows, T queries, S keys, H heads, K head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.fast.jit import available, constexpr, jit, launch, needs_triton, tensor, tl, triton

LONGEST = 80  # of queries and keys: a ViT has one more than 64
WIDEST = 64  # head width
LEAST, TILE = 32, 64  # places that a program computes with at once; few forms, so that little has to be compiled
ROUNDS = 7  # of Philox: fewer than the usual ten, and still without a known pattern (Salmon et al. 2011)
Parts = tuple[Tensor, Tensor, Tensor]


def takes(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> bool:
    """Whether `attend_short` supports these and is faster."""
    if not available(q_BHTK):  # checked first: sizes that are free in an exported graph stay free
        return False
    (_, _, queries, width), keys = q_BHTK.shape, k_BHSK.shape[2]
    half = q_BHTK.dtype == k_BHSK.dtype == v_BHSK.dtype and q_BHTK.dtype in (torch.bfloat16, torch.float16)
    small = max(queries, keys) <= LONGEST and 16 <= width <= WIDEST and width % 8 == 0
    alike = q_BHTK.shape[:2] == k_BHSK.shape[:2] == v_BHSK.shape[:2] and width == v_BHSK.shape[3]
    return half and small and alike and torch.is_grad_enabled()


@jit
def _loaded(x: tensor, at_N: tensor, many: tensor, step: tensor, K: constexpr, WIDTH: constexpr) -> tensor:
    """(N, K): rows of a head; those from `many` on are 0."""
    k_1K = tl.arange(0, WIDTH)[None, :]
    return tl.load(x + at_N[:, None] * step + k_1K, mask=(at_N < many)[:, None] & (k_1K < K), other=0.0)


@jit
def _stored(x: tensor, x_NK: tensor, at_N: tensor, many: tensor, step: tensor, K: constexpr, WIDTH: constexpr) -> None:
    k_1K = tl.arange(0, WIDTH)[None, :]
    tl.store(x + at_N[:, None] * step + k_1K, x_NK, mask=(at_N < many)[:, None] & (k_1K < K))


@jit
def _seen(
    at_T: tensor, at_S: tensor, b: tensor, h: tensor, T: tensor, S: tensor, lengths: tensor, matrix: tensor,
    m_b: tensor, m_h: tensor, m_t: tensor, m_s: tensor, KIND: constexpr
) -> tensor:  # fmt: skip
    """(T, S): which keys a query may look at. KIND: 0 all, 1 none after itself, 2 the first of its row, 3 a matrix."""
    seen_TS = (at_T < T)[:, None] & (at_S < S)[None, :]
    if KIND == 1:
        seen_TS = seen_TS & (at_S[None, :] <= at_T[:, None])
    if KIND == 2:
        seen_TS = seen_TS & (at_S < tl.load(lengths + b))[None, :]
    if KIND == 3:
        at_TS = b * m_b + h * m_h + at_T[:, None] * m_t + at_S[None, :] * m_s
        seen_TS = seen_TS & (tl.load(matrix + at_TS, mask=seen_TS, other=0) != 0)
    return seen_TS


@jit
def _kept(at_T: tensor, at_S: tensor, seed: tensor, T: tensor, S: tensor, p: tensor, ROUNDS: constexpr) -> tensor:
    """(T, S): 0 for a weight that is dropped, 1/(1 − p) for others; the same in both directions."""
    place_TS = (tl.program_id(0) * T + at_T[:, None]) * S + at_S[None, :]
    return tl.where(tl.rand(tl.load(seed), place_TS, n_rounds=ROUNDS) < p, 0.0, 1.0 / (1.0 - p))


@jit
def _score(q_TK: tensor, k_SK: tensor, seen_TS: tensor, scale: tensor) -> tensor:
    """(T, S): log₂ of the exponentials; −10³⁰ for what is not seen."""
    score_TS = tl.dot(q_TK, tl.trans(k_SK), input_precision="ieee") * (scale * 1.4426950408889634)  # log₂e
    return tl.where(seen_TS, score_TS, -1.0e30)


@jit
def _share(score_TS: tensor, less_T: tensor) -> tensor:
    return tl.where(score_TS > -1.0e29, tl.exp2(score_TS - less_T[:, None]), 0.0)


@jit(sizes=("T", "S"))
def _forward(
    q: tensor, k: tensor, v: tensor, mixed: tensor, norm: tensor, lengths: tensor, matrix: tensor, seed: tensor,
    scale: tensor, p: tensor, T: tensor, S: tensor,
    q_b: tensor, q_h: tensor, q_t: tensor, k_b: tensor, k_h: tensor, k_s: tensor,
    v_b: tensor, v_h: tensor, v_s: tensor, m_b: tensor, m_h: tensor, m_t: tensor, m_s: tensor,
    H: constexpr, K: constexpr, TS: constexpr, T_REST: constexpr, SS: constexpr, S_REST: constexpr, WIDTH: constexpr,
    KIND: constexpr, DROPS: constexpr, ROUNDS: constexpr
) -> None:  # fmt: skip
    """One head of one row. `norm`: log₂ of the sum of its exponentials, for the backward; 10³⁰ if nothing is seen."""
    b, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    at_S = tl.arange(0, SS)
    k_SK = _loaded(k + b * k_b + h * k_h, at_S, S, k_s, K, WIDTH)
    v_SK = _loaded(v + b * v_b + h * v_h, at_S, S, v_s, K, WIDTH)
    if S_REST:
        rest_S = SS + tl.arange(0, S_REST)
        rest_k_SK = _loaded(k + b * k_b + h * k_h, rest_S, S, k_s, K, WIDTH)
        rest_v_SK = _loaded(v + b * v_b + h * v_h, rest_S, S, v_s, K, WIDTH)
    for part in tl.static_range(2):
        if part == 0 or T_REST:
            at_T = tl.arange(0, TS) if part == 0 else TS + tl.arange(0, T_REST)
            q_TK = _loaded(q + b * q_b + h * q_h, at_T, T, q_t, K, WIDTH)
            seen_TS = _seen(at_T, at_S, b, h, T, S, lengths, matrix, m_b, m_h, m_t, m_s, KIND)
            score_TS = _score(q_TK, k_SK, seen_TS, scale)
            high_T = tl.max(score_TS, 1)
            if S_REST:
                rest_TS = _seen(at_T, rest_S, b, h, T, S, lengths, matrix, m_b, m_h, m_t, m_s, KIND)
                far_TS = _score(q_TK, rest_k_SK, rest_TS, scale)
                high_T = tl.maximum(high_T, tl.max(far_TS, 1))
            share_TS = _share(score_TS, high_T)
            sum_T = tl.sum(share_TS, 1)
            if DROPS:
                share_TS = share_TS * _kept(at_T, at_S, seed, T, S, p, ROUNDS)
            mixed_TK = tl.dot(share_TS.to(v_SK.dtype), v_SK, input_precision="ieee")
            if S_REST:
                share_TR = _share(far_TS, high_T)
                sum_T += tl.sum(share_TR, 1)
                if DROPS:
                    share_TR = share_TR * _kept(at_T, rest_S, seed, T, S, p, ROUNDS)
                mixed_TK += tl.dot(share_TR.to(v_SK.dtype), rest_v_SK, input_precision="ieee")
            safe_T = tl.where(sum_T > 0, sum_T, 1.0)
            norm_T = tl.where(sum_T > 0, high_T + tl.log2(safe_T), 1.0e30)
            tl.store(norm + tl.program_id(0) * T + at_T, norm_T, mask=at_T < T)
            _stored(mixed + (b * T * H + h) * K, mixed_TK / safe_T[:, None], at_T, T, H * K, K, WIDTH)


@jit
def _pair(
    q_TK: tensor, grad_TK: tensor, sum_T: tensor, norm_T: tensor, k_SK: tensor, v_SK: tensor, at_T: tensor,
    at_S: tensor, b: tensor, h: tensor, T: tensor, S: tensor, lengths: tensor, matrix: tensor, seed: tensor,
    scale: tensor, p: tensor, m_b: tensor, m_h: tensor, m_t: tensor, m_s: tensor,
    KIND: constexpr, DROPS: constexpr, ROUNDS: constexpr
) -> tensor:  # fmt: skip
    """What some queries and some keys add to the gradients of q, k (both to be scaled) and v. With weights w, dropped
    to w∘m: dv = (w∘m)ᵀdo, dw = m∘(do vᵀ), ds = w∘(dw − Σ do∘o), dq = ds k, dk = dsᵀq."""
    seen_TS = _seen(at_T, at_S, b, h, T, S, lengths, matrix, m_b, m_h, m_t, m_s, KIND)
    share_TS = _share(_score(q_TK, k_SK, seen_TS, scale), norm_T)
    grad_TS = tl.dot(grad_TK, tl.trans(v_SK), input_precision="ieee")
    if DROPS:
        kept_TS = _kept(at_T, at_S, seed, T, S, p, ROUNDS)
        grad_TS = grad_TS * kept_TS
        grad_v_SK = tl.dot(tl.trans((share_TS * kept_TS).to(q_TK.dtype)), grad_TK, input_precision="ieee")
    else:
        grad_v_SK = tl.dot(tl.trans(share_TS.to(q_TK.dtype)), grad_TK, input_precision="ieee")
    grad_TS = (share_TS * (grad_TS - sum_T[:, None])).to(q_TK.dtype)
    grad_q_TK = tl.dot(grad_TS, k_SK, input_precision="ieee")
    return grad_q_TK, tl.dot(tl.trans(grad_TS), q_TK, input_precision="ieee"), grad_v_SK


@jit(sizes=("T", "S"))
def _backward(
    q: tensor, k: tensor, v: tensor, mixed: tensor, grad: tensor, grad_q: tensor, grad_k: tensor, grad_v: tensor,
    norm: tensor, lengths: tensor, matrix: tensor, seed: tensor, scale: tensor, p: tensor, T: tensor, S: tensor,
    q_b: tensor, q_h: tensor, q_t: tensor, k_b: tensor, k_h: tensor, k_s: tensor,
    v_b: tensor, v_h: tensor, v_s: tensor, g_b: tensor, g_h: tensor, g_t: tensor,
    m_b: tensor, m_h: tensor, m_t: tensor, m_s: tensor,
    H: constexpr, K: constexpr, TS: constexpr, T_REST: constexpr, SS: constexpr, S_REST: constexpr, WIDTH: constexpr,
    KIND: constexpr, DROPS: constexpr, ROUNDS: constexpr
) -> None:  # fmt: skip
    """One head of one row: the first queries and the rest, with the first keys and the rest."""
    b, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    at_T = tl.arange(0, TS)
    q_TK = _loaded(q + b * q_b + h * q_h, at_T, T, q_t, K, WIDTH)
    grad_TK = _loaded(grad + b * g_b + h * g_h, at_T, T, g_t, K, WIDTH)
    mixed_TK = _loaded(mixed + (b * T * H + h) * K, at_T, T, H * K, K, WIDTH)
    sum_T = tl.sum(grad_TK.to(tl.float32) * mixed_TK.to(tl.float32), 1)
    norm_T = tl.load(norm + tl.program_id(0) * T + at_T, mask=at_T < T, other=0.0)
    grad_q_TK = tl.zeros([TS, WIDTH], tl.float32)
    if T_REST:
        rest_T = TS + tl.arange(0, T_REST)
        q_RK = _loaded(q + b * q_b + h * q_h, rest_T, T, q_t, K, WIDTH)
        grad_RK = _loaded(grad + b * g_b + h * g_h, rest_T, T, g_t, K, WIDTH)
        mixed_RK = _loaded(mixed + (b * T * H + h) * K, rest_T, T, H * K, K, WIDTH)
        sum_R = tl.sum(grad_RK.to(tl.float32) * mixed_RK.to(tl.float32), 1)
        norm_R = tl.load(norm + tl.program_id(0) * T + rest_T, mask=rest_T < T, other=0.0)
        grad_q_RK = tl.zeros([T_REST, WIDTH], tl.float32)
    for part in tl.static_range(2):
        if part == 0 or S_REST:
            at_S = tl.arange(0, SS) if part == 0 else SS + tl.arange(0, S_REST)
            k_SK = _loaded(k + b * k_b + h * k_h, at_S, S, k_s, K, WIDTH)
            v_SK = _loaded(v + b * v_b + h * v_h, at_S, S, v_s, K, WIDTH)
            more_TK, grad_k_SK, grad_v_SK = _pair(
                q_TK, grad_TK, sum_T, norm_T, k_SK, v_SK, at_T, at_S, b, h, T, S, lengths, matrix, seed, scale, p,
                m_b, m_h, m_t, m_s, KIND, DROPS, ROUNDS,
            )  # fmt: skip
            grad_q_TK += more_TK
            if T_REST:
                more_RK, more_k_SK, more_v_SK = _pair(
                    q_RK, grad_RK, sum_R, norm_R, k_SK, v_SK, rest_T, at_S, b, h, T, S, lengths, matrix, seed, scale,
                    p, m_b, m_h, m_t, m_s, KIND, DROPS, ROUNDS,
                )  # fmt: skip
                grad_q_RK += more_RK
                grad_k_SK += more_k_SK
                grad_v_SK += more_v_SK
            _stored(grad_k + (b * S * H + h) * K, grad_k_SK * scale, at_S, S, H * K, K, WIDTH)
            _stored(grad_v + (b * S * H + h) * K, grad_v_SK, at_S, S, H * K, K, WIDTH)
    _stored(grad_q + (b * T * H + h) * K, grad_q_TK * scale, at_T, T, H * K, K, WIDTH)
    if T_REST:
        _stored(grad_q + (b * T * H + h) * K, grad_q_RK * scale, rest_T, T, H * K, K, WIDTH)


def _divided(many: int) -> tuple[int, int]:
    """So many places as the first and the rest, powers of two that products can have: 65 are 64 and 16, not 128."""
    first = min(max(triton.next_power_of_2(many), LEAST), TILE)
    return first, max(triton.next_power_of_2(many - first), 16) if many > first else 0


def _sizes(q: Tensor, k: Tensor, causal: bool, lengths_B: Tensor | None, matrix: Tensor | None, p: float) -> Any:
    """The constants of both kernels, and the strides of the matrix."""
    (_, heads, queries, width), keys = q.shape, k.shape[2]
    (first_T, rest_T), (first_S, rest_S) = _divided(queries), _divided(keys)
    kind = 1 if causal else 2 if lengths_B is not None else 3 if matrix is not None else 0
    strides = (0, 0, 0, 0) if matrix is None else matrix.stride()
    return strides, {
        "H": heads, "K": width, "TS": first_T, "T_REST": rest_T, "SS": first_S, "S_REST": rest_S,
        "WIDTH": triton.next_power_of_2(width), "KIND": kind, "DROPS": p > 0, "ROUNDS": ROUNDS,
        "num_warps": 4 if max(first_T, first_S) > 32 else 2,
    }  # fmt: skip


def _rows(x: Tensor) -> Tensor:
    """Whose last axis is contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


@torch.library.custom_op("headway::attend_short", mutates_args=())
def _attend(
    q: Tensor, k: Tensor, v: Tensor, lengths_B: Tensor | None, matrix: Tensor | None, seed: Tensor | None,
    causal: bool, scale: float, p: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mixed values (B, T, H, K), and what the backward needs of the sums (B, H, T)."""
    needs_triton("short attention", "the attention of torch")
    q, k, v = map(_rows, (q, k, v))
    rows, heads, queries, width = q.shape
    mixed, norm = q.new_empty(rows, queries, heads, width), q.new_empty(rows, heads, queries, dtype=torch.float32)
    strides, sizes = _sizes(q, k, causal, lengths_B, matrix, p)
    launch(
        _forward, (rows * heads,), q, k, v, mixed, norm, lengths_B, matrix, seed, scale, p, queries, k.shape[2],
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *strides, **sizes,
    )  # fmt: skip
    return mixed, norm


@torch.library.custom_op("headway::attend_short_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, norm: Tensor, lengths_B: Tensor | None,
    matrix: Tensor | None, seed: Tensor | None, causal: bool, scale: float, p: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v, each (B, T or S, H, K)."""
    q, k, v, grad = map(_rows, (q, k, v, grad.transpose(1, 2)))
    rows, heads, queries, width = q.shape
    grads = [x.new_empty(rows, x.shape[2], heads, width) for x in (q, k, v)]
    strides, sizes = _sizes(q, k, causal, lengths_B, matrix, p)
    launch(
        _backward, (rows * heads,), q, k, v, mixed, grad, *grads, norm, lengths_B, matrix, seed, scale, p, queries,
        k.shape[2], *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *grad.stride()[:3], *strides, **sizes,
    )  # fmt: skip
    return grads[0], grads[1], grads[2]


@_attend.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    rows, heads, queries, width = q.shape
    return q.new_empty(rows, queries, heads, width), q.new_empty(rows, heads, queries, dtype=torch.float32)


@_attend_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Parts:
    made = [x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]) for x in (q, k, v)]
    return made[0], made[1], made[2]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, lengths_B, matrix, seed, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, lengths_B, matrix, seed)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    grads = _attend_backward(grad, *ctx.saved_tensors, *ctx.rest)
    return *(part.transpose(1, 2) for part in grads), *(None,) * 6


_attend.register_autograd(_gradients, setup_context=_keep)


def attend_short(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, *, causal: bool = False, lengths_B: Tensor | None = None,
    seen_BHTS: Tensor | None = None, scale: float | None = None, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """`attend` for what `takes` accepts, (B, H, T, K) with the heads of a query side by side. What a query sees: with
    `causal` no key after its own place, or the first `lengths_B` of its row, or a matrix that broadcasts. Its gradient
    has no gradient of its own."""
    if scale is None:
        scale = q_BHTK.shape[-1] ** -0.5
    if seen_BHTS is not None:
        seen_BHTS = seen_BHTS.expand(*q_BHTK.shape[:3], k_BHSK.shape[2])
    seed = torch.randint(2**31 - 1, (1,), device=q_BHTK.device) if dropout else None
    lengths_B = None if lengths_B is None else lengths_B.contiguous()
    mixed_BTHK, _ = _attend(q_BHTK, k_BHSK, v_BHSK, lengths_B, seen_BHTS, seed, causal, scale, dropout)
    return mixed_BTHK.transpose(1, 2)
