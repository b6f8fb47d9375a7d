"""Instance segmentation: the objects of a picture, each with its box and its mask, by an encoder whose head finds a set
of them.

B batch, Q queries, L labels, H height, W width; R rows and C columns of a mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headway.data.annotated import BACKGROUND, Annotated, ObjectBatch, object_batch
from headway.evaluate.boxes import BoxScores, Compared, FoundBoxes, mask_overlaps
from headway.evaluate.masks import OverlapScores
from headway.evaluate.objects import ObjectScores
from headway.generate.drawing import canvas, with_masks
from headway.generate.seeing import INSIDE, Outliner, labels_of, merged
from headway.models.mask_head import scaled
from headway.tasks.detection import Detection, described, found_boxes, true_boxes, with_objects
from headway.tasks.labelling import reported
from headway.tasks.seeing import SeenPictures
from headway.tasks.task import Figure, Prediction, Report, refuse_unknown


@dataclass(frozen=True)
class OutlinedPictures(SeenPictures):
    """Pictures with boxes and masks of objects: .npz files with the arrays of `BoxedPictures` and `objects` (N, H, W):
    0 for the background, else 1 and the number of a box among those of its picture; without files, drawn scenes."""

    name: ClassVar[str] = "outlined-pictures"


class InstanceSegmentation(Detection):
    """Judged by mean average precision of masks."""

    name = "instance-segmentation"
    data = OutlinedPictures
    headline = ("mask_map", True)
    opens = Outliner
    needs = "objects"
    make = staticmethod(object_batch)
    terms = (*Detection.terms, "focal", "dice")

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "mask_map", Figure(self.scores("valid").mask_map, True, 4)

    @torch.no_grad()
    def scores(self, part: str) -> ObjectScores:  # type: ignore[override]
        found = (self.model.head.objects(encoded) for _, encoded in self.answers(part))
        return object_scores(self.parts[part], found, len(self.card.head.labels))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> ObjectBatch:
        boxed = super().sample(run, size, device)
        objects_BHW = torch.zeros(run.engine.batch, *run.model.size, dtype=torch.int16, device=device)
        known = {one.name: getattr(boxed, one.name) for one in fields(boxed)}
        return ObjectBatch(**known, objects_BHW=objects_BHW)

    @classmethod
    def answer(cls, model: Any, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        """The objects of each picture, the most certain first, each with the share of the pixels that it has; for a
        program, the object of every pixel too."""
        refuse_unknown(options, ("draw",), "a model that finds objects")
        for value in values:
            found = model.outline(value)
            shares = np.bincount(found.objects_HW.ravel(), minlength=len(found.objects) + 1)[1:] / found.objects_HW.size
            texts, facts = described(found.objects)
            line = "\t".join(f"{text} {share:.4f}" for text, share in zip(texts, shares, strict=True))
            for fact, share in zip(facts, shares.tolist(), strict=True):
                fact["pixels"] = round(share, 6)
            drawn = None
            if "draw" in options:
                drawn = with_objects(with_masks(canvas(value), found.labels_HW), found.objects, model.labels)
            yield Prediction(line, {"picture": value, "objects": facts, "masks": found.objects_HW.tolist()}, drawn)

    @classmethod
    def evaluate(cls, model: Any, files: Sequence[str], options: dict[str, Any]) -> Report:
        refuse_unknown(options, (), "a model that finds objects")
        truth = cls.truth(model, files)
        scores = object_scores(truth, model.outline_read(truth.pixels_NCHW), len(model.labels))
        names = [f"IoU of {label}" for label in (BACKGROUND, *model.labels)]
        each = dict(zip(names, map(float, scores.pixels.each), strict=True))
        report = reported(scores, len(truth), "pictures")
        lines = [f"{name:<22}  {value:.4f}" for name, value in each.items()]
        return Report(report.values | {"each": each}, [*report.lines[:-1], *lines, report.lines[-1]])


def object_scores(truth: Annotated, found: Iterable[tuple[Tensor, Tensor, Tensor]], labels: int) -> ObjectScores:
    """Of the pictures in their order, a batch at a time. found: what the head's `objects` gives for a batch."""
    boxes: list[FoundBoxes] = []
    masks: list[Compared] = []
    pixels = []
    for share_BQL, boxes_BQ4, masks_BQRC in found:
        boxes += found_boxes(share_BQL, boxes_BQ4)
        for share_QL, masks_QRC in zip(share_BQL, masks_BQRC, strict=True):
            row = len(masks)
            inside_QHW = (scaled(masks_QRC, truth.objects_NHW.shape[1:]).sigmoid() >= INSIDE).cpu().numpy()
            overlap_QG = mask_overlaps(inside_QHW, truth.outlines(row))
            masks.append(Compared(overlap_QG, boxes[row].labels_D, boxes[row].scores_D, truth.boxes(row)[1]))
            at_K, objects_HW = merged(share_QL, masks_QRC, truth.objects_NHW.shape[1:])
            pixels.append((truth.labelled(row), labels_of(share_QL, at_K)[objects_HW]))
    return ObjectScores(
        BoxScores.of_pairs(masks, labels), BoxScores.of(true_boxes(truth), boxes, labels),
        OverlapScores.of(pixels, labels + 1),
    )  # fmt: skip
