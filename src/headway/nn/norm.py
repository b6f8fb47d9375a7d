"""Norms beside those of torch. D width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class OneRMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + ε) ⊙ (1 + w), so that w = 0 leaves x at length one (Gemma Team 2024)."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x_BTD: Tensor) -> Tensor:
        # 1 + w is rounded only at the end: in bfloat16 a small w would be lost.
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        return F.rms_norm(x_BTD.to(wide), self.normalized_shape, 1 + self.weight.to(wide), self.eps).to(x_BTD.dtype)
