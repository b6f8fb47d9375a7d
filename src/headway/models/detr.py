"""DETR's encoder (Carion et al. 2020, "End-to-end object detection with Transformers"): convolutions, and a Transformer
whose queries and keys are told in every layer where they are. Its decoder is the head `boxes`, or `boxes-and-masks`.

B batch, C channels, H height, W width, T places, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, final

from torch import nn

from headway.errors import refuse
from headway.models import parts
from headway.models.protocols import Encoded, Encodes
from headway.models.vit import Convolutions, OnGrid, Patches, along_both
from headway.nn.patches import PictureEmbedding
from headway.nn.placed import PlacedAttention, PlacedBlock, PlacedStack, ScaledGrid
from headway.nn.position import Position
from headway.nn.resnet import ResNetEmbedding


@dataclass(frozen=True)
class ResNet:
    """A residual network (He et al. 2016). `first`: channels of its first convolution; `widths`, `depths`: channels and
    layers of each stage."""

    name: ClassVar[str] = "resnet"
    first: int = 64
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    depths: tuple[int, ...] = (3, 4, 6, 3)
    layer: Literal["bottleneck", "basic"] = "bottleneck"

    def __post_init__(self) -> None:
        refuse(not self.widths or len(self.widths) != len(self.depths),
               "model.stem.widths and model.stem.depths must have a number for each stage")  # fmt: skip
        refuse(min(self.first, *self.widths, *self.depths) < 1, "model.stem: every size must be at least 1")

    def sides(self, config: Any) -> tuple[int, int]:
        return along_both(self.places, config)

    def places(self, config: Any, size: int) -> int:
        for _ in range(1 + len(self.widths)):  # the first convolution, its pooling, and every stage but the first
            size = -(-size // 2)
        return size

    def build(self, config: Any, channels: int, position: Position) -> PictureEmbedding:
        return ResNetEmbedding(
            channels, self.first, self.widths, self.depths, self.layer, config.width, position, config.dropout
        )


@dataclass(frozen=True)
class DetrConfig(OnGrid):
    """`image`: the height of a picture in pixels, and its width unless `across` is another. `stem`: what makes vectors
    of pixels; `patch`: of a patch, where it has patches. `turns`, `base`: of the sinusoids that say where a place is:
    the fastest turns so often along a side, the slowest `base` times less."""

    name: ClassVar[str] = "detr"
    before: ClassVar[int] = 0  # learned tokens before the places
    image: int = 64
    layers: int = 6
    width: int = 256
    inner: int = 2048
    heads: int = 8
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: parts.PostNorm | parts.PreNorm = field(default_factory=parts.PostNorm)
    feed_forward: parts.Relu | parts.Gelu = field(default_factory=parts.Relu)
    stem: Convolutions | Patches | ResNet = field(default_factory=lambda: Convolutions(3))
    patch: int = 8
    across: int = 0
    turns: float = 1.0
    base: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("turns", "base"):
            value = getattr(self, name)
            refuse(not 0 < value < math.inf, f"model.{name} must be above 0, not {value}")
        refuse(self.width % 4, f"model.width {self.width} must be a multiple of 4: half of it is for rows")
        self.check_grid()


SIZES = {
    "tiny": DetrConfig(64, 3, 128, 256, 4, 0.0),
    "base": DetrConfig(640, stem=ResNet()),
}


def placed_blocks(config: Any, layers: int, cross: bool = False) -> nn.ModuleList:
    """So many blocks of a config's sizes; with `cross`, of a decoder."""
    attention = partial(PlacedAttention, config.width, config.heads, config.attention_dropout)
    residual: Callable[[], Any] = config.norm.residual(config.width, config.dropout)
    return nn.ModuleList(
        PlacedBlock(
            attention(), config.feed_forward.build(config.width, config.inner), residual, attention() if cross else None
        )
        for _ in range(layers)
    )


@final
class Detr(Encodes):
    """A vector for each place of a picture, and where it is."""

    tracks = {"": ("patches", "patches"), "head": ("queries", "queries"), "head.cross": ("queries", "patches")}

    def __init__(self, config: DetrConfig, channels: int) -> None:
        super().__init__()
        self.config, self.context = config, math.prod(config.sides)
        self.width, self.dropout = config.width, config.dropout
        self.embed = config.stem.build(config, channels, Position())
        self.channels = self.embed.channels
        self.grid = ScaledGrid(config.width, *config.sides, config.turns, config.base)
        self.encoder = PlacedStack(placed_blocks(config, config.layers), config.norm.final(config.width))

    def encode(self, inputs: Any) -> Encoded:
        x_BTD, maps = self.embed.with_maps(inputs.pixels_BCHW)
        at_TD = self.grid().to(x_BTD.dtype)
        return Encoded(self.encoder(x_BTD, at_TD), at_TD=at_TD, maps=maps)
