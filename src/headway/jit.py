"""Triton where there is one: what the kernels of `nn`, `generate` and `train` are written with.

Kernels import `tl`, `jit` and the names of types from here; who launches them asks `available` first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError

try:
    import triton  # type: ignore
    import triton.language as tl  # type: ignore
    from triton.language import constexpr, tensor
except ImportError:  # no wheel for this machine: `available` says no and the readable path is taken
    triton = tl = constexpr = tensor = None

__all__ = ["available", "constexpr", "jit", "needs_triton", "tensor", "tl", "triton"]


def available(tensor: Tensor) -> bool:
    """Whether the kernels can take this tensor: on a GPU, at most 32 bits wide, Triton installed."""
    return triton is not None and tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16, torch.float32)


def jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


def needs_triton(kernels: str, instead: str) -> None:
    if triton is None:
        raise InputError(f"the {kernels} kernels need triton: pip install triton, or take {instead}")
