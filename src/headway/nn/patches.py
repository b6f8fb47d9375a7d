"""From pixels to vectors: the front end of a model of pictures.

B batch, C channels, H height, W width, P patch size, T patches, D width of the vectors.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.dropout import Dropout
from headway.nn.position import Position


def patches(pixels_BCHW: Tensor, size: int) -> Tensor:
    """(B, T, C·P·P): squares of `size` pixels, row by row; each holds its channels one after the other."""
    return F.pixel_unshuffle(pixels_BCHW, size).flatten(2).mT.contiguous()


class PatchEmbedding(nn.Module):
    """dropout([class; x¹E; …; xᵀE] + positions) (Dosovitskiy et al. 2021, eq. 1): xᵗ is a patch as a vector, `class` a
    learned vector whose last layer stands for the picture."""

    def __init__(self, channels: int, size: int, width: int, position: Position, dropout: float) -> None:
        super().__init__()
        self.size, self.position = size, position
        self.map = nn.Linear(channels * size * size, width)
        self.class_D = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.class_D, std=0.02)
        self.dropout = Dropout(dropout)

    def forward(self, pixels_BCHW: Tensor) -> Tensor:
        patches_BTD = self.map(patches(pixels_BCHW.to(self.class_D.dtype), self.size))
        first_B1D = self.class_D.expand(len(patches_BTD), 1, -1)
        tokens_BTD = torch.cat([first_B1D, patches_BTD], 1)
        x_BTD: Tensor = self.dropout(self.position.add(tokens_BTD))
        if tap.recording():
            tap.save(self, "tokens", tokens_BTD)
            tap.save(self, "hidden", x_BTD)
        return x_BTD
