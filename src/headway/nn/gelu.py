"""GELU, by a kernel where the tensor is so large that reading and writing it counts."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from headway.fast.gelu import fused_gelu, takes


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x), Φ the distribution function of the normal distribution (Hendrycks and Gimpel 2016)."""
    return fused_gelu(x) if takes(x) else F.gelu(x)
