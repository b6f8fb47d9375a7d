"""Recordings into a model: log-mel spectrograms of one length, normalised.

N samples, M mel bands, T frames.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from headway.data.sound_files import sound
from headway.errors import refuse
from headway.processors.image import places
from headway.processors.mel import kaldi_log_mel, log_mel

Spectrogram = NDArray[np.float32]


@dataclass(frozen=True)
class SoundConfig:
    """size: channels of a spectrogram, always 1. rate: samples a second; other recordings are resampled. bands: of the
    mel scale. frames: of a spectrogram, one every `hop` samples, each of `window` samples; a shorter recording is
    filled up with silence, of a longer one the beginning is taken. mean, std: of the values of the spectrograms. kind:
    how they are computed, as Whisper does or as Kaldi does."""

    name: ClassVar[str] = "sound"
    size: int = 1
    rate: int = 16000
    bands: int = 80
    frames: int = 3000
    window: int = 400
    hop: int = 160
    mean: float = 0.0
    std: float = 1.0
    kind: Literal["whisper", "kaldi"] = "whisper"

    def __post_init__(self) -> None:
        for name in ("rate", "bands", "frames", "window", "hop"):
            refuse(getattr(self, name) < 1, f"a spectrogram's {name} must be at least 1, not {getattr(self, name)}")
        refuse(self.size != 1, f"a spectrogram has one channel, not {self.size}")

    @property
    def seconds(self) -> float:
        return self.frames * self.hop / self.rate

    @property
    def summary(self) -> str:
        return f"recordings of {self.seconds:g} s at {self.rate:,} Hz, {self.bands} mel bands"

    @property
    def title(self) -> str:
        return ""

    def settings(self, name: str) -> dict[str, Any]:
        return {"rate": self.rate, "window": self.window, "hop": self.hop}

    def open(self, folder: Path, opened: Sequence[Any] = ()) -> SoundProcessor:
        return SoundProcessor(self)


@final
class SoundProcessor:
    """Recordings (files, arrays, or pairs of an array and its rate) to normalised spectrograms (1, M, T)."""

    def __init__(self, config: SoundConfig) -> None:
        self.config = config

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(repr(self.config).encode(), digest_size=16).hexdigest()

    @property
    def scale(self) -> tuple[Spectrogram, Spectrogram]:
        """Mean and standard deviation, of the values of a spectrogram."""
        return tuple(np.full((1, 1, 1), number, np.float32) for number in (self.config.mean, self.config.std))  # type: ignore[return-value]

    def read(self, value: Any) -> Spectrogram:
        """(1, M, T), not normalised."""
        config = self.config
        samples_N = sound(value, config.rate, config.seconds + config.window / config.rate)
        if config.kind == "kaldi":
            found_MT = kaldi_log_mel(samples_N, config.rate, config.window, config.hop, config.bands)[
                :, : config.frames
            ]
            return np.pad(found_MT, ((0, 0), (0, config.frames - found_MT.shape[1])))[None]
        padded_N = np.pad(samples_N, (0, max(0, config.frames * config.hop - len(samples_N))))
        padded_N = padded_N[: config.frames * config.hop]
        return log_mel(padded_N, config.rate, config.window, config.hop, config.bands)[None, :, : config.frames]

    def encode(self, values: Sequence[Any]) -> list[Spectrogram]:
        mean, std = self.scale
        return [(self.read(value) - mean) / std for value in values]

    def save(self, folder: Path) -> None:
        """All of it is in the card."""

    def track(self, sides: tuple[int, int], before: int = 1) -> tuple[str, ...]:
        """What a trace shows at each place: columns are moments, of which the middle is named, rows pitches, from the
        lowest on."""
        (rows, columns), names = sides, places(sides, before)
        middles = [f"{(column + 0.5) / columns * self.config.seconds:.2f} s" for column in range(columns)]
        moments = [moment if rows == 1 else f"{moment}, row {row}" for row in range(rows) for moment in middles]
        return (*names[:before], *moments)
