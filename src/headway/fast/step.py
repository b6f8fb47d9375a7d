"""The parts of a decoding step around the blocks, as one Triton kernel each: token vectors before, lengths and the new
order of a beam after.

A step of few rows is a chain of short kernels, whose launches take longer than their work. The readable
twins are `TokenEmbedding.readable` in `headway.nn.embedding`, `readable_advance` and `readable_pick`.

R rows, D width (some columns of it inside a kernel), C positions of a cache, H heads, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headway.fast.jit import available, constexpr, jit, launch, needs_triton, tensor, tl, triton
from headway.fast.overlap import overlapped, take_turn

COLUMNS = 1024  # of a row that a program embeds
ROWS = 128  # whose lengths a program advances
TILE = 4096  # numbers of a cache that a program copies at a time


@jit
def _embed(
    ids: tensor, places: tensor, table: tensor, positions: tensor, x: tensor, scale: tensor,
    D: constexpr, PLACED: constexpr, SOME: constexpr, OVERLAP: constexpr
) -> None:  # fmt: skip
    """Some columns of one row. The scaled vector is rounded before the position is added, as in the twin."""
    take_turn(OVERLAP)
    r = tl.program_id(0).to(tl.int64)
    d_D = tl.program_id(1) * SOME + tl.arange(0, SOME)
    x_D = tl.load(table + tl.load(ids + r) * D + d_D, mask=d_D < D, other=0.0)
    x_D = (x_D.to(tl.float32) * scale).to(x_D.dtype)
    if PLACED:
        place_D = tl.load(positions + tl.load(places + r) * D + d_D, mask=d_D < D, other=0.0)
        x_D = x_D.to(tl.float32) + place_D.to(tl.float32)
    tl.store(x + r * D + d_D, x_D, mask=d_D < D)


def takes(table_VD: Tensor, positions_PD: Tensor | None) -> bool:
    """Whether `embed` supports these."""
    # A compiler fuses these itself.
    if not available(table_VD) or torch.compiler.is_compiling() or not table_VD.is_contiguous():
        return False
    return positions_PD is None or (positions_PD.dtype == table_VD.dtype and positions_PD.is_contiguous())


def embed(
    ids_R: Tensor, places_R: Tensor, table_VD: Tensor, positions_PD: Tensor | None, scale: float
) -> Tensor:  # fmt: skip
    """scale · E[ids] + P[places], for what `takes` accepts. It has no backward."""
    needs_triton("embedding", "TokenEmbedding.readable of headway.nn.embedding")
    rows, width = len(ids_R), table_VD.shape[1]
    x_RD = table_VD.new_empty(rows, width)
    some = min(COLUMNS, triton.next_power_of_2(width))
    launch(
        _embed, (rows, triton.cdiv(width, some)), ids_R.contiguous(), places_R.contiguous(), table_VD,
        table_VD if positions_PD is None else positions_PD, x_RD, float(scale),
        D=width, PLACED=positions_PD is not None, SOME=some, num_warps=4, **overlapped(table_VD),
    )  # fmt: skip
    return x_RD


@jit
def _advance(
    lengths: tensor, steps: tensor, longest: tensor, R: tensor, SOME: constexpr, OVERLAP: constexpr
) -> None:  # fmt: skip
    take_turn(OVERLAP)
    r_R = tl.program_id(0) * SOME + tl.arange(0, SOME)
    length_R = tl.load(lengths + r_R, mask=r_R < R, other=0)
    tl.store(lengths + r_R, tl.minimum(length_R + steps, longest), mask=r_R < R)


def advance(lengths_R: Tensor, steps: int, longest: int) -> None:
    """lengths + steps, at most `longest`, in place. `attend_step` reads lengths before it waits for earlier kernels:
    in a graph that has it, lengths may be advanced once, after the last layer."""
    if triton is None or not lengths_R.is_cuda or torch.compiler.is_compiling():
        readable_advance(lengths_R, steps, longest)
    else:
        launch_advance(lengths_R, steps, longest)


def readable_advance(lengths_R: Tensor, steps: int, longest: int) -> None:
    lengths_R.add_(steps).clamp_(max=longest)


def launch_advance(lengths_R: Tensor, steps: int, longest: int) -> None:
    rows, options = len(lengths_R), overlapped(lengths_R)
    launch(_advance, (triton.cdiv(rows, ROWS),), lengths_R, steps, longest, rows, SOME=ROWS, num_warps=1, **options)


@jit
def _pick(
    old: tensor, rows: tensor, new: tensor, C: tensor,
    old_v: tensor, old_c: tensor, old_r: tensor, new_v: tensor, new_c: tensor, new_r: tensor,
    D: constexpr, SOME: constexpr, PLACES: constexpr
) -> None:  # fmt: skip
    """Some columns of one row's keys, or of its values."""
    r, v = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    d_1D = tl.program_id(2) * SOME + tl.arange(0, SOME)[None, :]
    old_1D, new_1D = old + v * old_v + tl.load(rows + r) * old_r + d_1D, new + v * new_v + r * new_r + d_1D
    for first in range(0, C, PLACES):
        c_C1 = (first + tl.arange(0, PLACES)[:, None]).to(tl.int64)
        inside_CD = (c_C1 < C) & (d_1D < D)
        tl.store(new_1D + c_C1 * new_c, tl.load(old_1D + c_C1 * old_c, mask=inside_CD), mask=inside_CD)


def pick_rows(kv_2CRHK: Tensor, rows_R: Tensor, new_2CRHK: Tensor) -> None:
    """Row r of the new cache becomes row rows_R[r] of the old one, at all positions."""
    inner = kv_2CRHK.shape[4], 1
    packed = kv_2CRHK.stride()[3:] == inner and new_2CRHK.stride()[3:] == inner
    if not (packed and available(kv_2CRHK)) or torch.compiler.is_compiling():
        readable_pick(kv_2CRHK, rows_R, new_2CRHK)
    else:
        launch_pick(kv_2CRHK, rows_R, new_2CRHK)


def readable_pick(kv_2CRHK: Tensor, rows_R: Tensor, new_2CRHK: Tensor) -> None:
    for new_CRHK, part_CRHK in zip(new_2CRHK, kv_2CRHK, strict=True):
        torch.index_select(part_CRHK, 1, rows_R, out=new_CRHK)


def launch_pick(kv_2CRHK: Tensor, rows_R: Tensor, new_2CRHK: Tensor) -> None:
    """torch's own kernel copies number by number and reads an index of 8 bytes for each."""
    _, places, rows, heads, head_width = new_2CRHK.shape
    width = heads * head_width
    some = min(COLUMNS, triton.next_power_of_2(width))
    launch(
        _pick, (rows, 2, triton.cdiv(width, some)), kv_2CRHK, rows_R.contiguous(), new_2CRHK, places,
        *kv_2CRHK.stride()[:3], *new_2CRHK.stride()[:3], D=width, SOME=some, PLACES=TILE // some, num_warps=4,
    )  # fmt: skip
