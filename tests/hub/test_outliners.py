"""DETR with masks of `transformers`: opened, equal logits, boxes and masks, written, refused where it would differ."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tiny_pictures import saved_detr
from transformers import DetrForSegmentation, DetrImageProcessorPil

from headway.errors import InputError
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign
from headway.tasks.loading import load

STAGES = [f"stage{number}" for number in range(1, 5)]
BACKBONE = {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 24], "depths": [1, 2, 1, 1], "out_features": STAGES}
SMALL = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "num_queries": 5, "id2label": {0: "cat", 1: "dog", 2: "cow"},
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bottleneck": ({}, {}),
    "basic": ({"layer_type": "basic"}, {"activation_function": "gelu", "mask_loss_coefficient": 2}),
    "wider": ({}, {"d_model": 64, "dice_loss_coefficient": 3}),
}


def made(case: str, place: Path) -> DetrForSegmentation:
    backbone, settings = CASES[case]
    return saved_detr("DetrForSegmentation", BACKBONE | backbone, SMALL | settings, place, (72, 104))


@pytest.mark.parametrize("case", CASES)
def test_logits_boxes_and_masks_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    theirs, mine = made(case, tmp_path), load(tmp_path, "cpu")
    rng = np.random.default_rng(1)
    small = [rng.integers(0, 256, (4, 5, 3), dtype=np.uint8) for _ in range(2)]
    pictures = [np.asarray(Image.fromarray(one).resize((104, 72), Image.Resampling.BICUBIC)) for one in small]
    processor = DetrImageProcessorPil.from_pretrained(tmp_path)
    pixels = processor(pictures, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        wanted = theirs(pixels)
        logits, boxes, masks = mine.model(SimpleNamespace(pixels_BCHW=pixels))
    torch.testing.assert_close(logits, wanted.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(boxes, wanted.pred_boxes, rtol=0, atol=1e-5)
    torch.testing.assert_close(masks, wanted.pred_masks, rtol=0, atol=1e-5)
    assert masks.shape == (2, 5, 18, 26) and masks.std() > 0.1
    for row, found in enumerate(mine.outline(pictures, threshold=0.02)):
        share = wanted.logits[row].softmax(-1)[:, :-1]
        kept = [query for query in share.amax(-1).argsort(descending=True).tolist() if share[query].max() >= 0.02]
        assert kept and [one.label for one in found.objects] == [mine.labels[share[query].argmax()] for query in kept]
        large = torch.nn.functional.interpolate(wanted.pred_masks[row][None], (72, 104), mode="bilinear")[0].sigmoid()
        for number, query in enumerate(kept, 1):
            assert (large[query][torch.from_numpy(found.objects_HW == number)] > 0.499).all()


@pytest.mark.parametrize("case", CASES)
def test_a_model_goes_back_as_it_came(case: str, tmp_path: Path) -> None:
    theirs = made(case, tmp_path / "theirs")
    import_foreign(str(tmp_path / "theirs"), str(tmp_path / "mine"))
    assert load(tmp_path / "mine", "cpu").card.task == "instance-segmentation"
    assert export_hf(tmp_path / "mine", tmp_path / "back") == "detr"
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    again = DetrForSegmentation.from_pretrained(tmp_path / "back").eval()
    pixels = torch.randn(1, 3, 40, 40)
    with torch.no_grad():
        mine, wanted = again(pixels), theirs(pixels)
    torch.testing.assert_close(mine.pred_masks, wanted.pred_masks)
    for key in ("id2label", "num_queries", "mask_loss_coefficient", "dice_loss_coefficient", "activation_function"):
        assert getattr(again.config, key) == getattr(theirs.config, key), key


@pytest.mark.parametrize(
    ("change", "line"),
    [({"backbone_config": BACKBONE | {"model_type": "resnet", "out_features": ["stage4"]}}, "maps of all 4 stages"),
     ({"d_model": 24, "encoder_attention_heads": 4, "decoder_attention_heads": 4}, "no groups of 8")],
)  # fmt: skip
def test_what_headway_would_compute_otherwise_is_refused(change: dict[str, Any], line: str, tmp_path: Path) -> None:
    made("bottleneck", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=line):
        load(tmp_path, "cpu")


def test_weights_with_the_names_of_timm_are_the_same_weights() -> None:
    from headway.hub.families.detr import _spelled

    timm = "detr.model.backbone.conv_encoder.model.layer2.0.downsample.1.weight"
    own = "detr.model.backbone.conv_encoder.model.encoder.stages.1.layers.0.shortcut.normalization.weight"
    assert _spelled(timm) == _spelled(own) == own and _spelled("mask_head.lay1.bias") == "mask_head.lay1.bias"


def test_an_outliner_of_headways_own_kind_says_why_it_cannot_be_exported() -> None:
    from headway.hub.families.detr import DETR
    from headway.models.box_head import Anchors
    from headway.models.detr import DetrConfig as Own
    from headway.models.detr import ResNet
    from headway.models.mask_head import BoxesAndMasks, Placed

    resnet = Own(stem=ResNet())
    with pytest.raises(InputError, match="model.stem=convolutions has no counterpart"):
        DETR.config_out(Own(), (3,), BoxesAndMasks())
    with pytest.raises(InputError, match="head.start has no counterpart"):
        DETR.config_out(resnet, (3,), BoxesAndMasks(start=Anchors()))
    with pytest.raises(InputError, match="head.activation.* has no counterpart"):
        DETR.config_out(resnet, (3,), BoxesAndMasks(activation="gelu"))
    with pytest.raises(InputError, match="head.look.* has no counterpart"):
        DETR.config_out(resnet, (3,), BoxesAndMasks(look=Placed()))
    with pytest.raises(InputError, match="maps of all 4 stages"):
        DETR.config_out(Own(stem=ResNet(8, (8, 16), (1, 1))), (3,), BoxesAndMasks())
