"""The masks of COCO's annotations (Lin et al. 2014): polygons, and runs of pixels, packed or not.

H height, W width of a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.annotated import Shorts
from headway.errors import InputError, refuse

LARGEST = 1 << 14  # pixels of a side
MOST = np.iinfo(np.int16).max  # objects of a picture


def _library(place: Path) -> Any:
    try:
        from pycocotools import mask
    except ImportError:
        raise InputError(
            f"to read the masks of {place}, install pycocotools: pip install 'headway[detection]'"
        ) from None
    return mask


def object_map(outlines: Sequence[Any], size: tuple[int, int], place: Path) -> Shorts:
    """(H, W): the number of the object of each pixel, from 1 on, 0 for none. Where several cover a pixel, it is the
    smallest's, so that none is hidden by what lies behind it."""
    refuse(not 1 <= min(size) <= max(size) <= LARGEST,
           f"{place}: width and height of an image must be from 1 to {LARGEST:,}")  # fmt: skip
    refuse(len(outlines) > MOST, f"{place}: an image has more than {MOST:,} objects")
    covered = [outline_mask(outline, size, place) for outline in outlines]
    objects_HW = np.zeros(size, np.int16)
    for at in sorted(range(len(covered)), key=lambda at: -int(covered[at].sum())):
        objects_HW[covered[at]] = at + 1
    return objects_HW


def outline_mask(outline: Any, size: tuple[int, int], place: Path) -> NDArray[np.bool_]:
    """(H, W): the pixels of one `segmentation`."""
    library, (height, width) = _library(place), size
    try:
        if isinstance(outline, list):
            runs = library.merge(library.frPyObjects(_polygons(outline, size, place), height, width))
        else:
            runs = _runs(outline, size, place)
            runs = runs if isinstance(runs["counts"], bytes) else library.frPyObjects(runs, height, width)
        found: NDArray[np.bool_] = library.decode(runs).astype(bool)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InputError(f"{place}: a segmentation cannot be read: {str(error)[:80]}") from None
    return found


def _polygons(outline: list[Any], size: tuple[int, int], place: Path) -> list[list[float]]:
    far = 2 * max(size)  # what lies further out needs memory, and shows nothing
    for points in outline:
        good = isinstance(points, list) and len(points) >= 6 and len(points) % 2 == 0
        if not good or not all(type(value) in (int, float) and abs(value) <= far for value in points):
            raise InputError(f"{place}: a polygon must be three or more points x, y in the picture, not "
                             f"{str(points)[:80]}")  # fmt: skip
    refuse(not outline, f"{place}: a segmentation has no polygon")
    return outline


def _runs(outline: Any, size: tuple[int, int], place: Path) -> dict[str, Any]:
    """Lengths of runs, outside and inside by turns, down the columns; or the same packed into a text."""
    counts = outline.get("counts") if isinstance(outline, dict) else None
    if isinstance(counts, str) and counts.isascii():
        counts = counts.encode()
    good = isinstance(counts, bytes) or (
        isinstance(counts, list)
        and all(type(run) is int and run >= 0 for run in counts)
        and sum(counts) == np.prod(size)
    )
    if not good or list(outline.get("size", ())) != list(size):
        raise InputError(f"{place}: a segmentation must be polygons, or `counts` that fill its `size` "
                         f"{list(size)}, not {str(outline)[:80]}")  # fmt: skip
    return {"size": list(size), "counts": counts}
