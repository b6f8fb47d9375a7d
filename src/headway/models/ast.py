"""The Audio Spectrogram Transformer (Gong et al. 2021): a Vision Transformer whose picture is a log-mel spectrogram, a
row for each mel band and a column for each frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from headway.models import parts
from headway.models.vit import Convolutions, Overlapping, Patches, ViTConfig
from headway.nn.patches import FrameEmbedding
from headway.nn.position import Position

SIZED = ("spectrograms whose channels are {}", "data.rate")


@dataclass(frozen=True)
class Frames:
    """A place for every second frame, all of its bands together, as Whisper reads them."""

    name: ClassVar[str] = "frames"

    def sides(self, config: ViTConfig) -> tuple[int, int]:
        return 1, -(-config.size[1] // 2)

    def build(self, config: ViTConfig, channels: int, position: Position) -> FrameEmbedding:
        return FrameEmbedding(config.image, config.width, position, config.dropout, config.before)


@dataclass(frozen=True)
class ASTConfig(ViTConfig):
    """As `ViTConfig`; `image` counts mel bands, `across` frames."""

    name: ClassVar[str] = "ast"
    image: int = 128
    across: int = 1024
    norm: parts.PreNorm = field(default_factory=lambda: parts.PreNorm(1e-12))
    stem: Patches | Convolutions | Overlapping | Frames = field(default_factory=Overlapping)  # type: ignore[assignment]
    before: int = 2


SIZES = {
    "digits": ASTConfig(64, 8, 4, 128, 256, 4, across=96, before=0, stem=Frames()),
    "base": ASTConfig(),
}
