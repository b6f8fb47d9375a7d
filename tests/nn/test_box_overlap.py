"""Boxes and how much they overlap, against transformers."""

from __future__ import annotations

import torch
from transformers.image_transforms import center_to_corners_format
from transformers.loss.loss_for_object_detection import box_iou, generalized_box_iou

from headway.nn.boxes import corners, middles, overlap


def test_overlaps_are_those_of_transformers() -> None:
    torch.manual_seed(1)
    a, b = (torch.rand(9, 4, dtype=torch.float64) * 0.5 + 0.1 for _ in range(2))
    iou, giou = overlap(corners(a)[:, None], corners(b)[None])
    torch.testing.assert_close(corners(a), center_to_corners_format(a))
    torch.testing.assert_close(iou, box_iou(corners(a), corners(b))[0])
    torch.testing.assert_close(giou, generalized_box_iou(corners(a), corners(b)))
    torch.testing.assert_close(middles(corners(a)), a)
    far = torch.tensor([[0.0, 0.0, 0.1, 0.1], [0.9, 0.9, 1.0, 1.0], [0.2, 0.2, 0.2, 0.2]])
    iou, giou = overlap(far[:1], far)
    assert iou.tolist()[1:] == [0, 0] and giou[1] < -0.9 and giou.isfinite().all()
