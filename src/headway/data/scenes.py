"""Scenes that are drawn, so that everything about them is known: coloured shapes on a grey ground.

A scene is a function of a seed and its number. Shapes do not touch, none is cut off, and which of two is further left,
and whether they lie beside or above each other, is never close: a caption is true or false. A caption tells the shapes
from left to right:

    caption  = object, or object relation caption
    object   = "a" size colour shape
    relation = "left of", "above" or "below", as the next object lies to the last

B scenes, K shapes of a scene, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.batch import IGNORED
from headway.data.annotated import Annotated
from headway.errors import refuse

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 70, 230),
    "yellow": (235, 215, 50),
    "purple": (160, 50, 200),
    "cyan": (60, 210, 220),
}
SIZES = {"small": (6, 8), "large": (11, 14)}  # from a shape's middle to its edge, of pictures of 64 pixels
PIXELS = 64
JITTER = 20  # by which a colour may differ from its name's, in each channel
NOISE = 48  # the strongest of a ground
TRIES = 24  # places that are tried for a shape; one that finds none is left out
APART = 2  # the least pixels between two shapes
CLEAR = 3  # the least difference that decides a caption, in pixels
Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Short = NDArray[np.int16]


@dataclass(frozen=True)
class Scenes:
    """count: scenes that are called an epoch; no two epochs have one in common. held: scenes of the validation, and as
    many of the test. most: shapes of a scene. noise: the share of scenes whose ground is noisy."""

    count: int = 20_000
    held: int = 500
    most: int = 4
    noise: float = 0.5

    def __post_init__(self) -> None:
        for name in ("count", "held", "most"):
            value = getattr(self, name)
            refuse(not 1 <= value <= 10**9, f"data.scenes.{name} must be from 1 to 10**9, not {value}")
        refuse(self.most > 16, f"data.scenes.most must be at most 16, not {self.most}")
        refuse(not 0 <= self.noise <= 1, f"data.scenes.noise must lie between 0 and 1, not {self.noise}")


def words(seed: int, numbers_B: Numbers, count: int, stream: int) -> Words:
    """(B, count) of 64 random bits, a function of the seed, the number of a scene and the stream: the finaliser of
    SplitMix64 over a counter (Steele et al. 2014)."""
    key = np.random.SeedSequence((seed, stream)).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        at = numbers_B.astype(np.uint64)[:, None] * np.uint64(count) + np.arange(count, dtype=np.uint64)
        z = (at + key) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def whole(draws: Words, below: int | Numbers) -> Numbers:
    """Whole numbers from 0 on, below a limit, from the upper half of random words."""
    return ((draws >> np.uint64(32)).astype(np.int64) * np.asarray(below, np.int64)) >> 32


@dataclass(frozen=True)
class Placed:
    """What is where: the kinds, colours and sizes of shapes, their middles and how far they reach (0: left out)."""

    kinds_BK: Numbers
    colours_BK: Numbers
    sizes_BK: Numbers
    x_BK: Numbers
    y_BK: Numbers
    reach_BK: Numbers


def placed(scenes: Scenes, seed: int, numbers_B: Numbers, size: int = PIXELS) -> Placed:
    rows, most = len(numbers_B), scenes.most
    draws = words(seed, numbers_B, 1 + most * 4, 1)
    wanted_B = 1 + whole(draws[:, 0], most)
    kind, colour, large, far = (draws[:, 1 + part * most : 1 + (part + 1) * most] for part in range(4))
    sizes_BK = whole(large, len(SIZES))
    least, furthest = (np.array([max(reach[end] * size // PIXELS, 1) for reach in SIZES.values()]) for end in (0, 1))
    reach_BK = least[sizes_BK] + whole(far, furthest[sizes_BK] - least[sizes_BK] + 1)
    reach_BK *= np.arange(most) < wanted_B[:, None]
    tries = words(seed, numbers_B, most * TRIES * 2, 2).reshape(rows, most, 2, TRIES)
    found = Placed(
        whole(kind, len(SHAPES)), whole(colour, len(COLOURS)), sizes_BK, np.zeros_like(reach_BK),
        np.zeros_like(reach_BK), np.zeros_like(reach_BK),
    )  # fmt: skip
    clear = max(CLEAR * size // PIXELS, 1)
    for k in range(most):
        reach_B1 = reach_BK[:, k : k + 1]
        x_BT, y_BT = (reach_B1 + whole(tries[:, k, axis], size - 2 * reach_B1) for axis in (0, 1))
        good_BT = np.ones(x_BT.shape, bool)
        for other in range(k):
            beside = found.reach_BK[:, other : other + 1]
            dx, dy = (np.abs(a - b[:, other : other + 1]) for a, b in ((x_BT, found.x_BK), (y_BT, found.y_BK)))
            apart = np.maximum(dx, dy) > reach_B1 + beside + APART
            good_BT &= (beside == 0) | (apart & (dx >= clear) & (np.abs(dx - dy) >= clear))
        at_B = good_BT.argmax(1)
        rows_B = np.arange(rows)
        found.x_BK[:, k], found.y_BK[:, k] = x_BT[rows_B, at_B], y_BT[rows_B, at_B]
        found.reach_BK[:, k] = reach_BK[:, k] * good_BT.any(1)
    return found


def inside(kind: int, dx_BW: Short, dy_BH: Short, reach_B: Short) -> NDArray[np.bool_]:
    """(B, H, W): which pixels a shape covers, by their distances from its middle."""
    dx, dy, reach = dx_BW[:, None, :], dy_BH[:, :, None], reach_B[:, None, None]
    near = (np.abs(dx) <= reach) & (np.abs(dy) <= reach)
    if SHAPES[kind] == "circle":
        return dx * dx + dy * dy <= reach * (reach + 1)
    if SHAPES[kind] == "triangle":
        return near & (2 * np.abs(dx) <= dy + reach)
    if SHAPES[kind] == "cross":
        return near & ((np.abs(dx) <= reach // 3) | (np.abs(dy) <= reach // 3))
    return near


def drawn(scenes: Scenes, seed: int, numbers: Numbers, size: int = PIXELS) -> Annotated:
    """The scenes of these numbers as pictures, with all that is in them."""
    numbers_B = np.asarray(numbers, np.int64)
    found = placed(scenes, seed, numbers_B, size)
    rows, most = found.reach_BK.shape
    owner_BHW = np.zeros((rows, size, size), np.int32)
    along = np.arange(size, dtype=np.int16)
    for k in range(most):
        x_B, y_B, reach_B = (part[:, k].astype(np.int16) for part in (found.x_BK, found.y_BK, found.reach_BK))
        for kind in range(len(SHAPES)):
            [at] = np.nonzero((found.kinds_BK[:, k] == kind) & (reach_B > 0))
            covered = inside(kind, along - x_B[at, None], along - y_B[at, None], reach_B[at])
            owner_BHW[at] += covered * np.int32(k + 1)  # shapes do not touch
    objects_BHW = owner_BHW.astype(np.int16)
    owner_BHW += (np.arange(rows) * (most + 1)).astype(owner_BHW.dtype)[:, None, None]  # a row of one table for all
    kinds_BO = np.concatenate([np.zeros((rows, 1), np.uint8), 1 + found.kinds_BK.astype(np.uint8)], 1)
    masks_BHW = kinds_BO.ravel().take(owner_BHW)
    there_BK = found.reach_BK > 0
    edges = (found.x_BK - found.reach_BK, found.y_BK - found.reach_BK, found.x_BK + found.reach_BK + 1,
             found.y_BK + found.reach_BK + 1)  # fmt: skip
    boxes_BK4 = (np.stack(edges, -1) / size).astype(np.float32) * there_BK[..., None]
    return Annotated(
        _painted(scenes, seed, numbers_B, found, owner_BHW, masks_BHW > 0), SHAPES, boxes_BK4,
        np.where(there_BK, found.kinds_BK, IGNORED), masks_BHW, objects_BHW, tuple((text,) for text in captions(found)),
        tuple(f"scene {number} of seed {seed}" for number in numbers_B.tolist()),
    )  # fmt: skip


def _painted(
    scenes: Scenes, seed: int, numbers_B: Numbers, found: Placed, owner_BHW: NDArray[np.int32],
    covered_BHW: NDArray[np.bool_],
) -> NDArray[np.uint8]:  # fmt: skip
    """(B, 3, H, W): the shapes in their colours, the ground grey and, in some scenes, noisy."""
    rows, size = len(owner_BHW), owner_BHW.shape[1]
    most = found.kinds_BK.shape[1]
    draws = words(seed, numbers_B, 3 + 3 * most, 3)
    grey_B, strength_B = 60 + whole(draws[:, 0], 136), 8 + whole(draws[:, 1], NOISE - 7)
    strength_B *= whole(draws[:, 2], 1 << 20) < scenes.noise * (1 << 20)
    colours_BKC = np.array(list(COLOURS.values()))[found.colours_BK]
    colours_BKC = colours_BKC + whole(draws[:, 3:], 2 * JITTER + 1).reshape(rows, most, 3) - JITTER
    noise = words(seed, numbers_B, -(-size * size // 8), 4).view(np.uint8)[:, : size * size].reshape(owner_BHW.shape)
    swing = (noise.astype(np.int16) - 128) * strength_B.astype(np.int16)[:, None, None] >> 7
    ground_BHW = (swing + grey_B.astype(np.int16)[:, None, None]).astype(np.uint8)  # from 12 to 243
    palette_BOC = np.zeros((rows, most + 1, 3), np.uint8)
    palette_BOC[:, 1:] = colours_BKC.clip(0, 255)
    pixels_BCHW = np.empty((rows, 3, size, size), np.uint8)
    for channel in range(3):
        painted_BHW = palette_BOC[:, :, channel].ravel().take(owner_BHW)
        pixels_BCHW[:, channel] = np.where(covered_BHW, painted_BHW, ground_BHW)
    return pixels_BCHW


def captions(found: Placed) -> Iterator[str]:
    """One of each scene."""
    sizes, colours = tuple(SIZES), tuple(COLOURS)
    for row in range(len(found.x_BK)):
        order = [k for k in np.argsort(found.x_BK[row], kind="stable").tolist() if found.reach_BK[row, k]]
        text = ""
        for last, k in zip([None, *order], order, strict=False):
            if last is not None:
                text += f" {relation(*(int(part[row, k] - part[row, last]) for part in (found.x_BK, found.y_BK)))} "
            named = (sizes[found.sizes_BK[row, k]], colours[found.colours_BK[row, k]], SHAPES[found.kinds_BK[row, k]])
            text += f"a {' '.join(named)}"
        yield text


def relation(dx: int, dy: int) -> str:
    """How an object lies to the next one, which is so many pixels further right and down."""
    if abs(dy) <= dx:
        return "left of"
    return "above" if dy > 0 else "below"
