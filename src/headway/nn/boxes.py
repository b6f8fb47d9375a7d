"""Boxes as four numbers, and how much two of them overlap.

N, M boxes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def corners(boxes_N4: Tensor) -> Tensor:
    """Left, top, right and bottom of boxes that are given by middle, width and height."""
    middle_N2, size_N2 = boxes_N4[..., :2], boxes_N4[..., 2:]
    return torch.cat([middle_N2 - size_N2 / 2, middle_N2 + size_N2 / 2], -1)


def middles(boxes_N4: Tensor) -> Tensor:
    """The inverse of `corners`."""
    first_N2, last_N2 = boxes_N4[..., :2], boxes_N4[..., 2:]
    return torch.cat([(first_N2 + last_N2) / 2, last_N2 - first_N2], -1)


def overlap(a_N4: Tensor, b_N4: Tensor) -> tuple[Tensor, Tensor]:
    """|A ∩ B| / |A ∪ B| of boxes by their corners, and their generalised form, which also tells boxes apart that do not
    meet: less the share of the smallest box around both that neither covers (Rezatofighi et al. 2019, algorithm 1).
    Shapes are broadcast."""
    both = (torch.minimum(a_N4[..., 2:], b_N4[..., 2:]) - torch.maximum(a_N4[..., :2], b_N4[..., :2])).clamp(min=0)
    around = torch.maximum(a_N4[..., 2:], b_N4[..., 2:]) - torch.minimum(a_N4[..., :2], b_N4[..., :2])
    inner, outer = _product(both), _product(around).clamp(min=1e-12)
    either = (area(a_N4) + area(b_N4) - inner).clamp(min=1e-12)
    iou = inner / either
    return iou, iou - (outer - either) / outer


def area(boxes_N4: Tensor) -> Tensor:
    return _product(boxes_N4[..., 2:] - boxes_N4[..., :2])


def _product(sides_N2: Tensor) -> Tensor:
    """Of both sides; the gradient of `prod` looks for zeros, which no captured step can."""
    return sides_N2[..., 0] * sides_N2[..., 1]
