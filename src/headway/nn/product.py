"""A linear layer with the norm, activation and residual sum around it, for the few rows of a decoding step.

R rows, D width, N outputs.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.fast import product as kernels
from headway.nn.feed_forward import Activation, gelu


def product(
    x_RD: Tensor, layer: nn.Linear, norm: nn.Module | None = None, activation: Activation | None = None,
    residual_RN: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """f(norm(x)Wᵀ + b) + residual; norm, f and residual are optional."""
    if norm is not None and type(norm) is not nn.LayerNorm:
        x_RD, norm = normed(x_RD, norm), None
    name = activation_name(activation)
    if name is not None and kernels.takes(x_RD, layer.weight):
        return kernels.product(x_RD, layer, norm, name, residual_RN)
    return readable_product(x_RD, layer, norm, activation, residual_RN)


def activation_name(activation: Activation | None) -> str | None:
    """The kernel's name of this activation; None where it has none."""
    if activation is None:
        return "none"
    if isinstance(activation, partial) and activation.func is F.gelu and not activation.args:
        return {"none": "gelu", "tanh": "tanh"}.get(activation.keywords.get("approximate", "none"))
    return {F.relu: "relu", F.gelu: "gelu", gelu: "gelu"}.get(activation)


def readable_product(
    x_RD: Tensor, layer: nn.Linear, norm: nn.Module | None = None, activation: Activation | None = None,
    residual_RN: Tensor | None = None,
) -> Tensor:  # fmt: skip
    if norm is not None:
        x_RD = normed(x_RD, norm)
    y_RN = linear(x_RD, layer.weight, layer.bias)
    if activation is not None:
        y_RN = activation(y_RN)
    return y_RN if residual_RN is None else residual_RN + y_RN


def normed(x_RD: Tensor, norm: nn.Module) -> Tensor:
    """norm(x), without the overhead of calling a module where torch has a function for it."""
    if type(norm) is nn.LayerNorm:
        return torch.layer_norm(x_RD, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    if type(norm) is nn.RMSNorm:
        return torch.rms_norm(x_RD, norm.normalized_shape, norm.weight, norm.eps)
    found: Tensor = norm(x_RD)
    return found


def linear(x_RD: Tensor, weight_ND: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """xWᵀ + b. On a CPU torch's product of bfloat16 matrices repacks W at each call; for one row the product with a
    vector takes two thirds of the time."""
    if x_RD.dtype != torch.bfloat16 or x_RD.device.type != "cpu" or len(x_RD) != 1:
        return F.linear(x_RD, weight_ND, bias_N)
    y_N = torch.mv(weight_ND, x_RD[0])
    return (y_N if bias_N is None else y_N + bias_N)[None]
