"""DETR's head of masks: its losses against transformers', its masks of pairs against those of all queries."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.loss.loss_for_object_detection import HungarianMatcher, ImageLoss, dice_loss, sigmoid_focal_loss

from headway.batch import IGNORED
from headway.errors import InputError
from headway.models import build
from headway.models.box_head import Anchors
from headway.models.detr import DetrConfig, ResNet
from headway.models.mask_head import BoxesAndMasks, Content, Placed, dice, focal
from headway.models.vit import Convolutions, Patches, ViTConfig
from headway.nn.boxes import corners, middles

CONFIG = DetrConfig(16, 1, 24, 40, 3, 0.0, stem=Patches(), patch=4)
HEAD = BoxesAndMasks(("cat", "dog"), queries=5, layers=2)
LABELS = torch.tensor([[1, 0, IGNORED], [IGNORED, IGNORED, IGNORED], [IGNORED, 1, 1]])
STEMS = {
    "patches": Patches(),
    "convolutions": Convolutions(3),
    "one-convolution": Convolutions(1),
    "resnet": ResNet(8, (8, 16, 24), (1, 1, 1), "basic"),
}
SIDES = {"patches": 16, "convolutions": 8, "one-convolution": 32, "resnet": 4}  # of the masks


def batch(rows: int = 3) -> Any:
    torch.manual_seed(5)
    boxes = corners(torch.rand(3, 3, 4) * 0.3 + 0.2) * (LABELS != IGNORED)[..., None]
    pixels, objects = torch.randn(3, 3, 16, 16), torch.randint(0, 4, (3, 16, 16), dtype=torch.int16)
    return SimpleNamespace(
        boxes_BM4=boxes[:rows], labels_BM=LABELS[:rows], there_B=torch.ones(rows), objects_BHW=objects[:rows],
        inputs=SimpleNamespace(pixels_BCHW=pixels[:rows]),
    )  # fmt: skip


def test_both_losses_are_those_of_transformers() -> None:
    torch.manual_seed(1)
    logits = (torch.randn(4, 50, dtype=torch.float64) * 6).requires_grad_()
    target = (torch.rand(4, 50) < 0.3).double()
    target[3] = 0
    for mine, theirs in ((focal, sigmoid_focal_loss), (dice, dice_loss)):
        found, wanted = mine(logits, target).sum(), theirs(logits, target, 1.0)
        torch.testing.assert_close(found, wanted)
        for one, other in zip(*(torch.autograd.grad(value, logits) for value in (found, wanted)), strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("stem", STEMS)
def test_the_loss_and_its_gradient_are_those_of_transformers(stem: str, train: bool) -> None:
    """Also in train mode, with dropout of the same seed."""
    torch.manual_seed(2)
    config = replace(CONFIG, stem=STEMS[stem], dropout=0.1 if train else 0.0)
    head = replace(HEAD, focal=0.7, dice=1.3, activation="gelu", look=Placed() if train else Content())
    model = build("detr", config, (3,), head).train(train)
    wanted = batch()
    torch.manual_seed(3)
    encoded = model.encode(wanted.inputs)
    mine = model.head.losses(encoded, wanted)
    torch.manual_seed(3)
    encoded = model.encode(wanted.inputs)
    found, *queries = model.head.decoded(encoded)
    rows = torch.arange(3).repeat_interleave(5)
    masks = model.head.drawn(encoded, *(part.flatten(0, 1) for part in queries), rows).unflatten(0, (3, 5))
    assert masks.shape == (3, 5, SIDES[stem], SIDES[stem])
    judge = ImageLoss(HungarianMatcher(1, 5, 2), 2, 0.1, ["labels", "boxes", "masks"])
    there = LABELS != IGNORED
    numbers = [there[row].nonzero()[:, 0] for row in range(3)]
    targets = [
        {
            "class_labels": LABELS[row][at], "boxes": middles(wanted.boxes_BM4[row][at]),
            "masks": (wanted.objects_BHW[row] == at[:, None, None] + 1).float(),
        }
        for row, at in enumerate(numbers)
    ]  # fmt: skip
    boxes, total = int(there.sum()), torch.zeros(())
    for layer in range(2):
        output = {"logits": found.logits_NBQL[layer], "pred_boxes": found.boxes_NBQ4[layer], "pred_masks": masks}
        theirs = judge(output, targets)
        total = total + theirs["loss_ce"] * (boxes + 0.1 * (15 - boxes))  # theirs is a weighted mean over all queries
        total = total + boxes * (5 * theirs["loss_bbox"] + 2 * theirs["loss_giou"])
    total = total + boxes * (0.7 * theirs["loss_mask"] + 1.3 * theirs["loss_dice"])  # of the last layer alone
    torch.testing.assert_close(mine["loss"][0], total)
    torch.testing.assert_close(mine["focal"][0], theirs["loss_mask"].detach() * boxes)
    torch.testing.assert_close(mine["dice"][0], theirs["loss_dice"].detach() * boxes)
    parts = [weight for weight in model.parameters() if weight.requires_grad]
    pairs = [torch.autograd.grad(loss, parts, allow_unused=True) for loss in (mine["loss"][0], total)]
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_picture_without_objects_and_more_objects_than_queries_are_learned_from() -> None:
    torch.manual_seed(2)
    model = build("detr", CONFIG, (3,), replace(HEAD, queries=1))
    wanted = batch()
    empty = SimpleNamespace(
        boxes_BM4=wanted.boxes_BM4[1:2, :0], labels_BM=LABELS[1:2, :0], there_B=torch.ones(1),
        objects_BHW=wanted.objects_BHW[1:2], inputs=SimpleNamespace(pixels_BCHW=wanted.inputs.pixels_BCHW[1:2]),
    )  # fmt: skip
    for some in (wanted, empty):
        terms = model.head.losses(model.encode(some.inputs), some)
        terms["loss"][0].backward()
        assert all(value.isfinite() for value, _ in terms.values())
    assert terms["focal"][0] == terms["dice"][0] == 0


def test_any_encoder_of_pictures_takes_the_head() -> None:
    torch.manual_seed(2)
    for before in (0, 1):  # tokens before the places
        vit = ViTConfig(16, 4, 1, 24, 40, 3, dropout=0.0, before=before)
        model = build("vit", vit, (3,), replace(HEAD, start=Anchors()))
        share, boxes, masks = model.head.objects(model.encode(batch().inputs))
        assert share.shape == (3, 5, 3) and boxes.shape == (3, 5, 4) and masks.shape == (3, 5, 16, 16)


def test_a_head_without_masks_says_so() -> None:
    from headway.models.box_head import Boxes

    model = build("detr", CONFIG, (3,), Boxes(("cat",), queries=2, layers=1))
    with pytest.raises(InputError, match="finds no masks of objects: it finds objects"):
        model.head.objects(model.encode(batch().inputs))
    for name in ("focal", "dice"):
        with pytest.raises(InputError, match=f"head.{name} must be 0 or more"):
            replace(HEAD, **{name: -1.0})
