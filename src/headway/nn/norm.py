"""Norms that torch does not have. B batch, T length, D width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class OneRMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + ε) ⊙ (1 + w), so that w = 0 is no gain (Gemma Team 2024)."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x_BTD: Tensor) -> Tensor:
        # In float32 until the end: in bfloat16 1 + w would lose a small w.
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        return F.rms_norm(x_BTD.to(wide), self.normalized_shape, 1 + self.weight.to(wide), self.eps).to(x_BTD.dtype)


class BatchNorm(nn.Module):
    """(x − μ) / √(σ² + ε) ⊙ w + b, with μ and σ² of each feature over all tokens of the batch but padding (Ioffe and
    Szegedy 2015, alg. 1); in evaluation over those seen in training, as running means."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.epsilon, self.momentum = epsilon, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        if not self.training:
            return self._normed(x_BTD, self.running_mean, self.running_var)
        own_BT1 = x_BTD.new_ones(x_BTD.shape[:2], dtype=torch.bool)[..., None]
        if lengths_B is not None:
            own_BT1 = (torch.arange(x_BTD.shape[1], device=x_BTD.device) < lengths_B[:, None])[..., None]
        wide_BTD, count = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32)), own_BT1.sum().clamp(min=1)
        mean_D = wide_BTD.where(own_BT1, 0).sum((0, 1)) / count
        var_D = (wide_BTD - mean_D).where(own_BT1, 0).square().sum((0, 1)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean_D.to(self.running_mean), self.momentum)
            unbiased_D = var_D * count / (count - 1).clamp(min=1)
            self.running_var.lerp_(unbiased_D.to(self.running_var), self.momentum)
        return self._normed(x_BTD, mean_D, var_D)

    def _normed(self, x_BTD: Tensor, mean_D: Tensor, var_D: Tensor) -> Tensor:
        gain_D = self.weight * torch.rsqrt(var_D + self.epsilon)
        return ((x_BTD - mean_D) * gain_D + self.bias).to(x_BTD.dtype)


def normed(norm: nn.Module, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """norm(x). Only batch norm uses the lengths: the others look at one token at a time."""
    return norm(x_BTD, lengths_B) if isinstance(norm, BatchNorm) else norm(x_BTD)
