"""f(norm(x)Wᵀ + b) + residual as one Triton kernel, for the few rows of a step: each program computes some outputs.

The time of a step of few rows is that of reading the weights once: every multiprocessor needs loads under way, and
nothing may be launched twice. Sums are in float32. The readable twin is `readable_product` in
`headway.nn.product`.

R rows of x, D width, N outputs (a tile of them inside a kernel), K columns of W at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.fast.jit import available, constexpr, jit, launch, needs_triton, tensor, tl, triton
from headway.fast.overlap import let_next_begin, overlapped, wait_for_last

# With more rows torch's own product, on tensor cores, is faster.
MOST_ROWS = 16
WIDEST = 8192  # the widest row whose mean and variance one program computes
NARROW = 1024  # the widest of several rows that a program holds at once

Tiles = tuple[int, int, int]  # outputs of a program, columns of W that it loads at a time, warps
# By outputs and width, for the products of GPT's sizes: the fastest on an H200 (benchmarks/products.py).
MEASURED: dict[tuple[int, int], Tiles] = {
    (2304, 768): (2, 1024, 1), (768, 768): (2, 1024, 1), (3072, 768): (2, 1024, 1), (768, 3072): (2, 4096, 4),
    (50304, 768): (4, 512, 2), (4800, 1600): (8, 512, 2), (1600, 1600): (2, 2048, 4), (6400, 1600): (4, 1024, 4),
    (1600, 6400): (2, 2048, 4), (50304, 1600): (2, 1024, 4),
}  # fmt: skip

# Of several rows, to few and to many outputs: outputs of a program, columns of W, warps, stages; measured likewise.
SEVERAL, SEVERAL_TO_MANY = (16, 512, 4, 1), (32, 128, 2, 4)

ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "tanh": 3}


def takes(x_RD: Tensor, weight_ND: Tensor) -> bool:
    """Whether `product` supports these."""
    # A compiler fuses the product with more of what surrounds it.
    if not available(x_RD) or torch.compiler.is_compiling():
        return False
    rows, width = x_RD.shape
    small = rows <= MOST_ROWS and width <= WIDEST and weight_ND.is_contiguous()
    return small and x_RD.dtype == weight_ND.dtype


@jit
def _activated(y: tensor, KIND: constexpr) -> tensor:
    """relu, GELU x·Φ(x), or its approximation ½x(1 + tanh(√(2/π)(x + 0.044715x³))) (Hendrycks and Gimpel 2016);
    ½(1 + tanh u) is the logistic function of 2u."""
    if KIND == 1:
        y = tl.maximum(y, 0.0)
    if KIND == 2:
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    if KIND == 3:
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    return y


@jit
def _one_row(
    x: tensor, w: tensor, bias: tensor, gain: tensor, shift: tensor, residual: tensor, y: tensor, epsilon: tensor,
    N: constexpr, D: constexpr, KIND: constexpr, NORM: constexpr, SHIFT: constexpr, BIAS: constexpr,
    RESIDUAL: constexpr, OUTPUTS: constexpr, COLUMNS: constexpr, WIDTH: constexpr, OVERLAP: constexpr
) -> None:  # fmt: skip
    """Some outputs of the one row. Each column has a sum of its own; they are added once, at the end.

    What no earlier kernel computes is loaded before waiting for the earlier kernels: bias, gain and shift, and the
    first tile of W. Further tiles are loaded one ahead.
    """
    if OVERLAP:
        let_next_begin()
    n_N = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    inside_N1 = (n_N < N)[:, None]
    rows_N1 = w + n_N.to(tl.int64)[:, None] * D
    column_K = tl.arange(0, COLUMNS)
    k_K = column_K
    w_NK = tl.load(rows_N1 + k_K[None, :], mask=inside_N1 & (k_K < D)[None, :], other=0.0)
    if NORM:
        gain_K = tl.load(gain + k_K, mask=k_K < D, other=0.0)
        if SHIFT:
            shift_K = tl.load(shift + k_K, mask=k_K < D, other=0.0)
    if BIAS:
        bias_N = tl.load(bias + n_N, mask=n_N < N, other=0.0)
    if OVERLAP:
        wait_for_last()
    x_K = tl.load(x + k_K, mask=k_K < D, other=0.0)
    if RESIDUAL:
        residual_N = tl.load(residual + n_N, mask=n_N < N, other=0.0)
    if NORM:
        d_D = tl.arange(0, WIDTH)
        x_D = tl.load(x + d_D, mask=d_D < D, other=0.0).to(tl.float32)
        mean = tl.sum(x_D, 0) / D
        apart_D = tl.where(d_D < D, x_D - mean, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(apart_D * apart_D, 0) / D + epsilon)
    sum_NK = tl.zeros([OUTPUTS, COLUMNS], tl.float32)
    for following in range(COLUMNS, D + COLUMNS, COLUMNS):
        k_K = following + column_K
        ahead_NK = tl.load(rows_N1 + k_K[None, :], mask=inside_N1 & (k_K < D)[None, :], other=0.0)
        value_K = x_K.to(tl.float32)
        x_K = tl.load(x + k_K, mask=k_K < D, other=0.0)
        if NORM:
            value_K = (value_K - mean) * scale * gain_K.to(tl.float32)
            gain_K = tl.load(gain + k_K, mask=k_K < D, other=0.0)
            if SHIFT:
                value_K += shift_K.to(tl.float32)
                shift_K = tl.load(shift + k_K, mask=k_K < D, other=0.0)
        sum_NK += w_NK.to(tl.float32) * value_K[None, :]
        w_NK = ahead_NK
    y_N = tl.sum(sum_NK, 1)
    if BIAS:
        y_N += bias_N.to(tl.float32)
    y_N = _activated(y_N, KIND)
    if RESIDUAL:
        y_N += residual_N.to(tl.float32)
    tl.store(y + n_N, y_N, mask=n_N < N)


@jit
def _statistics(
    rows_R1: tensor, inside_R1: tensor, epsilon: tensor,
    D: constexpr, COLUMNS: constexpr, WIDTH: constexpr, ROWS: constexpr, ONCE: constexpr
) -> tuple[tensor, tensor]:  # fmt: skip
    """Mean and 1/deviation of each row. ONCE: all its numbers are loaded at once."""
    if ONCE:
        d_1D = tl.arange(0, WIDTH)[None, :]
        mask_RD = inside_R1 & (d_1D < D)
        x_RD = tl.load(rows_R1 + d_1D, mask=mask_RD, other=0.0).to(tl.float32)
        mean_R = tl.sum(x_RD, 1) / D
        apart_RD = tl.where(mask_RD, x_RD - mean_R[:, None], 0.0)
        square_R = tl.sum(apart_RD * apart_RD, 1)
    else:
        mean_R, square_R = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
        for first in range(0, D, COLUMNS):
            k_1K = first + tl.arange(0, COLUMNS)[None, :]
            mean_R += tl.sum(tl.load(rows_R1 + k_1K, mask=inside_R1 & (k_1K < D), other=0.0).to(tl.float32), 1)
        mean_R = mean_R / D
        for first in range(0, D, COLUMNS):
            k_1K = first + tl.arange(0, COLUMNS)[None, :]
            mask_RK = inside_R1 & (k_1K < D)
            x_RK = tl.load(rows_R1 + k_1K, mask=mask_RK, other=0.0).to(tl.float32)
            apart_RK = tl.where(mask_RK, x_RK - mean_R[:, None], 0.0)
            square_R += tl.sum(apart_RK * apart_RK, 1)
    return mean_R, 1.0 / tl.sqrt(square_R / D + epsilon)


@jit
def _some_rows(
    x: tensor, w: tensor, bias: tensor, gain: tensor, shift: tensor, residual: tensor, y: tensor, epsilon: tensor,
    R: tensor, N: constexpr, D: constexpr, KIND: constexpr, NORM: constexpr, SHIFT: constexpr, BIAS: constexpr,
    RESIDUAL: constexpr, OUTPUTS: constexpr, COLUMNS: constexpr, ROWS: constexpr, WIDTH: constexpr, ONCE: constexpr,
    OVERLAP: constexpr
) -> None:  # fmt: skip
    """Some outputs of all rows, as products of matrices. Bias and the first tile of W are loaded before waiting for the
    earlier kernels; further tiles are loaded one ahead."""
    if OVERLAP:
        let_next_begin()
    n_N, r_R, column_K = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS), tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    rows_R1, rows_N1 = x + r_R[:, None] * D, w + n_N.to(tl.int64)[:, None] * D
    inside_R1, inside_N1 = (r_R < R)[:, None], (n_N < N)[:, None]
    w_NK = tl.load(rows_N1 + column_K[None, :], mask=inside_N1 & (column_K < D)[None, :], other=0.0)
    if BIAS:
        bias_N = tl.load(bias + n_N, mask=n_N < N, other=0.0)
    if OVERLAP:
        wait_for_last()
    if NORM:
        mean_R, scale_R = _statistics(rows_R1, inside_R1, epsilon, D, COLUMNS, WIDTH, ROWS, ONCE)
    sum_RN = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for first in range(0, D, COLUMNS):
        k_K = first + column_K
        next_K = k_K + COLUMNS
        ahead_NK = tl.load(rows_N1 + next_K[None, :], mask=inside_N1 & (next_K < D)[None, :], other=0.0)
        x_RK = tl.load(rows_R1 + k_K[None, :], mask=inside_R1 & (k_K < D)[None, :], other=0.0)
        if NORM:
            wide_RK = (x_RK.to(tl.float32) - mean_R[:, None]) * scale_R[:, None]
            wide_RK = wide_RK * tl.load(gain + k_K, mask=k_K < D, other=0.0).to(tl.float32)[None, :]
            if SHIFT:
                wide_RK += tl.load(shift + k_K, mask=k_K < D, other=0.0).to(tl.float32)[None, :]
            x_RK = wide_RK.to(x_RK.dtype)
        sum_RN += tl.dot(x_RK, tl.trans(w_NK), input_precision="ieee")
        w_NK = ahead_NK
    if BIAS:
        sum_RN += bias_N.to(tl.float32)[None, :]
    sum_RN = _activated(sum_RN, KIND)
    at_RN, mask_RN = r_R[:, None] * N + n_N[None, :], (r_R < R)[:, None] & (n_N < N)[None, :]
    if RESIDUAL:
        sum_RN += tl.load(residual + at_RN, mask=mask_RN, other=0.0).to(tl.float32)
    tl.store(y + at_RN, sum_RN, mask=mask_RN)


def tiles(outputs: int, width: int) -> Tiles:
    """The tiles of a product of one row: as measured, or nearly the best for most sizes."""
    return MEASURED.get((outputs, width), (4, min(2048, 1 << (width - 1).bit_length()), 4))


@torch.library.custom_op("headway::product", mutates_args=())
def _product(
    x_RD: Tensor, weight_ND: Tensor, bias_N: Tensor | None, gain_D: Tensor | None, shift_D: Tensor | None,
    residual_RN: Tensor | None, epsilon: float, activation: str,
) -> Tensor:  # fmt: skip
    needs_triton("product", "readable_product of headway.nn.product")
    rows, width = x_RD.shape
    outputs = len(weight_ND)
    y_RN = x_RD.new_empty(rows, outputs)
    if not rows:
        return y_RN
    x_RD = x_RD.contiguous()
    residual_RN = None if residual_RN is None else residual_RN.contiguous()
    nothing = weight_ND  # a placeholder: the kernel does not read what is missing
    given = (bias_N, gain_D, shift_D, residual_RN)
    places = [nothing if part is None else part for part in given]
    settings = {
        "N": outputs, "D": width, "KIND": ACTIVATIONS[activation], "NORM": gain_D is not None,
        "SHIFT": shift_D is not None, "BIAS": bias_N is not None, "RESIDUAL": residual_RN is not None,
    }  # fmt: skip
    if rows == 1:
        some, columns, warps = tiles(outputs, width)
        launch(
            _one_row, (triton.cdiv(outputs, some),), x_RD, weight_ND, *places, y_RN, epsilon, **settings,
            OUTPUTS=some, COLUMNS=columns, WIDTH=triton.next_power_of_2(width), num_warps=warps, **overlapped(x_RD),
        )  # fmt: skip
    else:
        some, columns, warps, stages = SEVERAL if outputs <= 4096 else SEVERAL_TO_MANY
        launch(
            _some_rows, (triton.cdiv(outputs, some),), x_RD, weight_ND, *places, y_RN, epsilon, rows, **settings,
            OUTPUTS=some, COLUMNS=columns, ROWS=MOST_ROWS, WIDTH=triton.next_power_of_2(width), ONCE=width <= NARROW,
            num_warps=warps, num_stages=stages, **overlapped(x_RD),
        )  # fmt: skip
    return y_RN


_product.register_fake(lambda x_RD, weight_ND, *_: x_RD.new_empty(len(x_RD), len(weight_ND)))


def product(
    x_RD: Tensor, layer: nn.Linear, norm: nn.LayerNorm | None, activation: str, residual_RN: Tensor | None
) -> Tensor:
    """f(norm(x)Wᵀ + b) + residual, for what `takes` accepts and f among `ACTIVATIONS`. It has no backward."""
    gain_D, shift_D, epsilon = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    return _product(x_RD, layer.weight, layer.bias, gain_D, shift_D, residual_RN, epsilon, activation)
