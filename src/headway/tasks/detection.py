"""Detection: objects in a picture with their boxes, by an encoder whose head finds a set of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from headway.batch import IGNORED
from headway.data.annotated import Annotated, BoxBatch, box_batch
from headway.evaluate.boxes import BoxScores, FoundBoxes
from headway.generate.drawing import canvas, with_boxes
from headway.generate.seeing import Detector, Object
from headway.tasks.labelling import reported
from headway.tasks.seeing import SeeingParts, SeenPictures, sample_pictures
from headway.tasks.task import Figure, Prediction, Report, refuse_unknown


@dataclass(frozen=True)
class BoxedPictures(SeenPictures):
    """Pictures with boxes: .npz files with `pictures` (N, H, W, 3) of bytes, `boxes` (K, 4): left, top, right and
    bottom as shares of the picture, `labels` (K) and `rows` (K): the picture of each box; without files, drawn
    scenes."""

    name: ClassVar[str] = "boxed-pictures"


class Detection(SeeingParts):
    """Judged by mean average precision."""

    name = "detection"
    data: ClassVar[Any] = BoxedPictures
    headline = ("map", True)
    opens = Detector
    needs = "boxes"
    make = staticmethod(box_batch)
    terms: ClassVar[tuple[str, ...]] = ("loss", "distance", "overlap")

    def shown_losses(self, losses: dict[str, float]) -> dict[str, float]:
        return {name: losses[name] for name in self.terms}

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "map", Figure(self.scores("valid").map, True, 4)

    @torch.no_grad()
    def scores(self, part: str) -> BoxScores:
        """Of the present weights on a part that is not trained on."""
        found: list[FoundBoxes] = []
        for _, encoded in self.answers(part):
            found += found_boxes(*self.model.head.boxes(encoded))
        return BoxScores.of(true_boxes(self.parts[part]), found, len(self.card.head.labels))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> BoxBatch:
        boxes_BM4 = torch.tensor([0.2, 0.3, 0.4, 0.6], device=device).expand(run.engine.batch, 2, 4).contiguous()
        labels_BM = torch.zeros(run.engine.batch, 2, dtype=torch.long, device=device)
        return BoxBatch(**sample_pictures(run, size, device), boxes_BM4=boxes_BM4, labels_BM=labels_BM)

    @classmethod
    def answer(cls, model: Detector, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        """The objects of each picture, the most certain first."""
        refuse_unknown(options, ("draw",), "a model that finds objects")
        for value in values:
            objects = model.detect(value)
            texts, facts = described(objects)
            drawn = with_objects(canvas(value), objects, model.labels) if "draw" in options else None
            yield Prediction("\t".join(texts), {"picture": value, "objects": facts}, drawn)

    @classmethod
    def evaluate(cls, model: Detector, files: Sequence[str], options: dict[str, Any]) -> Report:
        refuse_unknown(options, (), "a model that finds objects")
        truth = cls.truth(model, files)
        found = [boxes for some in model.detect_read(truth.pixels_NCHW) for boxes in found_boxes(*some)]
        return reported(BoxScores.of(true_boxes(truth), found, len(model.labels)), len(truth), "pictures")


def described(objects: Sequence[Object]) -> tuple[list[str], list[dict[str, Any]]]:
    """Each as text, and as values for a program."""
    boxes = [[round(edge, 4) for edge in one.box] for one in objects]
    shares = [round(one.probability, 4) for one in objects]
    rows = list(zip(objects, shares, boxes, strict=True))
    texts = [f"{one.label} {share:.4f} {' '.join(map('{:.4f}'.format, box))}" for one, share, box in rows]
    return texts, [{"label": one.label, "probability": share, "box": box} for one, share, box in rows]


def with_objects(image: Any, objects: Sequence[Object], labels: Sequence[str]) -> Any:
    """Their boxes drawn onto a picture."""
    texts = [f"{one.label} {one.probability:.2f}" for one in objects]
    return with_boxes(image, [one.box for one in objects], texts, [labels.index(one.label) for one in objects])


def found_boxes(share_BQL: torch.Tensor, boxes_BQ4: torch.Tensor) -> list[FoundBoxes]:
    """Every query with its likeliest label."""
    scores_BQ, labels_BQ = share_BQL[..., :-1].max(-1)
    arrays = (tensor.float().cpu().numpy() for tensor in (boxes_BQ4, labels_BQ, scores_BQ))
    return [FoundBoxes(*one) for one in zip(*arrays, strict=True)]


def true_boxes(pictures: Annotated) -> list[FoundBoxes]:
    there_NM = pictures.labels_NM != IGNORED
    return [
        FoundBoxes(boxes[there], labels[there], there[there].astype(float))
        for boxes, labels, there in zip(pictures.boxes_NM4, pictures.labels_NM, there_NM, strict=True)
    ]
