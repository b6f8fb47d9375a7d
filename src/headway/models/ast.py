"""The Audio Spectrogram Transformer (Gong et al. 2021): a Vision Transformer whose picture is a log-mel spectrogram, a
row for each mel band and a column for each frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from headway.models import parts
from headway.models.vit import Convolutions, Overlapping, Patches, ViTConfig

SIZED = ("spectrograms whose channels are {}", "data.rate")


@dataclass(frozen=True)
class ASTConfig(ViTConfig):
    """As `ViTConfig`; `image` counts mel bands, `across` frames."""

    name: ClassVar[str] = "ast"
    image: int = 128
    across: int = 1024
    norm: parts.PreNorm = field(default_factory=lambda: parts.PreNorm(1e-12))
    stem: Patches | Convolutions | Overlapping = field(default_factory=Overlapping)
    before: int = 2


SIZES = {
    "digits": ASTConfig(64, 8, 4, 128, 256, 4, across=96, before=0, stem=Convolutions(3)),
    "base": ASTConfig(),
}
