"""Attention of few queries to the first n keys of their row, as Triton kernels for decoding.

A program reads no key beyond n, and each key and value once for all queries of its row. Sums are in float32.
The readable twin is `attend` in `headway.nn.attention`; that of `attend_step` is `SelfAttention.mixed`.

B rows, T queries, S keys (a tile of them inside a kernel), H heads, K head width, C capacity of a cache.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from headway.fast.jit import available, constexpr, jit, launch, needs_triton, tensor, tl, triton
from headway.fast.overlap import let_next_begin, overlapped, wait_for_last

MOST_QUERIES = 16
WIDEST = 128
MOST_HEADS = 64
FEW_PROGRAMS = 512  # up to so many do not fill a GPU: each then reads more keys at a time
MANY_KEYS = 512  # with as many, each tile of them has a program
# Keys times head width that a program of one query holds at a time.
TILE = 2048


def takes(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> bool:
    """Whether `attend_prefix` supports these."""
    if not available(q_BHTK):  # checked first: sizes that are free in an exported graph stay free
        return False
    _, heads, queries, head_width = q_BHTK.shape
    small = queries <= MOST_QUERIES and head_width <= WIDEST and heads <= MOST_HEADS
    return small and q_BHTK.dtype == k_BHSK.dtype == v_BHSK.dtype


# Strides come as (row, head, query or key, width). Masked scores hold −10³⁰, not −∞: differences of two are no NaN.


@jit
def _one_query(
    q: tensor, k: tensor, v: tensor, mixed: tensor, prefix: tensor, scale: tensor, S: tensor,
    q_b: tensor, q_h: tensor, q_k: tensor,
    k_b: tensor, k_h: tensor, k_s: tensor, k_k: tensor,
    v_b: tensor, v_h: tensor, v_s: tensor, v_k: tensor,
    H: constexpr, K: constexpr, KEYS: constexpr, HEADS: constexpr, WIDTH: constexpr
) -> None:  # fmt: skip
    """Some heads of one row, KEYS keys at a time: in a cache, the heads of one position are adjacent.

    Each of the KEYS columns has a running maximum and sums of its own, which are combined once, at the end. A tile has
    its heads first: Triton then gives neighbouring threads neighbouring heads.
    """
    b = tl.program_id(0).to(tl.int64)
    n = tl.minimum(tl.load(prefix + b).to(tl.int32), S)
    h_H11 = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None, None]
    k_11K = tl.arange(0, WIDTH)[None, None, :]
    inside_H1K = (h_H11 < H) & (k_11K < K)
    q_H1K = tl.load(q + b * q_b + h_H11 * q_h + k_11K * q_k, mask=inside_H1K, other=0.0).to(tl.float32) * scale
    keys_H1K = k + b * k_b + h_H11 * k_h + k_11K * k_k
    values_H1K = v + b * v_b + h_H11 * v_h + k_11K * v_k
    high_HS = tl.full([HEADS, KEYS], -1.0e30, tl.float32)
    sum_HS = tl.zeros([HEADS, KEYS], tl.float32)
    mixed_HSK = tl.zeros([HEADS, KEYS, WIDTH], tl.float32)
    for first in range(0, n, KEYS):
        at_S = first + tl.arange(0, KEYS)
        at_1S1 = at_S[None, :, None].to(tl.int64)
        mask_HSK = (at_1S1 < n) & inside_H1K
        k_HSK = tl.load(keys_H1K + at_1S1 * k_s, mask=mask_HSK, other=0.0).to(tl.float32)
        v_HSK = tl.load(values_H1K + at_1S1 * v_s, mask=mask_HSK, other=0.0).to(tl.float32)
        score_HS = tl.where(at_S[None, :] < n, tl.sum(q_H1K * k_HSK, 2), -1.0e30)
        new_HS = tl.maximum(high_HS, score_HS)
        old_HS = tl.exp(high_HS - new_HS)
        share_HS = tl.where(at_S[None, :] < n, tl.exp(score_HS - new_HS), 0.0)
        sum_HS = sum_HS * old_HS + share_HS
        mixed_HSK = mixed_HSK * old_HS[:, :, None] + share_HS[:, :, None] * v_HSK
        high_HS = new_HS
    share_HS = tl.exp(high_HS - tl.max(high_HS, 1)[:, None])
    sum_H = tl.sum(sum_HS * share_HS, 1)
    mixed_HK = tl.sum(mixed_HSK * share_HS[:, :, None], 1) / tl.where(sum_H > 0, sum_H, 1.0)[:, None]
    h_H1 = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    k_1K = tl.arange(0, WIDTH)[None, :]
    tl.store(mixed + b * (H * K) + h_H1 * K + k_1K, mixed_HK, mask=(h_H1 < H) & (k_1K < K))


@jit
def _part_of_keys(
    q: tensor, k: tensor, v: tensor, parts: tensor, highs: tensor, sums: tensor, prefix: tensor, scale: tensor,
    S: tensor, q_b: tensor, q_h: tensor, q_k: tensor,
    k_b: tensor, k_h: tensor, k_s: tensor, k_k: tensor,
    v_b: tensor, v_h: tensor, v_s: tensor, v_k: tensor,
    H: constexpr, K: constexpr, KEYS: constexpr, PARTS: constexpr, WIDTH: constexpr
) -> None:  # fmt: skip
    """One query of one row and head over one of PARTS tiles of its keys: the greatest score, and the sums beside it."""
    b, h, p = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    n = tl.minimum(tl.load(prefix + b).to(tl.int32), S)
    at_S, k_K = p * KEYS + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    inside_SK = (at_S < n)[:, None] & (k_K < K)[None, :]
    at_S1, k_1K = at_S[:, None].to(tl.int64), k_K[None, :]
    k_SK = tl.load(k + b * k_b + h * k_h + at_S1 * k_s + k_1K * k_k, mask=inside_SK, other=0.0).to(tl.float32)
    v_SK = tl.load(v + b * v_b + h * v_h + at_S1 * v_s + k_1K * v_k, mask=inside_SK, other=0.0).to(tl.float32)
    q_K = tl.load(q + b * q_b + h * q_h + k_K * q_k, mask=k_K < K, other=0.0).to(tl.float32) * scale
    score_S = tl.where(at_S < n, tl.sum(q_K[None, :] * k_SK, 1), -1.0e30)
    high = tl.max(score_S, 0)
    share_S = tl.where(at_S < n, tl.exp(score_S - high), 0.0)
    place = (b * H + h) * PARTS + p
    tl.store(highs + place, high)
    tl.store(sums + place, tl.sum(share_S, 0))
    tl.store(parts + place * K + k_K, tl.sum(share_S[:, None] * v_SK, 0), mask=k_K < K)


@jit
def _joined_parts(
    parts: tensor, highs: tensor, sums: tensor, mixed: tensor,
    H: constexpr, K: constexpr, PARTS: constexpr, MOST: constexpr, WIDTH: constexpr
) -> None:  # fmt: skip
    """What `_part_of_keys` found in the tiles of one row and head, as one softmax."""
    place = tl.program_id(0).to(tl.int64) * H + tl.program_id(1)
    p_P, k_K = tl.arange(0, MOST), tl.arange(0, WIDTH)
    high_P = tl.load(highs + place * PARTS + p_P, mask=p_P < PARTS, other=-1.0e30)
    sum_P = tl.load(sums + place * PARTS + p_P, mask=p_P < PARTS, other=0.0)
    inside_PK = (p_P < PARTS)[:, None] & (k_K < K)[None, :]
    part_PK = tl.load(parts + (place * PARTS + p_P[:, None]) * K + k_K[None, :], mask=inside_PK, other=0.0)
    share_P = tl.exp(high_P - tl.max(high_P, 0))
    total = tl.sum(share_P * sum_P, 0)
    mixed_K = tl.sum(share_P[:, None] * part_PK, 0) / tl.where(total > 0, total, 1.0)
    tl.store(mixed + place * K + k_K, mixed_K, mask=k_K < K)


@jit
def _some_queries(
    q: tensor, k: tensor, v: tensor, mixed: tensor, prefix: tensor, scale: tensor, S: tensor, T: tensor,
    q_b: tensor, q_h: tensor, q_t: tensor, q_k: tensor,
    k_b: tensor, k_h: tensor, k_s: tensor, k_k: tensor,
    v_b: tensor, v_h: tensor, v_s: tensor, v_k: tensor,
    H: constexpr, K: constexpr, KEYS: constexpr, QUERIES: constexpr, WIDTH: constexpr
) -> None:  # fmt: skip
    """All queries of one row and head, KEYS keys at a time, as products of matrices."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = tl.minimum(tl.load(prefix + b).to(tl.int32), S)
    t_T1, k_1K = tl.arange(0, QUERIES)[:, None], tl.arange(0, WIDTH)[None, :]
    mask_TK = (t_T1 < T) & (k_1K < K)
    q_TK = tl.load(q + b * q_b + h * q_h + t_T1 * q_t + k_1K * q_k, mask=mask_TK, other=0.0)
    keys_1K, values_1K = k + b * k_b + h * k_h + k_1K * k_k, v + b * v_b + h * v_h + k_1K * v_k
    high_T, sum_T = tl.full([QUERIES], -1.0e30, tl.float32), tl.zeros([QUERIES], tl.float32)
    mixed_TK = tl.zeros([QUERIES, WIDTH], tl.float32)
    for first in range(0, n, KEYS):
        at_S = first + tl.arange(0, KEYS)
        at_S1 = at_S[:, None].to(tl.int64)
        mask_SK = (at_S1 < n) & (k_1K < K)
        k_SK = tl.load(keys_1K + at_S1 * k_s, mask=mask_SK, other=0.0)
        v_SK = tl.load(values_1K + at_S1 * v_s, mask=mask_SK, other=0.0)
        score_TS = tl.dot(q_TK, tl.trans(k_SK), input_precision="ieee") * scale
        score_TS = tl.where(at_S[None, :] < n, score_TS, -1.0e30)
        new_T = tl.maximum(high_T, tl.max(score_TS, 1))
        old_T = tl.exp(high_T - new_T)
        share_TS = tl.where(at_S[None, :] < n, tl.exp(score_TS - new_T[:, None]), 0.0)
        sum_T = sum_T * old_T + tl.sum(share_TS, 1)
        mixed_TK = mixed_TK * old_T[:, None] + tl.dot(share_TS.to(v_SK.dtype), v_SK, input_precision="ieee")
        high_T = new_T
    mixed_TK = mixed_TK / tl.where(sum_T > 0, sum_T, 1.0)[:, None]
    tl.store(mixed + ((b * T + t_T1) * H + h) * K + k_1K, mixed_TK, mask=mask_TK)


