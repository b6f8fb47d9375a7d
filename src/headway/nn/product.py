"""A product with all that stands around it in a block, for the few rows of a step.

R rows, D width, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import product_kernels

Activation = Callable[[Tensor], Tensor]


def product(
    x_RD: Tensor,
    layer: nn.Linear,
    norm: nn.LayerNorm | None = None,
    activation: Activation | None = None,
    residual_RN: Tensor | None = None,
) -> Tensor:
    """f(norm(x)Wᵀ + b) + residual, each of norm, f and residual where it is given."""
    if product_kernels.takes(x_RD, layer.weight, activation):
        return product_kernels.product(x_RD, layer, norm, activation, residual_RN)
    return readable_product(x_RD, layer, norm, activation, residual_RN)


def readable_product(
    x_RD: Tensor,
    layer: nn.Linear,
    norm: nn.LayerNorm | None = None,
    activation: Activation | None = None,
    residual_RN: Tensor | None = None,
) -> Tensor:
    if norm is not None:
        x_RD = torch.layer_norm(x_RD, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    y_RN = F.linear(x_RD, layer.weight, layer.bias)
    if activation is not None:
        y_RN = activation(y_RN)
    return y_RN if residual_RN is None else residual_RN + y_RN
