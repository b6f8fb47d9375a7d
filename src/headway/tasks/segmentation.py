"""Segmentation: a label for every pixel of a picture, by an encoder with a head for pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from headway.data.annotated import BACKGROUND, MaskBatch, mask_batch
from headway.evaluate.masks import OverlapScores
from headway.generate.drawing import canvas, with_masks
from headway.generate.seeing import Segmenter
from headway.tasks.labelling import reported
from headway.tasks.seeing import SeeingParts, SeenPictures, sample_pictures
from headway.tasks.task import Figure, Prediction, Report, entropy, refuse_unknown


@dataclass(frozen=True)
class MaskedPictures(SeenPictures):
    """Pictures with a label for every pixel: .npz files with `pictures` (N, H, W, 3) and `masks` (N, H, W), of bytes: 0
    for the background, else 1 and the number of a name in `kinds`; without files, drawn scenes."""

    name: ClassVar[str] = "masked-pictures"


class Segmentation(SeeingParts):
    """Judged by the mean intersection over union of labels."""

    name = "segmentation"
    data = MaskedPictures
    headline = ("mean_iou", True)
    opens = Segmenter
    needs = "masks"
    make = staticmethod(mask_batch)

    @staticmethod
    def labels_of(kinds: tuple[str, ...]) -> tuple[str, ...]:
        return (BACKGROUND, *kinds)

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "mean_iou", Figure(self.scores("valid").mean_iou, True, 4)

    @torch.no_grad()
    def scores(self, part: str) -> OverlapScores:
        """Of the present weights on a part that is not trained on."""
        found = (
            (batch.masks_BHW.numpy(), self.model.head.pixels(encoded).argmax(1).cpu().numpy())
            for batch, encoded in self.answers(part)
        )
        return OverlapScores.of(found, len(self.card.head.labels))

    def guess(self) -> float:
        return entropy(np.bincount(self.parts["train"].masks_NHW.ravel()))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> MaskBatch:
        mask_BHW = torch.zeros(run.engine.batch, *run.model.size, dtype=torch.long, device=device)
        return MaskBatch(**sample_pictures(run, size, device), masks_BHW=mask_BHW)

    @classmethod
    def answer(cls, model: Segmenter, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        """The share of the pixels that each label has; for a program, the label of every pixel too."""
        refuse_unknown(options, ("draw",), "a model that labels pixels")
        for value in values:
            masks = model.segment(value)
            line = "\t".join(f"{label}\t{share:.4f}" for label, share in masks.shares.items())
            facts = {"picture": value, "shares": {label: round(share, 6) for label, share in masks.shares.items()}}
            drawn = with_masks(canvas(value), masks.labels_HW) if "draw" in options else None
            yield Prediction(line, facts | {"labels": model.labels, "masks": masks.labels_HW.tolist()}, drawn)

    @classmethod
    def evaluate(cls, model: Segmenter, files: Sequence[str], options: dict[str, Any]) -> Report:
        refuse_unknown(options, (), "a model that labels pixels")
        truth = cls.truth(model, files)
        given = np.concatenate(list(model.segment_read(truth.pixels_NCHW)))
        scores = OverlapScores.of([(truth.masks_NHW, given)], len(model.labels))
        each = {f"IoU of {label}": float(value) for label, value in zip(model.labels, scores.each, strict=True)}
        report = reported(scores, len(truth), "pictures")
        lines = [f"{name:<22}  {value:.4f}" for name, value in each.items()]
        return Report(report.values | {"each": each}, [*report.lines[:-1], *lines, report.lines[-1]])
