"""Programmatic dependent launch: a kernel may start while the one before it still runs, and wait for it later."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.fast.jit import constexpr, jit, let_next_begin, wait_for_last

__all__ = ["let_next_begin", "overlapped", "take_turn", "wait_for_last"]


def overlapped(tensor: Tensor) -> dict[str, bool]:
    """Launch options of a kernel with an `OVERLAP`: since Hopper it may start while the one before it still runs, and
    wait for it later (programmatic dependent launch). Before `wait_for_last` it must not read results of the same
    step."""
    if not tensor.is_cuda or torch.cuda.get_device_capability(tensor.device) < (9, 0):
        return {"OVERLAP": False}
    return {"OVERLAP": True, "launch_pdl": True}


@jit
def take_turn(OVERLAP: constexpr) -> None:
    """For a kernel that may be launched early, but has no work before the kernel before it has ended."""
    if OVERLAP:
        let_next_begin()
        wait_for_last()
