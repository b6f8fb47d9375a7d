"""How well objects are found and outlined: average precision of masks and of boxes, and the labels of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headway.evaluate.boxes import BoxScores
from headway.evaluate.labels import NamedFigures
from headway.evaluate.masks import OverlapScores


@dataclass(frozen=True)
class ObjectScores(NamedFigures):
    """masks, boxes: whether objects are where they should be, by their masks and by their boxes. pixels: whether every
    pixel has the label of its object."""

    names: ClassVar[dict[str, str]] = {
        "mask_map": "mean AP of masks", "mask_ap50": "at an overlap of 0.5", "mask_ap75": "at an overlap of 0.75",
        "map": "mean AP of boxes", "mean_iou": "mean IoU of pixels", "pixel_accuracy": "pixels that are right",
    }  # fmt: skip
    masks: BoxScores
    boxes: BoxScores
    pixels: OverlapScores

    @property
    def mask_map(self) -> float:
        return self.masks.map

    @property
    def mask_ap50(self) -> float:
        return self.masks.ap50

    @property
    def mask_ap75(self) -> float:
        return self.masks.ap75

    @property
    def map(self) -> float:
        return self.boxes.map

    @property
    def mean_iou(self) -> float:
        return self.pixels.mean_iou

    @property
    def pixel_accuracy(self) -> float:
        return self.pixels.pixel_accuracy