@jit
def _step(
    qkv: tensor, cache: tensor, mixed: tensor, lengths: tensor, scale: tensor, last: tensor,
    cache_v: tensor, cache_c: tensor, cache_b: tensor, cache_h: tensor,
    H: constexpr, K: constexpr, KEYS: constexpr, WIDTH: constexpr, OVERLAP: constexpr
) -> None:  # fmt: skip
    """The newest token of one row, one head: its key and value are added to the cache, its query attends to all.

    The new key is read from registers, so that no program waits for another's write. Sums as in `_one_query`. Earlier
    keys and values, and their number, were written in earlier steps: they are loaded one tile ahead, the first before
    the new token is computed.
    """
    if OVERLAP:
        let_next_begin()
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = tl.minimum(tl.load(lengths + b).to(tl.int32), last)
    k_K = tl.arange(0, WIDTH)
    keys = cache + b * cache_b + h * cache_h + k_K
    first_S = tl.arange(0, KEYS)
    inside_SK = (first_S < n)[:, None] & (k_K < K)[None, :]
    keys_SK = keys[None, :] + first_S[:, None].to(tl.int64) * cache_c
    k_SK = tl.load(keys_SK, mask=inside_SK, other=0.0)
    v_SK = tl.load(keys_SK + cache_v, mask=inside_SK, other=0.0)
    if OVERLAP:
        wait_for_last()
    mine = qkv + b * (3 * H * K) + h * K + k_K
    q_K = tl.load(mine, mask=k_K < K, other=0.0).to(tl.float32) * scale
    newest_k_K = tl.load(mine + H * K, mask=k_K < K, other=0.0)
    newest_v_K = tl.load(mine + 2 * H * K, mask=k_K < K, other=0.0)
    tl.store(keys + n.to(tl.int64) * cache_c, newest_k_K, mask=k_K < K)
    tl.store(keys + cache_v + n.to(tl.int64) * cache_c, newest_v_K, mask=k_K < K)
    high_S, sum_S = tl.full([KEYS], -1.0e30, tl.float32), tl.zeros([KEYS], tl.float32)
    mixed_SK = tl.zeros([KEYS, WIDTH], tl.float32)
    for first in range(0, n, KEYS):
        at_S = first + first_S
        keys_SK += KEYS * cache_c
        ahead_SK = (at_S + KEYS < n)[:, None] & (k_K < K)[None, :]
        ahead_k_SK = tl.load(keys_SK, mask=ahead_SK, other=0.0)
        ahead_v_SK = tl.load(keys_SK + cache_v, mask=ahead_SK, other=0.0)
        score_S = tl.where(at_S < n, tl.sum(q_K[None, :] * k_SK.to(tl.float32), 1), -1.0e30)
        new_S = tl.maximum(high_S, score_S)
        old_S = tl.exp(high_S - new_S)
        share_S = tl.where(at_S < n, tl.exp(score_S - new_S), 0.0)
        sum_S = sum_S * old_S + share_S
        mixed_SK = mixed_SK * old_S[:, None] + share_S[:, None] * v_SK.to(tl.float32)
        high_S = new_S
        k_SK, v_SK = ahead_k_SK, ahead_v_SK
    score = tl.sum(q_K * newest_k_K.to(tl.float32), 0)
    high = tl.maximum(tl.max(high_S, 0), score)
    share_S, share = tl.exp(high_S - high), tl.exp(score - high)
    mixed_K = tl.sum(mixed_SK * share_S[:, None], 0) + share * newest_v_K.to(tl.float32)
    mixed_K = mixed_K / (tl.sum(sum_S * share_S, 0) + share)
    tl.store(mixed + b * (H * K) + h * K + k_K, mixed_K, mask=k_K < K)


