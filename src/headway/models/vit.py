"""The Vision Transformer (Dosovitskiy et al. 2021, "An image is worth 16x16 words"): an encoder whose tokens are the
patches of a picture.

B batch, C channels, H height, W width, T patches and the class token, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, final

import torch
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models import parts
from headway.models.protocols import Encoded, Encodes
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.patches import (
    ConvolutionalEmbedding,
    OverlappingEmbedding,
    PatchEmbedding,
    PictureEmbedding,
    resized_grid,
)
from headway.nn.position import Learned, Position, SinusoidalGrid
from headway.nn.residual import LayerScale, Residual, StochasticDepth

SIZED = ("pictures whose channels are {}", "data.channels")


class Shape(Protocol):
    """What a stem reads of a config: `patch`, `width`, `dropout` and `before` as those of `ViTConfig`, and the height
    and width of a picture."""

    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def patch(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def before(self) -> int: ...


def along_both(places: Callable[[Any, int], int], config: Shape) -> tuple[int, int]:
    """Rows of places and places in a row, each counted along its side of the picture."""
    height, width = config.size
    return places(config, height), places(config, width)


@dataclass(frozen=True)
class Patches:
    """Squares of `model.patch` pixels, and a linear map."""

    name: ClassVar[str] = "patches"

    def sides(self, config: Shape) -> tuple[int, int]:
        return along_both(self.places, config)

    def places(self, config: Shape, size: int) -> int:
        if config.patch < 1 or size < config.patch or size % config.patch:
            raise InputError(f"model.image {size} is not a multiple of model.patch {config.patch}")
        return size // config.patch

    def build(self, config: Shape, channels: int, position: Position) -> PictureEmbedding:
        return PatchEmbedding(channels, config.patch, config.width, position, config.dropout, config.before)


@dataclass(frozen=True)
class Overlapping:
    """Squares of `model.patch` pixels, one every `step` rows and columns (Gong et al. 2021)."""

    name: ClassVar[str] = "overlapping"
    step: int = 10

    def sides(self, config: Shape) -> tuple[int, int]:
        return along_both(self.places, config)

    def places(self, config: Shape, size: int) -> int:
        if self.step < 1 or not 1 <= config.patch <= size:
            raise InputError(f"model.image {size} has no patch of {config.patch} every {self.step} pixels")
        return (size - config.patch) // self.step + 1

    def build(self, config: Shape, channels: int, position: Position) -> PictureEmbedding:
        how = (config.width, position, config.dropout, config.before)
        return OverlappingEmbedding(channels, config.patch, self.step, *how)


@dataclass(frozen=True)
class Convolutions:
    """Layers of convolution and pooling, each of which halves the sides of the picture (Hassani et al. 2021)."""

    name: ClassVar[str] = "convolutions"
    layers: int = 1

    def sides(self, config: Shape) -> tuple[int, int]:
        return along_both(self.places, config)

    def places(self, config: Shape, size: int) -> int:
        refuse(self.layers < 1, f"model.stem.layers must be at least 1, not {self.layers}")
        for _ in range(self.layers):
            size = -(-size // 2)
        return size

    def build(self, config: Shape, channels: int, position: Position) -> PictureEmbedding:
        return ConvolutionalEmbedding(channels, self.layers, config.width, position, config.dropout, config.before)


@dataclass(frozen=True)
class LearnedGrid:
    """A learned vector for each place; in pictures of another size those between them."""

    name: ClassVar[str] = "learned"

    def build(self, config: ViTConfig) -> Position:
        return Learned(config.width, config.before + math.prod(config.sides))


@dataclass(frozen=True)
class Sinusoids:
    """Half of a vector for the row, half for the column."""

    name: ClassVar[str] = "sinusoidal"

    def build(self, config: ViTConfig) -> Position:
        return SinusoidalGrid(config.width, *config.sides, config.before)


@dataclass(frozen=True)
class NoPosition:
    name: ClassVar[str] = "none"

    def build(self, config: ViTConfig) -> Position:
        return Position()


class OnGrid:
    """Of the config of a model of pictures: `image` pixels high and, unless `across` is another number, as wide; `stem`
    makes a grid of places of them."""

    image: Any
    across: Any
    stem: Any

    def check_grid(self) -> None:
        refuse(self.across < 0, f"model.across must be 0 (as high as wide) or more, not {self.across}")
        assert all(self.sides)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a picture."""
        return self.image, self.across or self.image

    @property
    def sides(self) -> tuple[int, int]:
        """Rows of places, and places in a row."""
        found: tuple[int, int] = self.stem.sides(self)
        return found


