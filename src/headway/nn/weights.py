"""What a model consists of on disk: its parameters and its persistent buffers."""

from __future__ import annotations

from torch import Tensor, nn


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """The persistent buffers, such as a batch norm's statistics; tables that a formula gives are not among them."""
    kept = model.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def kept_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Each parameter once (a tied one under its first name), then the persistent buffers."""
    return {**dict(model.named_parameters()), **buffers_of(model)}
