"""An episode as a film: a GIF or WebP that repeats, each frame with its step and the return so far.

H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from headway.atomic import written
from headway.errors import refuse
from headway.worlds.world import Bytes

SUFFIXES = (".gif", ".webp")
MOST = 150  # frames; of longer episodes every second, third … step is shown
STRIP, LETTER = 14, 6  # pixels below the picture for a line of words, and for a letter of it
WHITE = (255, 255, 255)
EACH, LAST = 40, 800  # milliseconds of a frame, and of the last one


def frames_of(pictures: Sequence[Bytes], rewards: Sequence[float], words: str = "") -> list[Any]:
    """Pillow's images. `words`: what stands on every frame before the step and the return."""
    from PIL import Image, ImageDraw

    every = max(1, -(-len(pictures) // MOST))
    totals = np.cumsum(rewards)
    at = sorted({*range(0, len(pictures), every), len(pictures) - 1})
    found = []
    for step in at:
        picture = pictures[step]
        height, width = picture.shape[:2]
        lines = wrap(f"{words}step {step + 1}, return {totals[step]:.4g}", max(8, width // LETTER))
        frame = Image.new("RGB", (width, height + STRIP * len(lines)), WHITE)
        frame.paste(Image.fromarray(picture), (0, 0))
        for number, line in enumerate(lines):
            ImageDraw.Draw(frame).text((4, height + STRIP * number + 2), line, fill=(30, 30, 30))
        found.append(frame)
    return found


def veiled(picture: Bytes, share: Any) -> Bytes:
    """A picture that is bright where the share (rows, columns) is high, and dark elsewhere."""
    from PIL import Image

    scaled = (255 * share / max(float(share.max()), 1e-9)).astype(np.uint8)
    light = Image.fromarray(scaled).resize(picture.shape[1::-1], Image.Resampling.BICUBIC)
    strength = 0.25 + 0.75 * np.asarray(light, np.float32)[..., None] / 255
    return (picture * strength).round().astype(np.uint8)


def write_film(path: Path, frames: Sequence[Any]) -> None:
    refuse(path.suffix.lower() not in SUFFIXES, f"{path}: a film is written as {' or '.join(SUFFIXES)}")
    refuse(not frames, f"{path}: there is nothing to show")
    frames = _alike(frames)
    times = [EACH] * (len(frames) - 1) + [LAST]
    first, *others = (frame.convert("P", palette=1, colors=64) if path.suffix == ".gif" else frame for frame in frames)
    with written(path) as part, part.open("wb") as file:
        first.save(file, path.suffix[1:].upper(), save_all=True, append_images=others, duration=times, loop=0)


def _alike(frames: Sequence[Any]) -> list[Any]:
    """All as high as the highest."""
    from PIL import Image

    width, height = (max(frame.size[side] for frame in frames) for side in (0, 1))
    found = []
    for frame in frames:
        found.append(Image.new("RGB", (width, height), WHITE))
        found[-1].paste(frame, (0, 0))
    return found
