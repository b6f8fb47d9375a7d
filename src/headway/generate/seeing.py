"""Models that say what is in a picture: a label for every pixel; objects with their boxes and masks.

B batch, Q queries, K of them that found something, L labels, C channels, H height, W width; R rows and C columns of a
mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.data.augment import ImageInputs
from headway.device import sent
from headway.generate.one_or_many import one_or_many
from headway.generate.pictures import ROWS, GridModel, is_picture
from headway.models.mask_head import scaled
from headway.nn.boxes import corners
from headway.traces import Track

CERTAIN = 0.5  # the least probability of an object that is shown
INSIDE = 0.5  # the least probability of a pixel that is an object's


@dataclass(frozen=True, eq=False)
class Masks:
    """labels_HW: the number of each pixel's label. shares: of each label the share of the pixels that have it, the
    largest first."""

    labels_HW: NDArray[np.uint8]
    shares: dict[str, float]


@dataclass(frozen=True)
class Object:
    """box: left, top, right and bottom, as shares of width and height."""

    label: str
    probability: float
    box: tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Outlines:
    """objects: of one picture, the most certain first. objects_HW: of each pixel 0, or 1 and the place of its object in
    that list; labels_HW: 0, or 1 and the number of its object's label."""

    objects: list[Object]
    objects_HW: NDArray[np.int16]
    labels_HW: NDArray[np.int16]


class SeeingModel(GridModel):
    """Abstract. A model of pictures whose head says what is in them."""

    what: ClassVar[str] = "picture"

    @property
    def image(self) -> Any:
        """How pictures are read."""
        return self.processor

    def shown(self, value: Any) -> Any:
        return self.processor.read(value).transpose(1, 2, 0).copy()

    def told(self, answer: Any, top: int) -> dict[str, Any]:
        return {}

    @torch.inference_mode()
    def answers(self, values: Sequence[Any], ask: Callable[[Any], Any]) -> Iterator[Any]:
        """What `ask` makes of the encoded pictures, a batch at a time."""
        rows = ROWS[self.device.type]
        for start in range(0, len(values), rows):
            yield ask(self.model.encode(self._inputs(values[start : start + rows])))

    @torch.inference_mode()
    def answers_read(self, pixels_BCHW: Any, ask: Callable[[Any], Any]) -> Iterator[Any]:
        """`answers` of what `processor.read` gave."""
        (mean_C11, std_C11), rows = self.processor.scale, ROWS[self.device.type]
        for start in range(0, len(pixels_BCHW), rows):
            given = torch.from_numpy((pixels_BCHW[start : start + rows] - mean_C11) / std_C11)
            yield ask(self.model.encode(ImageInputs(sent(given, self.device).to(self.dtype))))


class Segmenter(SeeingModel):
    """`headway.load(folder)` gives one: `model.segment("street.png")`, or a list of pictures."""

    @one_or_many(is_picture)
    def segment(self, pictures: Sequence[Any]) -> list[Masks]:
        """The label of every pixel, of each picture as the model reads it."""
        return [self._masks(labels_HW) for found in self.answers(pictures, self._labels) for labels_HW in found]

    def segment_read(self, pixels_BCHW: Any) -> Iterator[NDArray[np.uint8]]:
        """The labels of pictures that `processor.read` gave, (B, H, W), a batch at a time."""
        return self.answers_read(pixels_BCHW, self._labels)

    def _labels(self, encoded: Any) -> NDArray[np.uint8]:
        share_BLHW: Tensor = self.model.head.pixels(encoded)
        labels_BHW: NDArray[np.uint8] = share_BLHW.argmax(1).to(torch.uint8).cpu().numpy()
        return labels_BHW

    def _masks(self, labels_HW: NDArray[np.uint8]) -> Masks:
        counts = np.bincount(labels_HW.ravel(), minlength=len(self.labels)) / labels_HW.size
        order = np.argsort(-counts, kind="stable").tolist()
        return Masks(labels_HW, {self.labels[at]: float(counts[at]) for at in order if counts[at]})