@torch.library.custom_op("headway::attend_step", mutates_args=("kv_2CBHK",))
def attend_step(qkv_BD: Tensor, kv_2CBHK: Tensor, lengths_B: Tensor) -> Tensor:
    """softmax(QKᵀ/√K)V for one new token of each row, for what `takes_step` accepts: the concatenated heads.

    Row b has lengths_B[b] keys and values in the cache; the new ones are written after them (at the last place where
    a row is full). It has no backward.
    """
    needs_triton("attention", "attend of headway.nn.attention")
    _, capacity, rows, heads, head_width = kv_2CBHK.shape
    mixed_BD = qkv_BD.new_empty(rows, heads * head_width)
    width = max(16, triton.next_power_of_2(head_width))
    tile, warps = (4 * TILE, 8) if rows * heads <= FEW_PROGRAMS else (TILE, 4)
    cache_v, cache_c, cache_b, cache_h, _ = kv_2CBHK.stride()
    launch(
        _step, (rows, heads),
        qkv_BD.contiguous(), kv_2CBHK, mixed_BD, lengths_B.contiguous(), 1.0 / math.sqrt(head_width), capacity - 1,
        cache_v, cache_c, cache_b, cache_h, H=heads, K=head_width, KEYS=tile // width, WIDTH=width,
        num_warps=warps, **overlapped(qkv_BD),
    )  # fmt: skip
    return mixed_BD


