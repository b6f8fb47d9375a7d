"""Models as they stand before their weights come: every weight has its place, and none was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from headway.models import build

# torch's initialisers ask a mode before they draw, and it would not see what they call.
DRAWS = (torch.Tensor.normal_, torch.Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)


class _NothingDrawn(TorchFunctionMode):
    """Fresh memory that nobody writes to takes no room, and drawing is most of the time that building takes."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in DRAWS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def blank(
    family: str, config: Any, sizes: Sequence[int], device: torch.device, dtype: torch.dtype, head: Any = None
) -> Any:
    """A model of this family on `device` in `dtype`, without its weights: the caller fills every parameter. Its tables
    are real."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), _NothingDrawn():
            return build(family, config, sizes, head).eval()
    finally:
        torch.set_default_dtype(usual)
