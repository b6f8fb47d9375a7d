"""Choosing tokens in Triton kernels: two find the best continuations of each row of logits (one reads the row once, the
other selects), one draws random numbers, one records the chosen tokens.

R rows, V vocabulary, N blocks of a row, G blocks at a time, B logits of a block, C continuations (k of them),
P parts of a row, L room for ids, A alternatives; of records, G steps and S numbers of a row.
The readable twins are `readable_continuations` in `headway.generate.top_k`, `uniforms` in `headway.generate.noise` and
`readable_note` in `headway.generate.samples`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headway.fast.jit import constexpr, jit, launch, needs_triton, tensor, tl, triton
from headway.fast.overlap import overlapped, take_turn

BLOCK = 64  # logits
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of splitmix64
# Blocks that a program reads at a time: as many as its warps can load at once.
TOGETHER = 32
PROGRAMS = 256  # that fill a GPU: fewer rows are read in several parts each
ROWS = 128  # whose random numbers one program draws


@jit
def _summarise(
    logits: tensor, sums: tensor, maxima: tensor, stride: tensor, V: constexpr, G: constexpr, B: constexpr,
    P: constexpr, OVERLAP: constexpr
) -> None:  # fmt: skip
    """logsumexp of one of P parts of a row and the maximum of each of its blocks, G blocks at a time.

    Each of the G has a running maximum and sum of its own; they meet at the end. V is a constant of the compilation,
    as in the loss kernels. Masked elements hold −10³⁰, not −∞: exp makes it 0 as well, and differences of two masked
    elements are no NaN.
    """
    take_turn(OVERLAP)
    r, p = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, top = logits + r * stride, maxima + r * ((V + B - 1) // B)
    high_G, sum_G = tl.full([G], -1.0e30, tl.float32), tl.zeros([G], tl.float32)
    for first in range(p * G * B, V, P * G * B):
        at_GB = first + tl.arange(0, G)[:, None] * B + tl.arange(0, B)[None, :]
        z_GB = tl.where(at_GB < V, tl.load(row + at_GB, mask=at_GB < V, other=0.0).to(tl.float32), -1.0e30)
        most_G = tl.max(z_GB, 1)
        block_G = first // B + tl.arange(0, G)
        tl.store(top + block_G, most_G, mask=block_G * B < V)
        new_G = tl.maximum(high_G, most_G)
        sum_G = sum_G * tl.exp(high_G - new_G) + tl.sum(tl.exp(z_GB - new_G[:, None]), 1)
        high_G = new_G
    high = tl.max(high_G, 0)
    tl.store(sums + r * P + p, high + tl.log(tl.sum(sum_G * tl.exp(high_G - high), 0)))


@jit
def _total(sums: tensor, r: tensor, P: constexpr) -> tensor:
    """logsumexp of a row from those of its parts. A part may be empty (−∞), or all of them."""
    sum_P = tl.load(sums + r * P + tl.arange(0, P))
    high = tl.max(sum_P, 0)
    high = tl.where(high > -1.0e30, high, 0.0)
    return high + tl.log(tl.sum(tl.exp(sum_P - high), 0))


@jit
def _pick(
    logits: tensor, sums: tensor, maxima: tensor, values: tensor, ids: tensor, ends: tensor, stride: tensor,
    end: tensor, V: constexpr, C: constexpr, N: constexpr, B: constexpr, P: constexpr,
    OVERLAP: constexpr
) -> None:  # fmt: skip
    """The C largest of one row, the first of equal ones first: each is in the block with the largest maximum left.

    What has been taken of a block needs no list: it is all that comes before the newest in this order.
    """
    take_turn(OVERLAP)
    r = tl.program_id(0).to(tl.int64)
    row, total, n_N = logits + r * stride, _total(sums, r, P), tl.arange(0, N)
    tl.store(ends + r, tl.load(row + end).to(tl.float32) - total)
    most_N = tl.load(maxima + r * ((V + B - 1) // B) + n_N, mask=n_N * B < V, other=float("-inf"))
    value, token = tl.full([], float("inf"), tl.float32), tl.full([], -1, tl.int32)
    for c in range(C):
        block = tl.min(tl.where(most_N == tl.max(most_N, 0), n_N, N), 0)
        at_B = block * B + tl.arange(0, B)
        z_B = tl.load(row + at_B, mask=at_B < V, other=float("-inf")).to(tl.float32)
        left_B = (at_B < V) & ((z_B < value) | ((z_B == value) & (at_B > token)))
        z_B = tl.where(left_B, z_B, float("-inf"))
        value = tl.max(z_B, 0)
        # Where all are −∞ or NaN the last token is taken.
        token = tl.min(tl.where(left_B & (z_B == value), at_B, V - 1), 0)
        tl.store(values + r * C + c, value - total)
        tl.store(ids + r * C + c, token)
        rest = tl.max(tl.where(at_B == token, float("-inf"), z_B), 0)
        most_N = tl.where(n_N == block, rest, most_N)


def continuations(logits_RV: Tensor, k: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
    """log softmax(logits): its k largest of each row, best first, their ids, and its column `end`, in float32."""
    needs_triton("search", "readable_continuations of headway.generate.top_k")
    rows, width = logits_RV.shape
    logits_RV = logits_RV if logits_RV.stride(1) == 1 else logits_RV.contiguous()
    blocks = triton.cdiv(width, BLOCK)
    parts = min(triton.next_power_of_2(triton.cdiv(blocks, TOGETHER)), max(1, PROGRAMS // max(1, rows)))
    parts = 1 << (parts.bit_length() - 1)
    sums_RP, ends_R, maxima_RN, values_RC = (
        torch.empty(shape, dtype=torch.float32, device=logits_RV.device)
        for shape in ((rows, parts), (rows,), (rows, blocks), (rows, k))
    )
    ids_RC = torch.empty(rows, k, dtype=torch.long, device=logits_RV.device)
    stride, padded = logits_RV.stride(0), triton.next_power_of_2(blocks)
    launch(
        _summarise, (rows, parts), logits_RV, sums_RP, maxima_RN, stride,
        V=width, G=TOGETHER, B=BLOCK, P=parts, num_warps=4, **overlapped(logits_RV),
    )  # fmt: skip
    launch(
        _pick, (rows,), logits_RV, sums_RP, maxima_RN, values_RC, ids_RC, ends_R, stride, end,
        V=width, C=k, N=padded, B=BLOCK, P=parts, num_warps=1 if padded <= 1024 else 4, **overlapped(logits_RV),
    )  # fmt: skip
    return values_RC, ids_RC, ends_R


@jit
def _mix(bits: tensor, FIRST: constexpr, SECOND: constexpr) -> tensor:
    """`mix` of `headway.generate.noise`: of numbers without a sign a shift fills with zeros."""
    bits = (bits ^ (bits >> 30)) * FIRST
    bits = (bits ^ (bits >> 27)) * SECOND
    return bits ^ (bits >> 31)


@jit
def _uniforms(
    streams: tensor, steps: tensor, values: tensor, R: tensor,
    GOLDEN: constexpr, FIRST: constexpr, SECOND: constexpr, SOME: constexpr, OVERLAP: constexpr
) -> None:  # fmt: skip
    take_turn(OVERLAP)
    r_R = tl.program_id(0) * SOME + tl.arange(0, SOME)
    stream_R = tl.load(streams + r_R, mask=r_R < R, other=0).to(tl.uint64)
    step_R = tl.load(steps + r_R, mask=r_R < R, other=0).to(tl.uint64)
    bits_R = _mix(stream_R + (step_R + 1) * GOLDEN, FIRST, SECOND)
    tl.store(values + r_R, (bits_R >> 11).to(tl.float64) * 1.1102230246251565e-16, mask=r_R < R)  # 2⁻⁵³


def uniforms(streams_R: Tensor, steps_R: Tensor) -> Tensor:
    """Number `step` of each row's sequence, in [0, 1), float64: bit for bit what `noise.uniforms` gives."""
    needs_triton("noise", "uniforms of headway.generate.noise")
    rows = len(streams_R)
    values_R = torch.empty(rows, dtype=torch.float64, device=streams_R.device)
    launch(
        _uniforms, (triton.cdiv(rows, ROWS),), streams_R.contiguous(), steps_R.contiguous(), values_R, rows,
        GOLDEN=GOLDEN, FIRST=FIRST, SECOND=SECOND, SOME=ROWS, num_warps=1, **overlapped(streams_R),
    )  # fmt: skip
    return values_R


