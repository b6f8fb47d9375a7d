"""Average precision of masks, against pycocotools; pixels that several queries claim."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pycocotools import mask as library
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from headway.data.scenes import SHAPES, Scenes, drawn
from headway.evaluate.boxes import BoxScores, Compared, mask_overlaps
from headway.generate.seeing import labels_of, merged
from headway.tasks.instances import object_scores

SIDE, LABELS = 24, 3


def theirs(true: list[Any], found: list[Any]) -> dict[str, float]:
    """Of (masks, labels) and (masks, labels, scores) of each picture."""

    def row(picture: int, mask_HW: NDArray[np.bool_], label: Any) -> dict[str, Any]:
        runs = library.encode(np.asfortranarray(mask_HW.astype(np.uint8)))
        area = float(mask_HW.sum())
        return {"image_id": picture, "category_id": int(label), "segmentation": runs, "area": area, "iscrowd": 0}

    wanted = [row(n, *one) for n, (masks, labels) in enumerate(true) for one in zip(masks, labels, strict=True)]
    given = [
        row(n, mask, label) | {"score": float(score)}
        for n, one in enumerate(found)
        for mask, label, score in zip(*one, strict=True)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "images": [{"id": n, "height": SIDE, "width": SIDE} for n in range(len(true))],
            "categories": [{"id": n} for n in range(LABELS)],
            "annotations": [one | {"id": n} for n, one in enumerate(wanted, 1)],
        }  # fmt: skip
        coco.createIndex()
        judged = COCOeval(coco, coco.loadRes(given), "segm")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return {"map": judged.stats[0], "ap50": judged.stats[1], "ap75": judged.stats[2]}


def ellipses(middle_K2: Any, reach_K2: Any) -> NDArray[np.bool_]:
    y_H1, x_W = np.arange(SIDE)[:, None], np.arange(SIDE)
    found = [
        ((x_W - x) / a) ** 2 + ((y_H1 - y) / b) ** 2 <= 1 for (x, y), (a, b) in zip(middle_K2, reach_K2, strict=True)
    ]
    return np.array(found).reshape(-1, SIDE, SIDE)


@pytest.mark.parametrize("seed", range(4))
def test_figures_of_masks_are_those_of_pycocotools(seed: int) -> None:
    """Of found masks that are near true ones, twice, elsewhere, empty, or of another label; with equal scores too."""
    rng = np.random.default_rng(seed)
    true, found, compared = [], [], []
    for _ in range(12):
        count = rng.integers(0, 5)
        middle, reach = rng.random((count, 2)) * SIDE, 2 + rng.random((count, 2)) * 6
        labels = rng.integers(0, LABELS, count)
        true.append((ellipses(middle, reach), labels))
        again = np.concatenate([np.arange(count), rng.integers(0, max(count, 1), 2 * (count > 0))])
        moved = middle[again] + rng.normal(0, 0.7, (len(again), 2))
        wrong = np.where(rng.random(len(again)) < 0.15, rng.integers(0, LABELS, len(again)), labels[again])
        masks = np.concatenate([ellipses(moved, reach[again]), np.zeros((1, SIDE, SIDE), bool)])
        scores = np.round(rng.random(len(masks)), 1 if seed % 2 else 6)
        found.append((masks, np.append(wrong, 0), scores))
        compared.append(Compared(mask_overlaps(masks, true[-1][0]), np.append(wrong, 0), scores, labels))
    assert BoxScores.of_pairs(compared, LABELS).figures() == pytest.approx(theirs(true, found), abs=1e-9)


def test_every_pixel_goes_to_the_query_whose_product_is_largest() -> None:
    """Against a loop over pixels."""
    torch.manual_seed(4)
    share, masks = (torch.randn(6, 4) * 2).softmax(-1), torch.randn(6, 5, 7) * 2
    best = share[:, :-1].amax(-1)
    kept, found = merged(share, masks, (5, 7), 0.3)
    assert kept.tolist() == [query for query in best.argsort(descending=True).tolist() if best[query] >= 0.3]
    assert 1 < len(kept) < 6
    labels = labels_of(share, kept)
    for row in range(5):
        for column in range(7):
            inside = masks[:, row, column].sigmoid()
            claims = {query: float(best[query] * inside[query]) for query in kept.tolist() if inside[query] >= 0.5}
            owner = max(claims, key=claims.__getitem__) if claims else None
            assert found[row, column] == (0 if owner is None else 1 + kept.tolist().index(owner))
            assert labels[found[row, column]] == (0 if owner is None else 1 + int(share[owner, :-1].argmax()))
    nothing, empty = merged(share, masks, (10, 14), 1.1)
    assert not len(nothing) and empty.shape == (10, 14) and not empty.any()


def test_perfect_objects_score_one_and_none_score_nothing() -> None:
    truth = drawn(Scenes(most=3), 4, np.arange(5), 32)
    shares, boxes, masks = np.zeros((5, 3, 5)), truth.boxes_NM4, np.full((5, 3, 32, 32), -9.0)
    for row in range(5):
        for at, label in enumerate(truth.labels_NM[row]):
            shares[row, at, label] = 1.0  # IGNORED is "nothing"
            masks[row, at] += 18.0 * (truth.objects_NHW[row] == at + 1)
    found = [tuple(torch.from_numpy(part).float() for part in (shares, boxes, masks))]
    perfect = object_scores(truth, found, len(SHAPES)).figures()
    assert perfect == dict.fromkeys(("mask_map", "mask_ap50", "mask_ap75", "map", "mean_iou", "pixel_accuracy"), 1.0)
    shares[..., :-1], shares[..., -1] = 0.0, 1.0
    nothing = object_scores(truth, [(torch.from_numpy(shares).float(), *found[0][1:])], len(SHAPES))
    assert nothing.pixels.each[1:].max() == 0.0
    np.testing.assert_array_equal([truth.labelled(row) for row in range(5)], truth.masks_NHW)