@dataclass(frozen=True)
class ViTConfig(OnGrid):
    """`image`: the height of a picture in pixels, and its width unless `across` is another. `patch`: of a patch.
    `before`: learned tokens before the places: 0 for none (the head must then pool), 1 for the class token, 2 for that
    and DeiT's. `drop_path`: how often the last layer is left out of a row in training (Huang et al. 2016); earlier ones
    less often. `layer_scale`: the first value of a learned factor behind each sublayer (0: there is none)."""

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
    stem: Patches | Convolutions | Overlapping = field(default_factory=Patches)
    before: int = 1
    position: LearnedGrid | Sinusoids | NoPosition = field(default_factory=LearnedGrid)
    drop_path: float = 0.0
    layer_scale: float = 0.0
    qkv_bias: bool = True
    across: int = 0

    def __post_init__(self) -> None:
        refuse(not 0 <= self.before <= 2, f"model.before must be 0, 1 or 2, not {self.before}")
        refuse(not 0 <= self.drop_path < 1, f"model.drop_path must lie in [0, 1), not {self.drop_path}")
        refuse(self.layer_scale < 0, f"model.layer_scale must be 0 (none) or more, not {self.layer_scale}")
        self.check_grid()


SIZES = {
    "mnist": ViTConfig(28, 4, 4, 64, 128, 4),
    "lite": ViTConfig(32, 4, 7, 256, 512, 4),
    "tiny": ViTConfig(224, 16, 12, 192, 768, 3),
    "small": ViTConfig(224, 16, 12, 384, 1536, 6),
    "base": ViTConfig(),
    "large": ViTConfig(224, 16, 24, 1024, 4096, 16),
}


def blank(config: ViTConfig, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Pictures. They have as many patches as the config says, whatever length is asked for."""
    return (SimpleNamespace(pixels_BCHW=torch.zeros(batch, *sizes, *config.size)),)


@final
class ViT(Encodes):
    """The last of a stack of pre-norm blocks; the first vector is that of the class token."""

    tracks = {"": ("patches", "patches")}

    def __init__(self, config: ViTConfig, channels: int) -> None:
        super().__init__()
        self.config, self.context = config, config.before + math.prod(config.sides)
        self.width, self.dropout = config.width, config.dropout
        self.embed = config.stem.build(config, channels, config.position.build(config))
        attention = partial(
            SelfAttention, config.width, config.heads, config.attention_dropout, bias=config.qkv_bias, output_bias=True
        )
        feed_forward = partial(config.feed_forward.build, config.width, config.inner)
        final = config.norm.final(config.width)
        self.encoder = Stack(config.layers, final, attention, feed_forward, partial(next, _around(config)))
        self.draw(self.encoder)

    def draw(self, part: nn.Module) -> None:
        for weight in part.parameters():
            if weight.dim() >= 2:
                nn.init.xavier_uniform_(weight)  # narrow models learn sooner than from a small fixed deviation

    def encode(self, inputs: Any) -> Encoded:
        return Encoded(self.encoder.encode(self.embed(inputs.pixels_BCHW)))

    def fit(self, weights: dict[str, Tensor], earlier: Any) -> dict[str, Tensor]:
        name, sides = "embed.position.table.weight", getattr(earlier, "sides", self.config.sides)
        if name not in weights or sides == self.config.sides:
            return weights
        return weights | {name: resized_grid(weights[name], earlier.before, sides, self.config.sides)}


def _around(config: ViTConfig) -> Iterator[Residual]:
    """A residual connection for each sublayer, from the first layer on."""
    for number in range(config.layers):
        rate = config.drop_path * number / max(config.layers - 1, 1)
        for _ in range(2):
            scale = LayerScale(config.width, config.layer_scale) if config.layer_scale else None
            path = StochasticDepth(rate) if rate else None
            yield Residual(config.norm.norm(config.width), scale, dropout=config.dropout, path=path)
