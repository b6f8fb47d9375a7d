"""Heads of encoders of pictures: a label for every pixel.

B batch, T tokens, D width, L labels, P patch size, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models.head import Head, HeadChoice, cross_entropy, own_dropout
from headway.models.protocols import Encoded, Encodes, Terms


class PixelsHead(Head):
    """xᵗW + b: the logits of all P·P pixels of a place, from its vector (Strudel et al. 2021, "Segmenter", 3.1)."""

    does = "labels every pixel of a picture (headway predict)"

    def __init__(self, encoder: Encodes, config: Pixels) -> None:
        super().__init__()
        shape: Any = encoder.config
        (height, width), (rows, columns) = shape.size, shape.sides
        self.sides, self.before, self.patch = shape.sides, shape.before, height // rows
        if (rows * self.patch, columns * self.patch) != (height, width):
            raise InputError(f"head={config.name} needs places that fill the picture: {height} × {width} pixels have "
                             f"{rows} × {columns}")  # fmt: skip
        self.dropout = own_dropout(encoder, config)
        self.map = nn.Linear(encoder.width, len(config.labels) * self.patch**2)

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, L, H, W)"""
        logits_BTL: Tensor = self.map(self.dropout(encoded.x_BTD[:, self.before :]))
        return F.pixel_shuffle(logits_BTL.mT.unflatten(2, self.sides), self.patch)

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        logits_NL = self(encoded).movedim(1, -1).flatten(0, 2)
        return cross_entropy(logits_NL, batch.masks_BHW.flatten(), smoothing)

    def pixels(self, encoded: Encoded) -> Tensor:
        return self(encoded).float().softmax(1)


@dataclass(frozen=True)
class Pixels(HeadChoice):
    """A label for every pixel, of which the first is the background. `dropout`: None for that of the encoder."""

    name = "pixels"
    task = "segmentation"
    module = PixelsHead
    labels: tuple[str, ...] = ("background", "object")
    dropout: float | None = 0.0

    def __post_init__(self) -> None:
        refuse(len(self.labels) < 2, "head.labels must have the background and at least one more")
