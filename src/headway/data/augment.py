"""Augmentation of training pictures: what is drawn for each row, and the batch that is made of it on the device.

All draws are made on the host and are a function of the seed and the step, so that a resumed run sees the same
pictures; the changes themselves are computed where the model is, inside a compiled or captured step.

B rows, C channels, H height, W width, N operations of RandAugment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import IGNORED, Batch, column
from headway.data import image_changes
from headway.data.image_changes import KINDS, NUMBER, inside
from headway.errors import refuse

Floats = NDArray[np.float64]
LEVELS = 30  # of RandAugment's strength
RATIO = 4 / 3  # the widest of a part that is zoomed into; the narrowest is 1 / RATIO
ERASED_AREA, ERASED_RATIO = (0.02, 1 / 3), 3.3


@dataclass(frozen=True)
class ImageInputs(Batch):
    """Pictures of one size, normalised."""

    pixels_BCHW: Tensor = column()


@dataclass(frozen=True)
class Augment:
    """What happens to training pictures, in this order.

    zoom: the smallest share of the area that is cut out and scaled up (1: none). shift: moved by at most so many pixels
    in each direction, 0 where nothing is. flip: mirrored half of the times. operations, strength: so many of
    RandAugment's, of a strength from 0 to 30 (Cubuk et al. 2020). erase: the share of pictures with a rectangle that is
    erased (Zhong et al. 2020). mixup, cutmix: the α of Beta(α, α), from which the share of a second picture is drawn,
    mixed with the first (Zhang et al. 2018) or in place of a part of it (Yun et al. 2019); of both, each half of the
    times.
    """

    zoom: float = 1.0
    shift: int = 0
    flip: bool = False
    operations: int = 0
    strength: int = 9
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        refuse(not 0 < self.zoom <= 1, f"data.augment.zoom is a share of the area above 0, up to 1, not {self.zoom}")
        refuse(not 0 <= self.erase <= 1, f"data.augment.erase is a share of the pictures, 0 to 1, not {self.erase}")
        refuse(not 0 <= self.strength <= LEVELS, f"data.augment.strength goes from 0 to {LEVELS}, not {self.strength}")
        for name in ("shift", "operations", "mixup", "cutmix"):
            refuse(getattr(self, name) < 0, f"data.augment.{name} must be 0 or more, not {getattr(self, name)}")

    @property
    def mixes(self) -> bool:
        return self.mixup > 0 or self.cutmix > 0


@dataclass(frozen=True)
class DrawnPictures(Batch):
    """Pictures as they are stored, and what is to happen to each: where its pixels come from, its operations, and the
    boxes of top, left, bottom and right that are erased. outside_B: the value outside of a picture (None: 0)."""

    values_BCHW: Tensor = column()
    from_B23: Tensor = column()
    kinds_BN: Tensor = column()
    moves_BN23: Tensor = column()
    factors_BN: Tensor = column()
    erased_BE4: Tensor = column()
    outside_B: Tensor | None = column(default=None)

    def pixels(self, mean_C11: Tensor, std_C11: Tensor) -> Tensor:
        """Changed and normalised."""
        outside_B111 = 0.0 if self.outside_B is None else self.outside_B[:, None, None, None]
        x_BCHW = image_changes.sampled(self.values_BCHW.float() - outside_B111, self.from_B23) + outside_B111
        for n in range(self.kinds_BN.shape[1]):
            x_BCHW = image_changes.changed(x_BCHW, self.kinds_BN[:, n], self.moves_BN23[:, n], self.factors_BN[:, n])
        x_BCHW = (x_BCHW - mean_C11) / std_C11
        for box_B4 in self.erased_BE4.unbind(1):
            x_BCHW = x_BCHW.masked_fill(inside(box_B4, *x_BCHW.shape[2:]), 0.0)
        return x_BCHW


@dataclass(frozen=True)
class AugmentedBatch(Batch):
    """Labelled pictures that are changed where the model is, whenever `inputs` is asked for. mean_C11, std_C11: of the
    values as they are stored. others: the pictures that they are mixed with. share_B: how much of each picture is its
    own; box_B4: where the other one stands alone."""

    pictures: DrawnPictures
    mean_C11: Tensor
    std_C11: Tensor
    labels_B: Tensor = column(pad=IGNORED)
    others: DrawnPictures | None = None
    other_labels_B: Tensor | None = column(pad=IGNORED, default=None)
    share_B: Tensor | None = column(default=None)
    box_B4: Tensor | None = column(default=None)

    def counted(self) -> dict[str, float]:
        labels = int((self.labels_B != IGNORED).sum())
        return {"loss": labels, "nll": labels}

    @property
    def inputs(self) -> ImageInputs:
        x_BCHW = self.pictures.pixels(self.mean_C11, self.std_C11)
        if self.others is None or self.share_B is None or self.box_B4 is None:
            return ImageInputs(x_BCHW)
        other_BCHW = self.others.pixels(self.mean_C11, self.std_C11)
        # In a row with a box nothing else is mixed.
        boxed_B = self.box_B4.any(1)
        own_B111 = torch.where(boxed_B, 1.0, self.share_B)[:, None, None, None]
        mixed_BCHW = own_B111 * x_BCHW + (1 - own_B111) * other_BCHW
        return ImageInputs(torch.where(inside(self.box_B4, *x_BCHW.shape[2:]), other_BCHW, mixed_BCHW))

    def answers(self) -> tuple[tuple[Tensor, Tensor | None], ...]:
        """As those of `LabelBatch`: the labels of both pictures, each by its share."""
        if self.other_labels_B is None or self.share_B is None:
            return ((self.labels_B, None),)
        return (self.labels_B, self.share_B), (self.other_labels_B, 1 - self.share_B)


class Draws:
    """Random parameters for batches of pictures of one size."""

    def __init__(self, augment: Any, height: int, width: int) -> None:
        self.augment, self.height, self.width = augment, height, width

    def pictures(self, values_BCHW: NDArray[Any], *seed: int) -> DrawnPictures:
        """These pictures and what is drawn for them."""
        rows, draw = len(values_BCHW), generator(*seed)
        kinds_BN, moves_BN23, factors_BN = self._operations(rows, draw)
        erased_BE4 = self._erased(rows, draw)[:, None]
        given = (self._places(rows, draw), kinds_BN, moves_BN23, factors_BN, erased_BE4)
        return DrawnPictures(*map(torch.from_numpy, (values_BCHW, *given)))

    def mixture(self, rows: int, *seed: int) -> tuple[Tensor, Tensor]:
        """(`share_B`, `box_B4`) of an `AugmentedBatch`."""
        augment, draw = self.augment, generator(*seed)
        pasted_B = draw.random(rows) < (0.5 if augment.mixup and augment.cutmix else float(augment.cutmix > 0))
        alpha_B = np.where(pasted_B, augment.cutmix or 1.0, augment.mixup or 1.0)
        share_B = draw.beta(alpha_B, alpha_B)
        box_B4 = self._boxes((1 - share_B) * pasted_B, np.ones(rows), draw)
        area_B = (box_B4[:, 2] - box_B4[:, 0]) * (box_B4[:, 3] - box_B4[:, 1])
        share_B = np.where(pasted_B, 1 - area_B / (self.height * self.width), share_B)
        return torch.from_numpy(share_B.astype(np.float32)), torch.from_numpy(box_B4)

    def _places(self, rows: int, draw: np.random.Generator) -> NDArray[np.float32]:
        """(B, 2, 3): where pixels come from, by zoom, shift and mirror."""
        augment, found = self.augment, np.zeros((rows, 2, 3))
        area_B = draw.uniform(augment.zoom, 1.0, rows)
        ratio_B = RATIO ** draw.uniform(-1.0, 1.0, rows) if augment.zoom < 1 else np.ones(rows)
        for axis, (size, part_B) in enumerate(((self.width, area_B * ratio_B), (self.height, area_B / ratio_B))):
            scale_B = np.sqrt(part_B).clip(max=1.0)
            start_B = draw.random(rows) * (1 - scale_B) * size
            shift_B = draw.integers(-augment.shift, augment.shift + 1, rows)
            found[:, axis, axis], found[:, axis, 2] = scale_B, start_B + shift_B
        if augment.flip:
            mirrored_B = draw.random(rows) < 0.5
            found[mirrored_B, 0, 2] += found[mirrored_B, 0, 0] * self.width
            found[mirrored_B, 0, 0] *= -1
        return found.astype(np.float32)

    def _operations(
        self, rows: int, draw: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """Kinds, where pixels come from, and factors."""
        shape, level = (rows, self.augment.operations), self.augment.strength / LEVELS
        kinds_BN = draw.integers(0, len(KINDS), shape)
        sign_BN = draw.choice([-1.0, 1.0], shape)
        factors_BN = np.ones(shape)
        moves_BN23 = np.broadcast_to(np.eye(2, 3), (*shape, 2, 3)).copy()
        for kind, number in NUMBER.items():
            at = kinds_BN == number
            moves_BN23[at] = self._move(kind, level * sign_BN[at])
            factors_BN[at] = _factor(kind, level, sign_BN[at])
        return kinds_BN, moves_BN23.astype(np.float32), factors_BN.astype(np.float32)

    def _move(self, kind: str, level_K: Floats) -> Floats:
        """(K, 2, 3) of rows with an operation of this kind at these levels, −1 to 1."""
        found = np.broadcast_to(np.eye(2, 3), (len(level_K), 2, 3)).copy()
        if kind.startswith("shear"):
            row = kind.endswith("y")
            found[:, int(row), int(not row)] = 0.3 * level_K
        elif kind.startswith("translate"):
            row = kind.endswith("y")
            found[:, int(row), 2] = 150 / 331 * level_K * (self.height if row else self.width)
        elif kind == "rotate":
            angle_K = np.deg2rad(30 * level_K)
            cos_K, sin_K = np.cos(angle_K), np.sin(angle_K)
            middle_2 = np.array([self.width / 2, self.height / 2])
            found[:, :, :2] = np.stack([np.stack([cos_K, sin_K], -1), np.stack([-sin_K, cos_K], -1)], 1)
            found[:, :, 2] = middle_2 - found[:, :, :2] @ middle_2
        return found

    def _erased(self, rows: int, draw: np.random.Generator) -> NDArray[np.int64]:
        chosen_B = draw.random(rows) < self.augment.erase
        ratio_B = ERASED_RATIO ** draw.uniform(-1.0, 1.0, rows)
        return self._boxes(draw.uniform(*ERASED_AREA, rows) * chosen_B, ratio_B, draw)

    def _boxes(self, area_B: Floats, ratio_B: Floats, draw: np.random.Generator) -> NDArray[np.int64]:
        """(B, 4): top, left, bottom and right of boxes that have these shares of the area, anywhere; a share of 0 is no
        box."""
        found = np.empty((len(area_B), 4), np.int64)
        for axis, (size, part_B) in enumerate(((self.height, area_B / ratio_B), (self.width, area_B * ratio_B))):
            length_B = (np.sqrt(part_B).clip(max=1.0) * size).round()
            found[:, axis] = np.floor(draw.random(len(area_B)) * (size - length_B + 1))
            found[:, axis + 2] = found[:, axis] + length_B
        return found * (area_B > 0)[:, None]


def _factor(kind: str, level: float, sign_K: Floats) -> Floats:
    if kind in ("brightness", "colour", "contrast", "sharpness"):
        return 1 + 0.9 * level * sign_K
    fixed = {"posterise": 8 - round(4 * level), "solarise": 255 * (1 - level)}
    return np.full(len(sign_K), fixed.get(kind, 1.0))


def generator(*seed: int) -> np.random.Generator:
    """The same draws for the same seed."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