class Detector(SeeingModel):
    """`headway.load(folder)` gives one: `model.detect("street.png")`, or a list of pictures."""

    @one_or_many(is_picture)
    def detect(self, pictures: Sequence[Any], *, threshold: float = CERTAIN) -> list[list[Object]]:
        """The objects of each picture, the most certain first: those of at least this probability."""
        found = self.answers(pictures, self.model.head.boxes)
        return [self._objects(*one, threshold=threshold) for some in found for one in zip(*some, strict=True)]

    def detect_read(self, pixels_BCHW: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """What the head's `boxes` gives for pictures that `processor.read` gave, a batch at a time."""
        return self.answers_read(pixels_BCHW, self.model.head.boxes)

    def told(self, answer: Any, top: int) -> dict[str, Any]:
        logits_BQL, boxes_BQ4 = answer
        found = self._objects(logits_BQL[0].float().softmax(-1), corners(boxes_BQ4[0].float()), threshold=0.0)
        return {"objects": [[one.label, round(one.probability, 5), *one.box] for one in found[:top]]}

    def more_tracks(self) -> list[Track]:
        return [Track("queries", "queries", tuple(f"query {number}" for number in range(self.head.queries)))]

    def _objects(self, share_QL: Tensor, boxes_Q4: Tensor, *, threshold: float) -> list[Object]:
        best_Q, at_Q = share_QL[:, :-1].max(-1)
        rows = zip(best_Q.tolist(), at_Q.tolist(), boxes_Q4.clamp(0, 1).tolist(), strict=True)
        found = [Object(self.labels[at], share, tuple(box)) for share, at, box in rows if share >= threshold]
        return sorted(found, key=lambda one: -one.probability)


class Outliner(Detector):
    """`headway.load(folder)` gives one: `model.outline("street.png")`, or a list of pictures."""

    @one_or_many(is_picture)
    def outline(self, pictures: Sequence[Any], *, threshold: float = CERTAIN) -> list[Outlines]:
        """The objects of each picture that have at least this probability, and the pixels of each, of the picture as
        the model reads it."""
        found = self.answers(pictures, self.model.head.objects)
        return [self._outlines(*one, threshold=threshold) for some in found for one in zip(*some, strict=True)]

    def outline_read(self, pixels_BCHW: Any) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """What the head's `objects` gives for pictures that `processor.read` gave, a batch at a time."""
        return self.answers_read(pixels_BCHW, self.model.head.objects)

    def told(self, answer: Any, top: int) -> dict[str, Any]:
        return super().told(answer[:2], top)

    def _outlines(self, share_QL: Tensor, boxes_Q4: Tensor, masks_QRC: Tensor, *, threshold: float) -> Outlines:
        at_K, objects_HW = merged(share_QL, masks_QRC, self.model.config.size, threshold)
        objects = self._objects(share_QL[at_K], boxes_Q4[at_K], threshold=0.0)
        return Outlines(objects, objects_HW, labels_of(share_QL, at_K)[objects_HW])


def merged(
    share_QL: Tensor, masks_QRC: Tensor, size: tuple[int, int], threshold: float = CERTAIN
) -> tuple[Tensor, NDArray[np.int16]]:
    """(K): the queries that found an object of at least this probability p, the most certain first; and (H, W): of each
    pixel 0, or 1 and the place in that list of the query with the largest p · σ(mask), of those with σ(mask) ≥ 1/2."""
    best_Q = share_QL[:, :-1].amax(-1)
    order_Q = best_Q.argsort(descending=True, stable=True)
    at_K = order_Q[best_Q[order_Q] >= threshold]
    if not len(at_K):
        return at_K, np.zeros(size, np.int16)
    inside_KHW = scaled(masks_QRC[at_K], size).sigmoid()
    most_HW, owner_HW = (best_Q[at_K, None, None] * inside_KHW * (inside_KHW >= INSIDE)).max(0)
    return at_K, torch.where(most_HW > 0, owner_HW + 1, 0).cpu().numpy().astype(np.int16)


def labels_of(share_QL: Tensor, at_K: Tensor) -> NDArray[np.int16]:
    """0 for the background, then 1 and the number of the label of each of these queries: by the numbers of `merged`."""
    return np.array([0, *(1 + share_QL[at_K, :-1].argmax(-1)).tolist()], np.int16)
