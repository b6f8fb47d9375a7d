"""Changes of a batch of pictures against Pillow's, picture by picture."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from headway.data import image_changes
from headway.data.augment import Augment, Draws
from headway.data.image_changes import KINDS, NUMBER, changed, inside, sampled

RNG = np.random.default_rng(5)
HEIGHT, WIDTH = 18, 22
SAME = torch.eye(2, 3)


def smooth_pictures(count: int, channels: int) -> np.ndarray:
    """Bytes (N, H, W, C) with large shapes in them, and not all values."""
    small = RNG.integers(10, 220, (count, 5, 5, channels), dtype=np.uint8)
    sizes = [Image.fromarray(one.squeeze()).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC) for one in small]
    return np.stack([np.asarray(one).reshape(HEIGHT, WIDTH, channels) for one in sizes])


def tensor(pictures: np.ndarray) -> Tensor:
    return torch.from_numpy(pictures.transpose(0, 3, 1, 2).copy()).float()


def by_pillow(kind: str, factor: float, image: Image.Image) -> Image.Image:
    enhanced = {
        "brightness": ImageEnhance.Brightness, "colour": ImageEnhance.Color, "contrast": ImageEnhance.Contrast,
        "sharpness": ImageEnhance.Sharpness,
    }  # fmt: skip
    if kind in enhanced:
        return enhanced[kind](image).enhance(factor)
    return {
        "identity": lambda: image, "posterise": lambda: ImageOps.posterize(image, int(factor)),
        "solarise": lambda: ImageOps.solarize(image, factor), "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalise": lambda: ImageOps.equalize(image),
    }[kind]()  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("kind", "factor"),
    [("identity", 1.0), ("brightness", 0.6), ("brightness", 1.5), ("colour", 0.4), ("colour", 1.6), ("contrast", 0.3),
     ("contrast", 1.7), ("sharpness", 0.1), ("sharpness", 1.9), ("posterise", 3.0), ("posterise", 8.0),
     ("solarise", 128.0), ("solarise", 0.0), ("autocontrast", 1.0), ("equalise", 1.0)],
)  # fmt: skip
def test_values_are_those_of_pillow(kind: str, factor: float, channels: int) -> None:
    pictures = smooth_pictures(4, channels)
    pictures[3] = 77  # one value alone
    kinds_B = torch.tensor([NUMBER[kind]] * 4)
    found = changed(tensor(pictures), kinds_B, SAME.expand(4, 2, 3), torch.full((4,), factor))
    for row, given in enumerate(pictures):
        wanted = np.asarray(by_pillow(kind, factor, Image.fromarray(given.squeeze()))).reshape(given.shape)
        gap = (found[row].permute(1, 2, 0) - torch.from_numpy(wanted.astype(np.float32))).abs()
        # Of a blend Pillow cuts off what is rounded here; of a whole number it sometimes finds a little less.
        blend = kind in ("brightness", "colour", "contrast", "sharpness")
        most, mean = (1, 1) if blend else (1, 0.02) if kind == "autocontrast" else (1e-3, 1e-3)
        assert gap.max() <= most and gap.mean() <= mean, (row, gap.max(), gap.mean())


MOVES = {
    "shear-x": (1, 0.2, 0, 0, 1, 0), "shear-y": (1, 0, 0, -0.15, 1, 0), "translate-x": (1, 0, 3.5, 0, 1, 0),
    "translate-y": (1, 0, 0, 0, 1, -4.25), "turned": (0.9, 0.3, -2, -0.3, 0.9, 5), "mirrored": (-1, 0, WIDTH, 0, 1, 0),
    "zoomed": (0.5, 0, 4, 0, 0.5, 3),
}  # fmt: skip


@pytest.mark.parametrize("kind", MOVES)
def test_moves_are_those_of_pillow(kind: str) -> None:
    pictures, matrix = smooth_pictures(3, 3), MOVES[kind]
    found = sampled(tensor(pictures), torch.tensor(matrix).view(1, 2, 3).expand(3, 2, 3).float())
    ones = sampled(torch.ones(3, 3, HEIGHT, WIDTH), torch.tensor(matrix).view(1, 2, 3).expand(3, 2, 3).float())
    within = ones > 0.999  # at the border Pillow takes the last pixel, and here it fades to 0
    assert within.float().mean() > 0.4
    for row, given in enumerate(pictures):
        how = (Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        wanted = np.asarray(Image.fromarray(given).transform((WIDTH, HEIGHT), *how)).astype(np.float32)
        gap = (found[row].permute(1, 2, 0) - torch.from_numpy(wanted)).abs()
        assert gap[within[row].permute(1, 2, 0)].max() < 1.01  # Pillow cuts off, and this is not rounded


def test_each_row_has_its_own_operation() -> None:
    pictures = tensor(smooth_pictures(len(KINDS), 3))
    draws = Draws(Augment(operations=1, strength=20), HEIGHT, WIDTH)
    kinds_B, factor_B = torch.arange(len(KINDS)), torch.tensor([1.0] * 6 + [1.4] * 4 + [4.0, 90.0, 1.0, 1.0])
    matrix_B23 = torch.from_numpy(
        np.concatenate([draws._move(kind, np.array([0.7])) for kind in KINDS]).astype(np.float32)
    )
    together = changed(pictures, kinds_B, matrix_B23, factor_B)
    for row in range(len(KINDS)):
        alone = changed(pictures[row, None], kinds_B[row, None], matrix_B23[row, None], factor_B[row, None])
        assert torch.equal(together[row], alone[0])
    assert torch.allclose(together[0], pictures[0], atol=1e-3)
    assert all(not torch.allclose(together[row], pictures[row], atol=2) for row in range(1, len(KINDS)))


def test_rotation_turns_about_the_middle() -> None:
    draws = Draws(Augment(), HEIGHT, WIDTH)
    [matrix] = draws._move("rotate", np.array([0.5]))
    middle = np.array([WIDTH / 2, HEIGHT / 2, 1])
    assert np.allclose(matrix @ middle, middle[:2])
    assert np.allclose(matrix[:, :2], [[math.cos(math.pi / 12), math.sin(math.pi / 12)],
                                       [-math.sin(math.pi / 12), math.cos(math.pi / 12)]])  # fmt: skip


def test_a_box_has_its_pixels() -> None:
    found = inside(torch.tensor([[1, 2, 4, 3], [0, 0, 0, 0]]), 5, 6)
    wanted = torch.zeros(5, 6, dtype=torch.bool)
    wanted[1:4, 2:3] = True
    assert torch.equal(found[0, 0], wanted) and not found[1].any()


def test_grey_of_grey_is_itself_and_a_histogram_counts_all() -> None:
    pictures = tensor(smooth_pictures(2, 1))
    assert image_changes.grey(pictures) is pictures
    assert (image_changes.histogram(pictures).sum(-1) == HEIGHT * WIDTH).all()
