"""Triton, where it is installed, as the kernels import it.

Kernels import `tl`, `jit` and the names of types from here; callers check `available` before a launch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError

try:
    import triton  # type: ignore
    import triton.language as tl  # type: ignore
    from triton.language import constexpr, tensor
    from triton.language.extra.cuda import gdc_launch_dependents as let_next_begin  # type: ignore
    from triton.language.extra.cuda import gdc_wait as wait_for_last
except ImportError:  # no wheel for this machine: `available` is False and the readable path is taken
    triton = tl = constexpr = tensor = let_next_begin = wait_for_last = None

__all__ = [
    "available", "constexpr", "jit", "launch", "let_next_begin", "needs_triton", "tensor", "tl", "triton",
    "wait_for_last",
]  # fmt: skip


def available(tensor: Tensor) -> bool:
    """Whether the kernels can take this tensor: on a GPU, at most 32 bits wide, Triton installed."""
    return triton is not None and tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16, torch.float32)


def jit(function: Any = None, *, sizes: tuple[str, ...] = ()) -> Any:
    """A kernel. Of `sizes`, which change from batch to batch, no value has a compiled form of its own."""
    if function is None:
        return partial(jit, sizes=sizes)
    return function if triton is None else triton.jit(function, do_not_specialize=list(sizes))


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **settings: Any) -> None:
    """A kernel on the device of its first tensor; none where the grid is empty."""
    if all(grid):
        with torch.cuda.device_of(given[0]):
            kernel[grid](*given, **settings)


def needs_triton(kernels: str, instead: str) -> None:
    if triton is None:
        raise InputError(f"the {kernels} kernels need triton: pip install triton, or take {instead}")
