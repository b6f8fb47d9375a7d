"""One vector of many: of the first token, or of all of a text's own tokens.

B batch, T length, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.feed_forward import TanhLayer

Pooling = Literal["mean", "first", "max", "mean-sqrt"]


class FirstToken(nn.Module):
    """tanh(h₁W + b): the first token's vector stands for the text (Devlin et al. 2019, 3.1).

    Other models have another `layer`, the mean of all tokens for the first (`how`), or a dropout `before` the layer.
    """

    def __init__(
        self, width: int, layer: nn.Module | None = None, how: Pooling = "first", before: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.layer, self.how, self.before = layer or TanhLayer(width, width), how, before or nn.Identity()

    def forward(self, hidden_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        one_BD: Tensor = self.layer(self.before(pool(hidden_BTD, lengths_B, self.how)))
        return one_BD


def pool(hidden_BTD: Tensor, lengths_B: Tensor | None, how: Pooling, unit: bool = False) -> Tensor:
    """One vector of each text: Σ_t h_t / T (`mean`), Σ_t h_t / √T, the first, or the largest of each feature, over its
    own tokens (Reimers and Gurevych 2019, 3); with `unit`, of length 1. Without lengths no row is padded."""
    if how == "first":
        pooled_BD = hidden_BTD[:, 0]
    else:
        if lengths_B is None:
            lengths_B = torch.full((hidden_BTD.shape[0],), hidden_BTD.shape[1], device=hidden_BTD.device)
        own_BT1 = (torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device) < lengths_B[:, None])[..., None]
        if how == "max":
            pooled_BD = hidden_BTD.masked_fill(~own_BT1, -torch.inf).amax(1)
        else:
            sum_BD = torch.where(own_BT1, hidden_BTD, 0).sum(1)
            count_B1 = lengths_B[:, None].to(sum_BD.dtype)
            pooled_BD = sum_BD / (count_B1 if how == "mean" else count_B1.sqrt())
    return F.normalize(pooled_BD, dim=-1) if unit else pooled_BD
