"""A model of recordings: recordings in; their labels, or a trace over the patches of their spectrograms out.

B batch, M mel bands, T frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.generate.encoder import Guess
from headway.generate.one_or_many import one_or_many
from headway.generate.pictures import GridModel


def is_sound(value: Any) -> bool:
    """Whether it is one recording: a file's path, an array of samples, or a pair of that and its rate."""
    return isinstance(value, str | Path | np.ndarray | tuple)


def brightness(values_MT: Any) -> Any:
    """(M, T, 1) of bytes: a spectrogram as the page draws it."""
    low, high = float(values_MT.min()), float(values_MT.max())
    return ((values_MT - low) / max(high - low, 1e-6) * 255).round().astype(np.uint8)[:, :, None]


class SoundModel(GridModel):
    """`headway.load(folder)` gives one: `model.classify("seven.wav")`, or a list of recordings. A recording is a file's
    path, an array of samples at the model's rate, or a pair of an array and its own rate."""

    what = "recording"
    rises = True

    @one_or_many(is_sound)
    @torch.inference_mode()
    def classify(self, recordings: Sequence[Any]) -> list[list[Guess]]:
        """The labels of each recording, the most probable first."""
        return self.classified(recordings)

    def shown(self, value: Any) -> Any:
        """The spectrogram, the lowest band in its first row; loud is bright."""
        return brightness(self.processor.read(value)[0])
