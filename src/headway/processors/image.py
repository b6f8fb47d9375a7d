"""Pictures into a model: pixels of one size, normalised; and the patches that a trace shows.

C channels, H height, W width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from headway.data.image_files import Bytes, Resample, picture
from headway.errors import refuse

SPECIALS = ("[class]", "[distilled]")


def places(sides: tuple[int, int], before: int) -> tuple[str, ...]:
    """The learned tokens, then row and column of each place of a grid, from 0."""
    rows, columns = sides
    return (*SPECIALS[:before], *(f"{row},{column}" for row in range(rows) for column in range(columns)))


@dataclass(frozen=True)
class ImageConfig:
    """size: channels, 1 (grey) or 3 (colour). height, width: in pixels; other pictures are scaled. mean, std: of each
    channel, for pixels from 0 to 1. resample: how pictures are scaled; edge: to a square of so many pixels first, of
    which the middle is taken."""

    name: ClassVar[str] = "image"
    size: int
    height: int
    width: int
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    resample: Resample = "bilinear"
    edge: int = 0

    def __post_init__(self) -> None:
        refuse(self.size not in (1, 3), f"a picture has 1 channel (grey) or 3 (colour), not {self.size}")

    @property
    def summary(self) -> str:
        return f"pictures of {self.height} × {self.width} in {'grey' if self.size == 1 else 'colour'}"

    @property
    def title(self) -> str:
        return ""

    def settings(self, name: str) -> dict[str, Any]:
        return {"channels": self.size}

    def open(self, folder: Path, opened: Sequence[Any] = ()) -> ImageProcessor:
        return ImageProcessor(self)


@final
class ImageProcessor:
    """Pictures (files, or arrays of bytes) to normalised pixels (C, H, W), and back to bytes (H, W, C)."""

    def __init__(self, config: ImageConfig) -> None:
        self.config = config
        shape = (config.size, 1, 1)
        self.mean_C11 = np.broadcast_to(np.reshape(config.mean, (-1, 1, 1)), shape).astype(np.float32)
        self.std_C11 = np.broadcast_to(np.reshape(config.std, (-1, 1, 1)), shape).astype(np.float32)

    @property
    def scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and standard deviation of each channel, of bytes."""
        return 255 * self.mean_C11, 255 * self.std_C11

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(repr(self.config).encode(), digest_size=16).hexdigest()

    def read(self, value: Any) -> Bytes:
        """The pixels of one picture, (C, H, W)."""
        config = self.config
        return picture(value, config.size, (config.height, config.width), config.resample, config.edge)

    def normalise(self, pixels: Bytes) -> NDArray[np.float32]:
        """(x/255 − mean) / std, of one picture or a batch."""
        scaled: NDArray[np.float32] = pixels.astype(np.float32) / np.float32(255)
        return ((scaled - self.mean_C11) / self.std_C11).astype(np.float32, copy=False)

    def encode(self, values: Sequence[Any]) -> list[NDArray[np.float32]]:
        return [self.normalise(self.read(value)) for value in values]

    def decode(self, arrays: Sequence[Any]) -> list[Bytes]:
        whole = (np.asarray(array) * self.std_C11 + self.mean_C11 for array in arrays)
        return [(pixels * 255).round().clip(0, 255).astype(np.uint8).transpose(1, 2, 0) for pixels in whole]

    def save(self, folder: Path) -> None:
        """All of it is in the card."""

    def track(self, sides: tuple[int, int], before: int = 1) -> tuple[str, ...]:
        """What a trace shows at each place."""
        return places(sides, before)
