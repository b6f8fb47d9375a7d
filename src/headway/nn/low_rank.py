"""Adapters of low rank (Hu et al. 2022, "LoRA"): a linear map that learns with few weights.

    y = xWᵀ + b + (α/r)·(xAᵀ)Bᵀ = x(W + (α/r)·BA)ᵀ + b     W and b stay as they are

A is drawn as a linear map's weight is, B starts at 0: at first the adapter changes nothing.

I inputs, O outputs, R rank.
"""

from __future__ import annotations

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized


@final
class Adapted(nn.Module):
    """A linear map with an adapter. Called, it never forms the sum W + (α/r)·BA, so that no gradient as large as W is
    computed; a part that reads `weight` (a kernel of a recurrent cell) gets the sum."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, random: torch.Generator) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.in_features, self.out_features = base.in_features, base.out_features
        spread, like = base.in_features**-0.5, base.weight
        drawn_RI = torch.empty(rank, base.in_features).uniform_(-spread, spread, generator=random)
        self.A_RI = nn.Parameter(drawn_RI.to(like.device, like.dtype))
        self.B_OR = nn.Parameter(torch.zeros(base.out_features, rank, device=like.device, dtype=like.dtype))

    @property
    def weight(self) -> Tensor:
        return self.base.weight + self.scale * (self.B_OR @ self.A_RI)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        return y + self.scale * F.linear(F.linear(x, self.A_RI), self.B_OR)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The linear map whose weight is the sum."""
        weight_OI = self.weight
        if is_parametrized(self.base):  # its weight is made of others: assigning finds those
            self.base.weight = weight_OI
        else:
            self.base.weight.copy_(weight_OI)
        return self.base


def can_adapt(part: nn.Module) -> bool:
    """Whether it is a linear map and nothing more, a weight-normed one among them."""
    return isinstance(part, nn.Linear) and type(part).forward is nn.Linear.forward


def replace_parts(model: nn.Module, new: dict[nn.Module, Any]) -> None:
    """Put another part in the place of each that `new` names, wherever it stands."""
    for owner in list(model.modules()):
        for name, part in list(owner._modules.items()):
            if part in new:
                setattr(owner, name, new[part])


def merge_adapters(model: nn.Module) -> None:
    """Every adapter becomes part of its linear map: the model has the weights that it had without adapters."""
    replace_parts(model, {part: part.merged() for part in model.modules() if isinstance(part, Adapted)})