@jit
def _note(
    logits: tensor, tokens: tensor, ids: tensor, values: tensor, texts: tensor, newest: tensor, lengths: tensor,
    records: tensor, turns: tensor, stride: tensor, L: tensor, R: tensor,
    A: constexpr, TOP: constexpr, PADDED: constexpr, CHOSEN: constexpr, OVERLAP: constexpr
) -> None:  # fmt: skip
    """One row, by one warp: no other program reads the counters that it advances."""
    take_turn(OVERLAP)
    r = tl.program_id(0).to(tl.int64)
    best, logp = tl.load(ids + r * A), tl.load(values + r * A)
    if CHOSEN:
        # log p(v) = z(v) − z(best) + log p(best)
        token, row = tl.load(tokens + r), logits + r * stride
        logp += tl.load(row + tl.maximum(token, 0)).to(tl.float32) - tl.load(row + best).to(tl.float32)
    else:
        token = tl.where(logp > float("-inf"), best, -1)  # NaN is not larger
    length, turn = tl.load(lengths + r), tl.load(turns + r)
    tl.store(texts + r * L + length, tl.maximum(token, 0))
    tl.store(newest + r, tl.maximum(token, 0))
    tl.store(lengths + r, tl.minimum(length + 1, L - 1))
    record = records + (turn * R + r) * (2 + 2 * TOP)
    tl.store(record, token.to(tl.float64))
    tl.store(record + 1, logp.to(tl.float64))
    if TOP:
        a_A = tl.arange(0, PADDED)
        tl.store(record + 2 + a_A, tl.load(ids + r * A + a_A, mask=a_A < TOP).to(tl.float64), mask=a_A < TOP)
        logp_A = tl.load(values + r * A + a_A, mask=a_A < TOP)
        tl.store(record + 2 + TOP + a_A, logp_A.to(tl.float64), mask=a_A < TOP)
    tl.store(turns + r, turn + 1)


def note(
    logits_RV: Tensor, tokens_R: Tensor | None, ids_RA: Tensor, logps_RA: Tensor, texts_RL: Tensor, newest_R: Tensor,
    lengths_R: Tensor, records_GRS: Tensor, turns_R: Tensor,
) -> None:  # fmt: skip
    """Write a token of each row (None: its likeliest) after its text, and into its next record the token, log p of it
    and the likeliest ids with theirs, all in place."""
    needs_triton("choice", "readable_note of headway.generate.samples")
    rows, room = texts_RL.shape
    top = records_GRS.shape[2] // 2 - 1
    logits_RV = logits_RV if logits_RV.stride(1) == 1 else logits_RV.contiguous()
    launch(
        _note, (rows,), logits_RV, ids_RA if tokens_R is None else tokens_R.contiguous(), ids_RA, logps_RA, texts_RL,
        newest_R, lengths_R, records_GRS, turns_R, logits_RV.stride(0), room, rows, A=ids_RA.shape[1], TOP=top,
        PADDED=triton.next_power_of_2(max(1, top)), CHOSEN=tokens_R is not None, num_warps=1, **overlapped(logits_RV),
    )  # fmt: skip