@attend_step.register_fake
def _(qkv_BD: Tensor, kv_2CBHK: Tensor, lengths_B: Tensor) -> Tensor:
    _, _, rows, heads, head_width = kv_2CBHK.shape
    return qkv_BD.new_empty(rows, heads * head_width)


def takes_step(qkv_BD: Tensor, kv_2CBHK: Tensor) -> bool:
    """Whether `attend_step` supports these."""
    heads, head_width = kv_2CBHK.shape[3:]
    fits = head_width <= WIDEST and qkv_BD.shape[1] == 3 * heads * head_width and kv_2CBHK.stride(4) == 1
    return fits and available(qkv_BD) and qkv_BD.dtype == kv_2CBHK.dtype


def _split(common: tuple[Any, ...], strides: tuple[int, ...], width: int) -> None:
    """One query of each row over many keys: a program for each tile of them, and one that joins the tiles of a head."""
    q_BHTK, k_BHSK, v_BHSK, mixed_BTHK, prefix_B, scale, keys = common
    rows, heads, _, head_width = q_BHTK.shape
    tile = 4 * TILE // width
    count = triton.cdiv(keys, tile)
    parts = torch.empty(rows, heads, count, head_width + 2, dtype=torch.float32, device=q_BHTK.device).flatten()
    whole = rows * heads * count
    mixed, highs, sums = parts.split([whole * head_width, whole, whole])
    launch(
        _part_of_keys, (rows, heads, count), q_BHTK, k_BHSK, v_BHSK, mixed, highs, sums, prefix_B, scale, keys,
        *strides, H=heads, K=head_width, KEYS=tile, PARTS=count, WIDTH=width, num_warps=4,
    )  # fmt: skip
    launch(
        _joined_parts, (rows, heads), mixed, highs, sums, mixed_BTHK,
        H=heads, K=head_width, PARTS=count, MOST=triton.next_power_of_2(count), WIDTH=width, num_warps=4,
    )  # fmt: skip


