"""DETR's head: its matching against an exhaustive one, its losses against transformers'."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.loss.loss_for_object_detection import HungarianMatcher, ImageLoss

from headway.batch import IGNORED
from headway.models import build
from headway.models.box_head import Anchors, Boxes, DecodedBoxes, match
from headway.models.detr import DetrConfig
from headway.models.vit import Patches, ViTConfig
from headway.nn.boxes import corners, middles

CONFIG = DetrConfig(16, 2, 24, 40, 3, 0.0, stem=Patches(), patch=4)
HEAD = Boxes(("cat", "dog"), queries=5, layers=3)
LABELS = torch.tensor([[1, 0, IGNORED], [IGNORED, IGNORED, IGNORED], [IGNORED, 1, 1]])


def batch() -> Any:
    torch.manual_seed(5)
    boxes = corners(torch.rand(3, 3, 4) * 0.3 + 0.2) * (LABELS != IGNORED)[..., None]
    pixels = torch.randn(3, 3, 16, 16)
    return SimpleNamespace(
        boxes_BM4=boxes, labels_BM=LABELS, there_B=torch.ones(3), inputs=SimpleNamespace(pixels_BCHW=pixels)
    )


def found(layers: int = 2) -> DecodedBoxes:
    torch.manual_seed(6)
    return DecodedBoxes(torch.randn(layers, 3, 5, 3), torch.rand(layers, 3, 5, 4) * 0.4 + 0.1)


def test_the_matching_costs_least() -> None:
    given, wanted = found(), batch()
    pairs = match(given, wanted.boxes_BM4, wanted.labels_BM, HEAD)
    for layer in range(2):
        for row in range(3):
            there = (LABELS[row] != IGNORED).nonzero().flatten().tolist()
            assert all(pairs[layer, row, at] == 5 for at in range(3) if at not in there)

            def cost(queries: Any, layer: int = layer, row: int = row, there: Any = there) -> float:
                total = 0.0
                for query, at in zip(queries, there, strict=True):
                    only = DecodedBoxes(given.logits_NBQL[layer, row, query], given.boxes_NBQ4[layer, row, query])
                    box = wanted.boxes_BM4[row, at]
                    from headway.nn.boxes import overlap

                    giou = overlap(corners(only.boxes_NBQ4), box)[1]
                    far = (only.boxes_NBQ4 - middles(box)).abs().sum()
                    total += float(5 * far - 2 * giou - only.logits_NBQL.softmax(-1)[LABELS[row, at]])
                return total

            best = min(permutations(range(5), len(there)), key=cost)
            assert cost(pairs[layer, row, there].tolist()) == pytest.approx(cost(best), abs=1e-6)


@pytest.mark.parametrize("start", [HEAD.start, Anchors()])
def test_losses_are_those_of_transformers(start: Any) -> None:
    torch.manual_seed(2)
    model = build("detr", CONFIG, (3,), replace(HEAD, start=start))
    wanted = batch()
    encoded = model.encode(wanted.inputs)
    mine = model.head.losses(encoded, wanted)
    every = model.head.found(encoded)
    judge = ImageLoss(HungarianMatcher(1, 5, 2), 2, 0.1, ["labels", "boxes"])
    there = LABELS != IGNORED
    targets = [
        {"class_labels": LABELS[row][there[row]], "boxes": middles(wanted.boxes_BM4[row][there[row]])}
        for row in range(3)
    ]
    total = 0.0
    for layer in range(3):
        output = {"logits": every.logits_NBQL[layer], "pred_boxes": every.boxes_NBQ4[layer]}
        theirs = judge(output, targets)
        boxes = int(there.sum())
        weights = boxes + 0.1 * (15 - boxes)  # their cross-entropy is a weighted mean over all queries
        total += theirs["loss_ce"] * weights + boxes * (5 * theirs["loss_bbox"] + 2 * theirs["loss_giou"])
    torch.testing.assert_close(mine["loss"][0], total)
    torch.testing.assert_close(mine["distance"][0], theirs["loss_bbox"].detach() * boxes)
    torch.testing.assert_close(mine["overlap"][0], theirs["loss_giou"].detach() * boxes)
    torch.testing.assert_close(mine["nll"][0], theirs["loss_ce"].detach() * weights)


def test_empty_rows_and_more_boxes_than_queries_are_left_out() -> None:
    torch.manual_seed(2)
    model = build("detr", CONFIG, (3,), replace(HEAD, queries=1))
    wanted = batch()
    whole = model.head.losses(model.encode(wanted.inputs), wanted)
    assert whole["loss"][0].isfinite()
    padded = SimpleNamespace(
        boxes_BM4=torch.cat([wanted.boxes_BM4, torch.zeros(1, 3, 4)]),
        labels_BM=torch.cat([LABELS, torch.full((1, 3), IGNORED)]), there_B=torch.tensor([1.0, 1, 1, 0]),
        inputs=SimpleNamespace(pixels_BCHW=torch.cat([wanted.inputs.pixels_BCHW, torch.zeros(1, 3, 16, 16)])),
    )  # fmt: skip
    more = model.head.losses(model.encode(padded.inputs), padded)
    torch.testing.assert_close(more["loss"][0], whole["loss"][0])


def test_any_encoder_of_pictures_takes_the_head() -> None:
    torch.manual_seed(2)
    vit = ViTConfig(16, 4, 2, 24, 40, 3, dropout=0.0, before=0)
    model = build("vit", vit, (3,), replace(HEAD, start=Anchors()))
    share, boxes = model.head.boxes(model.encode(batch().inputs))
    assert share.shape == (3, 5, 3) and boxes.shape == (3, 5, 4)
    torch.testing.assert_close(share.sum(-1), torch.ones(3, 5))


def test_half_precision_finds_nearly_the_same_boxes() -> None:
    torch.manual_seed(2)
    model = build("detr", CONFIG, (3,), replace(HEAD, start=Anchors())).eval()
    with torch.no_grad():
        _, wanted = model.head.boxes(model.encode(batch().inputs))
        _, found = model.bfloat16().head.boxes(model.encode(batch().inputs))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.02)
