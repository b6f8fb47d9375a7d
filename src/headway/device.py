"""Devices and precisions: the names that users write, as torch's values."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.errors import InputError, refuse

DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def choose(device: str, dtype: str) -> tuple[torch.device, torch.dtype]:
    """A device and a dtype by name; `auto` takes the GPU in bfloat16 where there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError:
        raise InputError(f"there is no device '{device}': write cpu, cuda or cuda:1") from None
    refuse(place.type not in ("cpu", "cuda"), f"headway runs on cpu and cuda, not on '{device}'")
    refuse(place.type == "cuda" and not torch.cuda.is_available(), "no GPU is available: write --device cpu")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise InputError(f"there is no {device}: this machine has {torch.cuda.device_count()} GPU(s), from cuda:0 on")
    if dtype == "auto":
        dtype = "bfloat16" if place.type == "cuda" else "float32"
    refuse(dtype not in DTYPES, f"there is no dtype '{dtype}': write float32, tf32, bfloat16 or float64")
    refuse(dtype == "tf32" and place.type != "cuda", "tf32 is a precision of GPUs: write float32")
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    if dtype == "bfloat16" and place.type == "cpu" and not has_bfloat16():
        # At its first product of bfloat16 on such a CPU torch warns with a stack trace and switches oneDNN off for the
        # rest of the process. Off from the start, a run computes the same before and after that product.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    return place, DTYPES[dtype]


def has_bfloat16() -> bool:
    """Whether oneDNN has products of bfloat16 on this CPU."""
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; to a GPU from pinned memory, so that the host does not wait for launched kernels."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
