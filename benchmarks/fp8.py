"""Products of training in 8-bit floats: a layer in the place of nn.Linear, for GPUs whose matrix units take them.

A tensor is held as x ≈ s · x₈ with one scale for all of it, s = max|x| / largest number of the format (Micikevicius et
al. 2022): activations and weights in E4M3, which has more digits, gradients in E5M2, which has more range. Sums are
in float32. Weights, norms, attention and the loss stay as they are; out of training the layer is a plain one.

N tokens, D width, F outputs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIGITS, RANGE = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16  # the matrix units take sides that are multiples of it

Scaled = tuple[Tensor, Tensor]  # x₈ and s


def scaled(x: Tensor, kind: torch.dtype) -> Scaled:
    """x₈ = x/s, s = max|x| / largest; of zeros, zeros."""
    largest = torch.finfo(kind).max
    scale = (x.abs().amax().float() / largest).clamp(min=torch.finfo(torch.float32).tiny)
    # Rounding of the quotient may lead above the largest number, for which E4M3 has only NaN.
    return (x.float() / scale).clamp(-largest, largest).to(kind), scale


def product(a: Scaled, b: Scaled, dtype: torch.dtype) -> Tensor:
    """A Bᵀ of two matrices that lie row by row in memory."""
    (a_NK, a_scale), (b_FK, b_scale) = a, b
    if a_NK.is_cuda:
        return torch._scaled_mm(a_NK, b_FK.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=dtype)
    return readable_product(a, b).to(dtype)


def readable_product(a: Scaled, b: Scaled) -> Tensor:
    """The same in float32, of the same 8-bit numbers."""
    (a_NK, a_scale), (b_FK, b_scale) = a, b
    return (a_NK.float() @ b_FK.float().t()) * (a_scale * b_scale)


def _turned(x: Scaled) -> Scaled:
    return x[0].t().contiguous(), x[1]


class _Product(torch.autograd.Function):
    """y = xWᵀ; ∂x = ∂y W, ∂W = ∂yᵀ x: three products, each of 8-bit numbers."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_FD: Tensor) -> Tensor:
        x, weight = scaled(x_ND, DIGITS), scaled(weight_FD, DIGITS)
        ctx.save_for_backward(*x, *weight)
        return product(x, weight, x_ND.dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, Tensor]:
        x_ND, x_scale, weight_FD, weight_scale = ctx.saved_tensors
        grad, dtype = scaled(outer[0], RANGE), outer[0].dtype
        grad_x_ND = product(grad, _turned((weight_FD, weight_scale)), dtype)
        return grad_x_ND, product(_turned(grad), _turned((x_ND, x_scale)), dtype)


class Fp8Linear(nn.Linear):
    """xWᵀ + b with W and b of another layer; in training its products are of 8-bit numbers."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and torch.is_grad_enabled()):
            return F.linear(x, self.weight, self.bias)
        y = _Product.apply(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias


def with_fp8(model: nn.Module) -> list[str]:
    """Put `Fp8Linear` where a plain layer was whose sides allow it; the names of those. The head, a part of the loss,
    is none. Weights keep their names: a model folder does not know."""
    found = []
    for path, part in model.named_modules():
        for name, layer in part.named_children():
            sides = getattr(layer, "in_features", 1), getattr(layer, "out_features", 1)
            if type(layer) is nn.Linear and not any(side % MULTIPLE for side in sides):
                setattr(part, name, Fp8Linear(layer))
                found.append(f"{path}.{name}".lstrip("."))
    return found
