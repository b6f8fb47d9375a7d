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
from headway.extras import wanted

LARGEST = 1 << 14  # pixels of a side
MOST = np.iinfo(np.int16).max  # objects of a picture


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
    return _polygons(outline, size, place) if isinstance(outline, list) else _runs(outline, size, place)


def _polygons(outline: list[Any], size: tuple[int, int], place: Path) -> NDArray[np.bool_]:
    mask = wanted("pycocotools.mask", "detection")
    far = 2 * max(size)  # what lies further out needs memory, and shows nothing
    for points in outline:
        good = isinstance(points, list) and len(points) >= 6 and len(points) % 2 == 0
        if not good or not all(type(value) in (int, float) and abs(value) <= far for value in points):
            raise InputError(f"{place}: a polygon must be three or more points x, y in the picture, not "
                             f"{str(points)[:80]}")  # fmt: skip
    refuse(not outline, f"{place}: a segmentation has no polygon")
    found: NDArray[np.bool_] = mask.decode(mask.merge(mask.frPyObjects(outline, *size))).astype(bool)
    return found


def _runs(outline: Any, size: tuple[int, int], place: Path) -> NDArray[np.bool_]:
    """Lengths of runs, outside and inside by turns, down the columns; or the same packed into a text. The library
    writes beyond its memory where runs do not fit the picture, so they are read here."""
    counts = outline.get("counts") if isinstance(outline, dict) else None
    runs: Any = unpacked(counts) if isinstance(counts, str) else counts
    good = isinstance(runs, list) and all(type(run) is int and run >= 0 for run in runs)
    if not good or sum(runs) != size[0] * size[1] or outline.get("size") != list(size):
        raise InputError(f"{place}: a segmentation must be polygons, or `counts` that fill its `size` "
                         f"{list(size)}, not {str(outline)[:80]}")  # fmt: skip
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(size[::-1]).T


def unpacked(text: str) -> list[int] | None:
    """The runs of a text: each in letters of five bits, the lowest first, and a sixth that says whether more follow;
    from the fourth on its difference to the last but one. None where it is no such text."""
    runs: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - ord("0")
        if not 0 <= bits < 64 or shift > 60:
            return None
        value, shift = value | (bits & 31) << shift, shift + 5
        if not bits & 32:
            value -= bits >> 4 << shift  # negative
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return None if shift else runs
