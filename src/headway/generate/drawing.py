"""What a model found in a picture, drawn onto it: masks as veils of colour, boxes with their labels.

H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.image_files import opened

LEAST = 512  # pixels of the longer side: smaller pictures are scaled up, so that labels can be read
VEIL = 0.4  # how much of a pixel's colour is that of its label
# Colours that people tell apart, whatever their eyes (Okabe and Ito 2008).
COLOURS = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167),
)  # fmt: skip


def colour(number: int) -> tuple[int, int, int]:
    return COLOURS[number % len(COLOURS)]


def canvas(value: Any) -> Any:
    """A picture in colour that is large enough to draw on; of a file, or of an array (H, W, 3)."""
    from PIL import Image

    found = opened(value).convert("RGB")
    scale = -(-LEAST // max(found.size))
    return found.resize((found.width * scale, found.height * scale), Image.Resampling.NEAREST) if scale > 1 else found


def with_masks(image: Any, labels_HW: NDArray[Any]) -> Any:
    """Every pixel veiled by the colour of its label; label 0, the background, stays as it is."""
    from PIL import Image

    colour_HW = np.where(labels_HW > 0, 1 + (labels_HW - 1) % len(COLOURS), 0).astype(np.uint8)
    scaled = np.asarray(Image.fromarray(colour_HW).resize(image.size, Image.Resampling.NEAREST))
    palette = np.array([(0, 0, 0), *COLOURS], float)
    plain = np.asarray(image, float)
    veiled = np.where((scaled > 0)[..., None], (1 - VEIL) * plain + VEIL * palette[scaled], plain)
    return Image.fromarray(veiled.round().astype(np.uint8))


def with_boxes(image: Any, boxes: Sequence[Sequence[float]], labels: Sequence[str], numbers: Sequence[int]) -> Any:
    """Frames with a label each. boxes: left, top, right and bottom, as shares of width and height; numbers: of the
    labels, which choose the colours."""
    from PIL import ImageDraw, ImageFont

    image = image.copy()
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=14)
    for box, label, number in zip(boxes, labels, numbers, strict=True):
        left, top, right, bottom = (
            share * side for share, side in zip(box, (*image.size, *image.size), strict=True)
        )  # fmt: skip
        draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=colour(number), width=3)
        text = draw.textbbox((left, top), label, font=font)
        height = text[3] - text[1] + 6
        above = max(0.0, top - height)
        draw.rectangle((left, above, left + text[2] - text[0] + 6, above + height), fill=colour(number))
        draw.text((left + 3, above), label, fill=(0, 0, 0), font=font)
    return image


def with_caption(image: Any, text: str) -> Any:
    """The picture with a text below it."""
    from textwrap import wrap

    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=16)
    lines = wrap(text, max(8, image.width // 8)) or [""]
    whole = Image.new("RGB", (image.width, image.height + 22 * len(lines) + 10), "white")
    whole.paste(image, (0, 0))
    draw = ImageDraw.Draw(whole)
    for number, line in enumerate(lines):
        draw.text((8, image.height + 4 + 22 * number), line, fill=(0, 0, 0), font=font)
    return whole