@torch.library.custom_op("headway::attend_prefix", mutates_args=())
def _attend_prefix(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, prefix_B: Tensor) -> Tensor:
    """The result is (B, T, H, K), the order of the output projection."""
    needs_triton("attention", "attend of headway.nn.attention")
    rows, heads, queries, head_width = q_BHTK.shape
    mixed_BTHK = q_BHTK.new_empty(rows, queries, heads, head_width)
    if not mixed_BTHK.numel():
        return mixed_BTHK
    # A tile's sides are powers of two; tensor cores need at least 16.
    width = max(16, triton.next_power_of_2(head_width))
    common = (q_BHTK, k_BHSK, v_BHSK, mixed_BTHK, prefix_B.contiguous(), 1.0 / math.sqrt(head_width), k_BHSK.shape[2])
    key_value_strides = (*k_BHSK.stride(), *v_BHSK.stride())
    if queries == 1:
        q_b, q_h, _, q_k = q_BHTK.stride()
        strides = (q_b, q_h, q_k, *key_value_strides)
        if k_BHSK.shape[2] >= MANY_KEYS and rows * heads <= FEW_PROGRAMS:
            _split(common, strides, width)
            return mixed_BTHK
        some = min(triton.next_power_of_2(heads), max(1, TILE // 8 // width))
        launch(
            _one_query, (rows, triton.cdiv(heads, some)), *common, *strides,
            H=heads, K=head_width, KEYS=TILE // (some * width), HEADS=some, WIDTH=width, num_warps=4,
        )  # fmt: skip
    else:
        launch(
            _some_queries, (rows, heads), *common, queries, *q_BHTK.stride(), *key_value_strides,
            H=heads, K=head_width, KEYS=32, QUERIES=MOST_QUERIES, WIDTH=width, num_warps=2, num_stages=1,
        )  # fmt: skip
    return mixed_BTHK


_attend_prefix.register_fake(lambda q_BHTK, *_: q_BHTK.new_empty(q_BHTK.transpose(1, 2).shape))


def attend_prefix(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, prefix_B: Tensor) -> Tensor:
    """softmax(QKᵀ/√K)V over the first prefix_B[b] keys of row b, for what `takes` accepts; 0 where there are none.

    It has no backward.
    """
    return _attend_prefix(q_BHTK, k_BHSK, v_BHSK, prefix_B).transpose(1, 2)
