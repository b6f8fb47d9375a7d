"""One picture, of any file that Pillow reads or of an array, as bytes of one size.

Transparent pixels become white, 16 bits become 8, and a photograph is turned as its camera says. A picture is measured
before it is unpacked, so that a small file cannot fill the memory.

C channels, H height, W width.
"""

from __future__ import annotations

import struct
import warnings
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".avif", ".bmp", ".gif", ".tif", ".tiff")
MOST = 1 << 27  # pixels of a picture that is unpacked
SIXTEEN_BITS = 257  # the largest value of 16 bits is so many times that of 8
MODES = {1: "L", 3: "RGB"}
Bytes = NDArray[np.uint8]
Resample = Literal["nearest", "bilinear", "bicubic", "lanczos"]


@cache
def _pillow() -> Any:
    from PIL import Image

    # A large picture is refused here with a line of our own; Pillow warns of smaller ones.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    return Image


def picture(value: Any, channels: int, size: tuple[int, int], resample: Resample = "bilinear", edge: int = 0) -> Bytes:
    """(C, H, W) of a file's path, of Pillow's image, or of an array (H, W), (H, W, 3) or (H, W, 4) of bytes: scaled to
    `size` (height, width), with one channel in grey or three in colour. edge: scaled to a square of so many pixels
    first, of which the middle is taken."""
    if isinstance(value, np.ndarray) and value.shape == (*size, channels) and value.dtype == np.uint8 and not edge:
        return value.transpose(2, 0, 1)  # nothing is left to do
    found = flat(opened(value), value).convert(MODES[channels])
    height, width = size
    scaled = (edge, edge) if edge else (width, height)
    if found.size != scaled:
        found = found.resize(scaled, _pillow().Resampling[resample.upper()])
    if edge:
        left, top = (edge - width) // 2, (edge - height) // 2
        found = found.crop((left, top, left + width, top + height))
    return np.asarray(found, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)


def opened(value: Any) -> Any:
    """Pillow's image, unpacked."""
    from PIL import ImageOps, UnidentifiedImageError

    Image = _pillow()
    if isinstance(value, np.ndarray):
        return Image.fromarray(_drawable(value))
    try:
        image = value if isinstance(value, Image.Image) else Image.open(value)
        width, height = image.size
        if width * height > MOST:
            raise Image.DecompressionBombError(f"{width:,} × {height:,} pixels")
        image.load()
        return ImageOps.exif_transpose(image)
    except FileNotFoundError:
        raise InputError(f"there is no picture {value}") from None
    except IsADirectoryError:
        raise InputError(f"{value} is a folder: give a picture, or the pictures in it") from None
    except Image.DecompressionBombError as error:
        raise InputError(f"{value} is too large ({error}; at most {MOST:,} pixels): scale it down first") from None
    except UnidentifiedImageError:
        raise InputError(f"{value} is no picture that can be read ({', '.join(SUFFIXES)})") from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        raise InputError(f"{value} is no whole picture: {str(error) or type(error).__name__}") from error


def flat(image: Any, value: Any) -> Any:
    """The image in 8 bits and without transparency."""
    if image.mode.startswith("I"):
        high = np.asarray(image).astype(np.int64)
        return _pillow().fromarray((high.clip(0, 65535) // SIXTEEN_BITS).astype(np.uint8))
    if image.mode == "F":
        raise InputError(f"{value} has pixels in floating point: save it with 8 or 16 bits")
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    white = _pillow().new("RGBA", image.size, "white")
    return _pillow().alpha_composite(white, image).convert("RGB")


def _drawable(array: NDArray[Any]) -> Bytes:
    """(H, W), (H, W, 3) or (H, W, 4)."""
    grey = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1)
    if array.dtype != np.uint8 or not array.size or not (grey or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(
            f"a picture is an array of bytes (height, width) or (height, width, 3), not {array.dtype} {array.shape}"
        )
    return array.reshape(array.shape[:2]) if grey else array
