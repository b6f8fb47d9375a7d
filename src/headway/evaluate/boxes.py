"""How well objects are found: average precision, as COCO computes it (Lin et al. 2014).

K labels, T thresholds of overlap, D found objects, G true objects, H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.evaluate.labels import NamedFigures

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # boxes of one label that count in a picture
Floats = NDArray[np.float64]


class FoundBoxes(NamedTuple):
    """Those of one picture: left, top, right and bottom, labels, and how certain each is (of true boxes: 1)."""

    boxes_D4: NDArray[Any]
    labels_D: NDArray[Any]
    scores_D: NDArray[Any]


class Compared(NamedTuple):
    """What was found in one picture, with labels and how certain each is, beside what is there: the overlap of each
    pair. It is kept in place of boxes or masks: those of many pictures would need much memory."""

    iou_DG: Floats
    labels_D: NDArray[Any]
    scores_D: NDArray[Any]
    labels_G: NDArray[Any]


def compared_boxes(true: FoundBoxes, found: FoundBoxes) -> Compared:
    iou_DG = overlaps(found.boxes_D4.astype(np.float64), true.boxes_D4.astype(np.float64))
    return Compared(iou_DG, found.labels_D, found.scores_D, true.labels_D)


def mask_overlaps(a_DHW: NDArray[np.bool_], b_GHW: NDArray[np.bool_]) -> Floats:
    """(D, G): intersection over union, in pixels; 0 where both are empty."""
    pixels = a_DHW.shape[1] * a_DHW.shape[2]
    a_DN, b_GN = (masks.reshape(-1, pixels).astype(np.float32) for masks in (a_DHW, b_GHW))
    inner = (a_DN @ b_GN.T).astype(np.float64)
    return inner / np.maximum(a_DN.sum(1)[:, None] + b_GN.sum(1) - inner, 1.0)


def overlaps(a_D4: Floats, b_G4: Floats) -> Floats:
    """(D, G): intersection over union."""
    both = np.minimum(a_D4[:, None, 2:], b_G4[None, :, 2:]) - np.maximum(a_D4[:, None, :2], b_G4[None, :, :2])
    inner = both.clip(min=0).prod(-1)
    a_D, b_G = ((boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a_D4, b_G4))
    return inner / np.maximum(a_D[:, None] + b_G - inner, 1e-12)


def hits(iou_DG: Floats) -> NDArray[np.bool_]:
    """(T, D): whether a found box, the most certain first, hits a true one that none before it has hit: of those that
    it overlaps enough, the one that it overlaps most."""
    found_TD = np.zeros((len(THRESHOLDS), len(iou_DG)), bool)
    for t, threshold in enumerate(THRESHOLDS):
        free_G = np.ones(iou_DG.shape[1], bool)
        for d, iou_G in enumerate(iou_DG):
            open_G = np.where(free_G, iou_G, -1.0)
            if len(open_G) and (best := open_G.max()) >= min(threshold, 1 - 1e-10):
                free_G[len(open_G) - 1 - int(open_G[::-1].argmax())] = False  # of equals the last, as COCO takes it
                found_TD[t, d] = best >= 0
    return found_TD


def precision(hit_TD: NDArray[np.bool_], scores_D: Floats, true: int) -> Floats:
    """(T,): the mean over 101 recalls of the best precision at this recall or beyond."""
    order = np.argsort(-scores_D, kind="mergesort")
    right_TD = hit_TD[:, order].cumsum(1)
    each_TD = right_TD / np.arange(1, len(order) + 1)
    found_T = np.zeros(len(THRESHOLDS))
    for t in range(len(THRESHOLDS)):
        envelope_D = np.maximum.accumulate(each_TD[t, ::-1])[::-1]
        at_R = np.searchsorted(right_TD[t] / true, RECALLS, side="left")
        found_T[t] = np.append(envelope_D, 0.0)[np.minimum(at_R, len(order))].mean()
    return found_T


@dataclass(frozen=True)
class BoxScores(NamedFigures):
    """precision_KT: the average precision of each label that there is, at each overlap that counts as found."""

    names: ClassVar[dict[str, str]] = {
        "map": "mean average precision", "ap50": "at an overlap of 0.5", "ap75": "at an overlap of 0.75",
    }  # fmt: skip
    precision_KT: Floats

    @classmethod
    def of(cls, true: Sequence[FoundBoxes], found: Sequence[FoundBoxes], labels: int) -> BoxScores:
        """Of the true and the found boxes of each picture."""
        return cls.of_pairs([compared_boxes(*one) for one in zip(true, found, strict=True)], labels)

    @classmethod
    def of_pairs(cls, pictures: Sequence[Compared], labels: int) -> BoxScores:
        """Of boxes or of masks."""
        there = [label for label in range(labels) if any((one.labels_G == label).any() for one in pictures)]
        rows = [precision_of(label, pictures) for label in there]
        return cls(np.array(rows).reshape(-1, len(THRESHOLDS)))

    @property
    def map(self) -> float:
        """Over overlaps from 0.5 to 0.95 and all labels."""
        return float(self.precision_KT.mean()) if len(self.precision_KT) else 0.0

    @property
    def ap50(self) -> float:
        return float(self.precision_KT[:, 0].mean()) if len(self.precision_KT) else 0.0

    @property
    def ap75(self) -> float:
        return float(self.precision_KT[:, 5].mean()) if len(self.precision_KT) else 0.0


def precision_of(label: int, pictures: Sequence[Compared]) -> Floats:
    """Of one label, over all pictures."""
    hit, scores, count = [], [], 0
    for one in pictures:
        wanted_G = one.labels_G == label
        at_D = np.nonzero(one.labels_D == label)[0]
        at_D = at_D[np.argsort(-one.scores_D[at_D], kind="mergesort")][:MOST]
        hit.append(hits(one.iou_DG[at_D][:, wanted_G]))
        scores.append(one.scores_D[at_D].astype(np.float64))
        count += int(wanted_G.sum())
    return precision(np.concatenate(hit, 1), np.concatenate(scores), count)
