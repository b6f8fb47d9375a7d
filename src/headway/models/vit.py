"""The Vision Transformer (Dosovitskiy et al. 2021, "An image is worth 16x16 words"): an encoder whose tokens are the
patches of a picture.

B batch, C channels, H height, W width, T patches and the class token, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, final

import torch
from torch import nn

from headway.errors import InputError
from headway.models import parts
from headway.models.protocols import Encoded, Encodes
from headway.nn.block import draw_normal
from headway.nn.patches import PatchEmbedding
from headway.nn.position import Learned

STD = 0.02  # of every matrix at the start
SIZED = ("pictures whose channels are {}", "data.channels")


@dataclass(frozen=True)
class ViTConfig:
    """`image`: height and width of a picture, in pixels. `patch`: of a patch."""

    name: ClassVar[str] = "vit"
    image: int = 224
    patch: int = 16
    layers: int = 12
    width: int = 768
    inner: int = 3072
    heads: int = 12
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: parts.PreNorm = field(default_factory=lambda: parts.PreNorm(1e-6))
    feed_forward: parts.Gelu | parts.Relu | parts.Gated = field(default_factory=parts.Gelu)

    def __post_init__(self) -> None:
        if self.patch < 1 or self.image < self.patch or self.image % self.patch:
            raise InputError(f"model.image {self.image} is not a multiple of model.patch {self.patch}")

    @property
    def side(self) -> int:
        """Patches in a row of the picture, and rows of patches."""
        return self.image // self.patch


SIZES = {
    "mnist": ViTConfig(28, 4, 4, 64, 128, 4),
    "tiny": ViTConfig(224, 16, 12, 192, 768, 3),
    "small": ViTConfig(224, 16, 12, 384, 1536, 6),
    "base": ViTConfig(),
    "large": ViTConfig(224, 16, 24, 1024, 4096, 16),
}


def blank(config: ViTConfig, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Pictures. They have as many patches as the config says, whatever length is asked for."""
    return (SimpleNamespace(pixels_BCHW=torch.zeros(batch, *sizes, config.image, config.image)),)


@final
class ViT(Encodes):
    """The last of a stack of pre-norm blocks; the first vector is that of the class token."""

    tracks = {"": ("patches", "patches")}

    def __init__(self, config: ViTConfig, channels: int) -> None:
        super().__init__()
        self.config, self.context = config, config.side**2 + 1
        self.width, self.dropout = config.width, config.dropout
        position = Learned(config.width, self.context)
        self.embed = PatchEmbedding(channels, config.patch, config.width, position, config.dropout)
        self.encoder = parts.stack(config, config.layers)
        self.draw(self)

    def draw(self, part: nn.Module) -> None:
        draw_normal(part, STD)

    def encode(self, inputs: Any) -> Encoded:
        return Encoded(self.encoder.encode(self.embed(inputs.pixels_BCHW)))
