"""Average precision, against pycocotools."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from headway.evaluate.boxes import BoxScores, FoundBoxes

SIDE = 1000  # COCO's boxes are in pixels


def theirs(true: list[FoundBoxes], found: list[FoundBoxes], labels: int) -> dict[str, float]:
    def row(picture: int, box: Any, label: Any) -> dict[str, Any]:
        left, top, right, bottom = (float(edge) * SIDE for edge in box)
        size = [right - left, bottom - top]
        return {"image_id": picture, "category_id": int(label), "bbox": [left, top, *size], "area": size[0] * size[1]}

    wanted = [
        row(n, box, label) | {"iscrowd": 0}
        for n, one in enumerate(true)
        for box, label in zip(one.boxes_D4, one.labels_D, strict=True)
    ]
    given = [
        row(n, box, label) | {"score": float(score)}
        for n, one in enumerate(found)
        for box, label, score in zip(*one, strict=True)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "images": [{"id": n} for n in range(len(true))], "categories": [{"id": n} for n in range(labels)],
            "annotations": [one | {"id": n} for n, one in enumerate(wanted, 1)],
        }  # fmt: skip
        coco.createIndex()
        judged = COCOeval(coco, coco.loadRes(given), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return {"map": judged.stats[0], "ap50": judged.stats[1], "ap75": judged.stats[2]}


def boxes(rng: np.random.Generator, count: int, labels: int) -> FoundBoxes:
    first = rng.random((count, 2)) * 0.6
    both = np.concatenate([first, first + 0.1 + rng.random((count, 2)) * 0.3], 1)
    return FoundBoxes(both, rng.integers(0, labels, count), np.ones(count))


@pytest.mark.parametrize("seed", range(6))
def test_figures_are_those_of_pycocotools(seed: int) -> None:
    """Of found boxes that are near true ones, twice, elsewhere, or of another label; with equal scores too."""
    rng = np.random.default_rng(seed)
    labels = 3
    true = [boxes(rng, rng.integers(0, 6), labels) for _ in range(20)]
    found = []
    for there in true:
        moved = there.boxes_D4 + rng.normal(0, 0.02, there.boxes_D4.shape)
        wrong = np.where(rng.random(len(moved)) < 0.15, rng.integers(0, labels, len(moved)), there.labels_D)
        more = boxes(rng, 2, labels)
        again = rng.random(len(moved)) < 0.3
        places = np.concatenate([moved, moved[again], more.boxes_D4])
        kinds = np.concatenate([wrong, wrong[again], more.labels_D])
        scores = np.round(rng.random(len(places)), 1 if seed % 2 else 6)
        found.append(FoundBoxes(places, kinds, scores))
    mine = BoxScores.of(true, found, labels).figures()
    assert mine == pytest.approx(theirs(true, found, labels), abs=1e-9)


def test_perfect_boxes_score_one_and_none_score_nothing() -> None:
    rng = np.random.default_rng(3)
    true = [boxes(rng, 3, 2) for _ in range(4)]
    assert BoxScores.of(true, true, 2).figures() == {"map": 1.0, "ap50": 1.0, "ap75": 1.0}
    nothing = [FoundBoxes(np.zeros((0, 4)), np.zeros(0), np.zeros(0))] * 4
    assert BoxScores.of(true, nothing, 2).map == 0.0 and BoxScores.of(nothing, true, 2).map == 0.0
