"""Changes of pictures, each row with parameters of its own, as tensors on any device.

Pixels are numbers from 0 to 255. The formulas are Pillow's, which RandAugment was defined with (Cubuk et al. 2020),
here for a batch at once. There are three kinds of them: a pixel comes from another place (`sampled`), is mixed with one
of a plainer picture (`blended`), or its value is looked up in a table (`looked_up`). Nothing is copied from the host,
so that a step with them can be captured as a CUDA graph.

B rows, C channels, H height, W width, V values of a pixel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

VALUES = 256
# What one step of RandAugment does with a row: five kinds move pixels, then come four blends and four tables.
KINDS = (
    "identity", "shear-x", "shear-y", "translate-x", "translate-y", "rotate", "brightness", "colour", "contrast",
    "sharpness", "posterise", "solarise", "autocontrast", "equalise",
)  # fmt: skip
NUMBER = {kind: number for number, kind in enumerate(KINDS)}


def changed(pixels_BCHW: Tensor, kind_B: Tensor, matrix_B23: Tensor, factor_B: Tensor) -> Tensor:
    """One operation of `KINDS` for each row. matrix_B23: where its pixels come from; factor_B: how much of the row
    itself is in a blend (1: all of it), how many bits posterise leaves, or from which value on solarise inverts."""
    pixels_BCHW = sampled(pixels_BCHW, matrix_B23)
    pixels_BCHW = blended(pixels_BCHW, plainer(pixels_BCHW, kind_B), factor_B)
    return looked_up(pixels_BCHW, tables(pixels_BCHW, kind_B, factor_B))


def sampled(pixels_BCHW: Tensor, matrix_B23: Tensor) -> Tensor:
    """What is at (x, y) comes from matrix·(x, y, 1), both counted in pixels from the top left corner; between four
    pixels it is weighed by the distances to them. Outside of a picture is 0."""
    height, width = pixels_BCHW.shape[2:]
    y_H, x_W = (torch.arange(size, device=pixels_BCHW.device) + 0.5 for size in (height, width))
    from_x, from_y = (
        row_B3[:, 0, None, None] * x_W + row_B3[:, 1, None, None] * y_H[:, None] + row_B3[:, 2, None, None]
        for row_B3 in matrix_B23.unbind(1)
    )
    grid_BHW2 = torch.stack([from_x * (2 / width) - 1, from_y * (2 / height) - 1], -1)
    return F.grid_sample(pixels_BCHW, grid_BHW2, align_corners=False)


def grey(pixels_BCHW: Tensor) -> Tensor:
    """Brightness, rounded: (B, 1, H, W)."""
    if pixels_BCHW.shape[1] == 1:
        return pixels_BCHW
    red, green, blue = pixels_BCHW.split(1, 1)
    return ((19595 * red + 38470 * green + 7471 * blue) / 65536).add(0.5).floor()


def smooth(pixels_BCHW: Tensor) -> Tensor:
    """The mean of a pixel, five times, and its eight neighbours; at the border the pixel itself."""
    channels = pixels_BCHW.shape[1]
    kernel = torch.ones(channels, 1, 3, 3, device=pixels_BCHW.device)
    kernel[:, :, 1, 1] = 5
    inside = F.conv2d(pixels_BCHW, kernel / 13, groups=channels).add(0.5).floor()
    inside = F.pad(inside, (1, 1, 1, 1))
    border_HW = F.pad(
        torch.zeros(inside.shape[2] - 2, inside.shape[3] - 2, device=inside.device), (1, 1, 1, 1), value=1.0
    )
    return torch.where(border_HW.bool(), pixels_BCHW, inside)


def plainer(pixels_BCHW: Tensor, kind_B: Tensor) -> Tensor:
    """What a blend of each kind mixes a picture with: black, its grey picture, one grey, a smooth picture."""
    grey_B1HW = grey(pixels_BCHW)
    found = pixels_BCHW
    for kind, picture in {
        "brightness": torch.zeros_like(pixels_BCHW), "colour": grey_B1HW,
        "contrast": grey_B1HW.mean((1, 2, 3), keepdim=True).add(0.5).floor(), "sharpness": smooth(pixels_BCHW),
    }.items():  # fmt: skip
        found = torch.where(_is(kind, kind_B), picture, found)
    return found


def blended(pixels_BCHW: Tensor, plainer_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """plainer + factor · (pixels − plainer)."""
    return (plainer_BCHW + factor_B[:, None, None, None] * (pixels_BCHW - plainer_BCHW)).clamp(0, VALUES - 1)


def tables(pixels_BCHW: Tensor, kind_B: Tensor, factor_B: Tensor) -> Tensor:
    """(B, C, V): the new value of each value."""
    old_V = torch.arange(VALUES, device=pixels_BCHW.device, dtype=torch.float32)
    count_BCV = histogram(pixels_BCHW)
    factor_B11 = factor_B[:, None, None]
    kept_B11 = 2 ** (8 - factor_B11)
    found = old_V.expand_as(count_BCV)
    for kind, table in {
        "posterise": (old_V / kept_B11).floor() * kept_B11,
        "solarise": torch.where(old_V < factor_B11, old_V, VALUES - 1 - old_V),
        "autocontrast": stretched(count_BCV), "equalise": equalised(count_BCV),
    }.items():  # fmt: skip
        found = torch.where(_is(kind, kind_B)[..., 0], table, found)
    return found


def histogram(pixels_BCHW: Tensor) -> Tensor:
    """(B, C, V): how many pixels have each value."""
    value_BCN = pixels_BCHW.round().long().flatten(2)
    zeros = torch.zeros(*value_BCN.shape[:2], VALUES, device=pixels_BCHW.device)
    return zeros.scatter_add_(2, value_BCN, torch.ones_like(value_BCN, dtype=zeros.dtype))


def stretched(count_BCV: Tensor) -> Tensor:
    """The darkest value becomes 0, the brightest 255."""
    old_V = torch.arange(VALUES, device=count_BCV.device, dtype=torch.float32)
    there = count_BCV > 0
    low = torch.where(there, old_V, VALUES).amin(-1, keepdim=True)
    high = torch.where(there, old_V, -1.0).amax(-1, keepdim=True)
    scale = (VALUES - 1) / (high - low).clamp(min=1)
    return torch.where(high > low, ((old_V - low) * scale + 1e-4).floor().clamp(0, VALUES - 1), old_V)


def equalised(count_BCV: Tensor) -> Tensor:
    """Every range of values becomes about as frequent as any other."""
    old_V = torch.arange(VALUES, device=count_BCV.device, dtype=torch.float32)
    last = torch.where(count_BCV > 0, old_V, -1.0).argmax(-1, keepdim=True)
    step = ((count_BCV.sum(-1, keepdim=True) - count_BCV.gather(-1, last)) / (VALUES - 1)).floor()
    before = count_BCV.cumsum(-1) - count_BCV
    found = ((step / 2).floor() + before).div(step.clamp(min=1)).floor().clamp(max=VALUES - 1)
    return torch.where(step > 0, found, old_V)


def looked_up(pixels_BCHW: Tensor, table_BCV: Tensor) -> Tensor:
    value_BCN = pixels_BCHW.round().long().flatten(2)
    return table_BCV.gather(2, value_BCN).view_as(pixels_BCHW)


def inside(box_B4: Tensor, height: int, width: int) -> Tensor:
    """(B, 1, H, W): whether a pixel lies in its row's box of top, left, bottom and right."""
    top, left, bottom, right = box_B4[:, :, None, None].unbind(1)
    y_H1 = torch.arange(height, device=box_B4.device)[:, None]
    x_W = torch.arange(width, device=box_B4.device)
    return ((y_H1 >= top) & (y_H1 < bottom) & (x_W >= left) & (x_W < right))[:, None]


def _is(kind: str, kind_B: Tensor) -> Tensor:
    return (kind_B == NUMBER[kind])[:, None, None, None]
