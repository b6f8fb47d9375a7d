"""GELU as one Triton kernel forward and one backward, for tensors so large that reading and writing them dominates.

On a GPU the arithmetic of torch's error function takes longer than the memory traffic, and a compiler computes and
writes the result a second time in the backward. The readable twin is `torch.nn.functional.gelu`.

B values of a program.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.fast.jit import available, constexpr, jit, launch, needs_triton, tensor, tl, triton

# With at least so many values, the kernels save more time than two more launches take.
LEAST = 2**23
BLOCK = 2048  # of four warps: each thread loads two times 16 bytes of bfloat16 before it computes


def takes(x: Tensor) -> bool:
    """Whether `fused_gelu` is faster: not for views, such as a gate, which a compiler fuses with their source."""
    if not available(x):  # checked first: sizes that are free in an exported graph stay free
        return False
    return torch.is_grad_enabled() and x.is_contiguous() and x.numel() >= LEAST


@jit
def _normal(x_B: tensor) -> tensor:
    """φ(x) = e^(−x²/2)/√(2π) and Φ(x), the normal distribution's density and cumulative distribution.

    Where x < 0, Φ(x) = φ(x)(b₁t + … + b₅t⁵), t = 1/(1 + p|x|), off by less than 7.5e-8 (Abramowitz and Stegun 1964,
    26.2.17), which is less than the rounding errors of float32. Elsewhere it is one minus that of −x: neither
    side is a small difference of large numbers.
    """
    u_B = 1.0 + 0.2316419 * tl.abs(x_B)
    t_B = tl.rsqrt(u_B * u_B)  # two instructions; a division takes eight
    density_B = tl.exp2(x_B * x_B * -0.7213475204444817 - 1.3257480647361593)  # −½log₂e and log₂√(2π)
    sum_B = 0.319381530 + t_B * (-0.356563782 + t_B * (1.781477937 + t_B * (-1.821255978 + t_B * 1.330274429)))
    tail_B = density_B * t_B * sum_B
    return density_B, tl.where(x_B < 0, tail_B, 1.0 - tail_B)


@jit
def _forward(x: tensor, y: tensor, n: tensor, B: constexpr) -> None:
    at_B = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x_B = tl.load(x + at_B, mask=at_B < n, other=0.0).to(tl.float32)
    _, share_B = _normal(x_B)
    tl.store(y + at_B, x_B * share_B, mask=at_B < n)


@jit
def _backward(grad: tensor, x: tensor, grad_x: tensor, n: tensor, B: constexpr) -> None:
    """(xΦ(x))′ = Φ(x) + xφ(x), times the gradient by the result."""
    at_B = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x_B = tl.load(x + at_B, mask=at_B < n, other=0.0).to(tl.float32)
    grad_B = tl.load(grad + at_B, mask=at_B < n, other=0.0).to(tl.float32)
    density_B, share_B = _normal(x_B)
    tl.store(grad_x + at_B, grad_B * (share_B + x_B * density_B), mask=at_B < n)


def _launch(kernel: Any, x: Tensor, *given: Tensor) -> Tensor:
    needs_triton("GELU", "torch.nn.functional.gelu")
    y = x.new_empty(x.shape)
    inputs = (part.contiguous() for part in given)
    launch(kernel, (triton.cdiv(x.numel(), BLOCK),), *inputs, y, x.numel(), B=BLOCK, num_warps=4)
    return y


@torch.library.custom_op("headway::gelu", mutates_args=())
def fused_gelu(x: Tensor) -> Tensor:
    """x·Φ(x) for what `takes` accepts. Its gradient has no gradient of its own."""
    return _launch(_forward, x, x)


@torch.library.custom_op("headway::gelu_backward", mutates_args=())
def fused_gelu_backward(grad: Tensor, x: Tensor) -> Tensor:
    return _launch(_backward, x, grad, x)


fused_gelu.register_fake(lambda x: x.new_empty(x.shape))
fused_gelu_backward.register_fake(lambda grad, x: x.new_empty(x.shape))
fused_gelu.register_autograd(
    lambda ctx, grad: fused_gelu_backward(grad, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
