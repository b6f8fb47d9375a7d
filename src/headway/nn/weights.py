"""A model's weights: what it consists of on disk (parameters and persistent buffers), and how they lie in memory."""

from __future__ import annotations

import platform
from typing import Literal

import torch
from torch import Tensor, nn


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """The persistent buffers, such as a batch norm's statistics; tables that a formula gives are not among them."""
    kept = model.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def kept_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Each parameter once (a tied one under its first name), then the persistent buffers."""
    return {**dict(model.named_parameters()), **buffers_of(model)}


# Which products in float32 are faster with each input's weights next to each other, by processor: on x86-64 those of
# one row, by a tenth; on AArch64 those of several rows, by a quarter, while those of one row take 1.6 times as long.
INPUTS_FIRST: dict[str, Literal["one", "many"]] = {"x86_64": "one", "AMD64": "one", "aarch64": "many"}


def lay_out(model: nn.Module, rows: Literal["one", "many"]) -> None:
    """Weights as this processor reads them fastest, for steps of mostly so many rows."""
    weight = next(model.parameters(), None)
    if weight is not None and weight.device.type == "cpu" and INPUTS_FIRST.get(platform.machine()) == rows:
        inputs_first(model)


@torch.no_grad()
def inputs_first(model: nn.Module) -> None:
    """Store each input's weights next to each other, for xWᵀ = Σ_d x_d · Wᵀ[d]: same shapes, same values."""
    for part in model.modules():
        if isinstance(part, nn.Linear) and part.weight.dtype == torch.float32:
            part.weight.data = part.weight.data.T.contiguous().T
