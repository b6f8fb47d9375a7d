"""DETR of `transformers`: opened, equal logits and boxes, written, and refused where it would differ."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_pictures import saved_detr
from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessorPil

from headway.errors import InputError
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign
from headway.tasks.loading import load

BACKBONE = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "out_features": ["stage2"]}
SMALL = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "num_queries": 5, "id2label": {0: "cat", 1: "dog", 2: "cow"},
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bottleneck": ({}, {}),
    "basic": ({"layer_type": "basic"}, {"activation_function": "gelu"}),
    "three-stages": ({"hidden_sizes": [8, 16, 16], "depths": [2, 1, 1], "out_features": ["stage3"]}, {}),
}


def made(case: str, place: Path, width: int = 40) -> DetrForObjectDetection:
    backbone, settings = CASES[case]
    return saved_detr("DetrForObjectDetection", BACKBONE | backbone, SMALL | settings, place, (40, width))


@pytest.mark.parametrize("case", CASES)
def test_logits_and_boxes_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    theirs = made(case, tmp_path, width=56)
    mine = load(tmp_path, "cpu")
    rng = np.random.default_rng(1)
    small = [rng.integers(0, 256, (4, 5, 3), dtype=np.uint8) for _ in range(3)]
    pictures = [Image.fromarray(one).resize((56, 40), Image.Resampling.BICUBIC) for one in small]
    processor = DetrImageProcessorPil.from_pretrained(tmp_path)
    pixels = processor(pictures, return_tensors="pt")["pixel_values"]
    inputs = mine._inputs([np.asarray(picture) for picture in pictures])
    torch.testing.assert_close(inputs.pixels_BCHW, pixels, rtol=0, atol=1e-5)
    with torch.no_grad():
        wanted = theirs(pixels)
        logits, boxes = mine.model(inputs)
    torch.testing.assert_close(logits, wanted.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(boxes, wanted.pred_boxes, rtol=0, atol=1e-5)
    sizes = torch.tensor([[1.0, 1.0]] * 3)
    judged = processor.post_process_object_detection(wanted, threshold=0.2, target_sizes=sizes)
    for found, answer in zip(mine.detect([np.asarray(p) for p in pictures], threshold=0.2), judged, strict=True):
        order = answer["scores"].argsort(descending=True, stable=True)
        assert [one.label for one in found] == [SMALL["id2label"][i] for i in answer["labels"][order].tolist()]
        np.testing.assert_allclose([one.probability for one in found], answer["scores"][order], atol=1e-5)
        mine_boxes = np.array([one.box for one in found]).reshape(-1, 4)
        np.testing.assert_allclose(mine_boxes, answer["boxes"][order].clamp(0, 1), atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_model_goes_back_as_it_came(case: str, tmp_path: Path) -> None:
    theirs = made(case, tmp_path / "theirs")
    import_foreign(str(tmp_path / "theirs"), str(tmp_path / "mine"))
    assert export_hf(tmp_path / "mine", tmp_path / "back") == "detr"
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    again = DetrForObjectDetection.from_pretrained(tmp_path / "back").eval()
    pixels = torch.randn(2, 3, 40, 40)
    with torch.no_grad():
        mine, wanted = again(pixels), theirs(pixels)
    torch.testing.assert_close(mine.logits, wanted.logits)
    torch.testing.assert_close(mine.pred_boxes, wanted.pred_boxes)
    assert again.config.id2label == theirs.config.id2label and again.config.num_queries == 5
    kept = json.loads((tmp_path / "back" / "preprocessor_config.json").read_text())
    assert kept["size"] == {"height": 40, "width": 40} and kept["image_processor_type"] == "DetrImageProcessor"
    assert load(tmp_path / "mine", "cpu").card.task == "detection"


@pytest.mark.parametrize(
    ("change", "line"),
    [({"backbone_config": None, "backbone": "vgg16"}, "no backbone 'vgg16'"),
     ({"auxiliary_loss": True}, "auxiliary_loss is True"),
     ({"position_embedding_type": "learned"}, "position_embedding_type is 'learned'"),
     ({"backbone_config": {"model_type": "swin"}}, "must be a resnet"),
     ({"backbone_config": BACKBONE | {"model_type": "resnet", "hidden_act": "gelu"}}, "hidden_act is 'gelu'"),
     ({"backbone_config": BACKBONE | {"model_type": "resnet", "out_features": ["stage1"]}}, "out_features"),
     ({"decoder_ffn_dim": 48}, "decoder_ffn_dim is 48")],
)  # fmt: skip
def test_what_headway_would_compute_otherwise_is_refused(change: dict[str, Any], line: str, tmp_path: Path) -> None:
    made("bottleneck", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=line):
        load(tmp_path, "cpu")


def small_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """resnet18 of timm's names with few channels."""
    from headway.hub.families import detr
    from headway.models.detr import ResNet

    monkeypatch.setitem(detr.TIMM, "resnet50", ResNet(8, (8, 16), (1, 2)))


def test_weights_with_the_names_of_timm_are_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = made("bottleneck", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    names = {
        r"embedder\.embedder\.convolution": "conv1", r"embedder\.embedder\.normalization": "bn1",
        r"encoder\.stages\.0\.layers": "layer1", r"encoder\.stages\.1\.layers": "layer2",
        r"shortcut\.convolution": "downsample.0", r"shortcut\.normalization": "downsample.1",
        r"layer\.0\.convolution": "conv1", r"layer\.1\.convolution": "conv2", r"layer\.2\.convolution": "conv3",
        r"layer\.0\.normalization": "bn1", r"layer\.1\.normalization": "bn2", r"layer\.2\.normalization": "bn3",
    }  # fmt: skip
    renamed = {}
    for name, weight in weights.items():
        if ".conv_encoder." in name:
            for old, new in names.items():
                name = re.sub(old, new, name)
        renamed[name] = weight
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    facts = json.loads((tmp_path / "config.json").read_text())
    facts |= {"backbone_config": None, "backbone": "resnet50", "use_timm_backbone": True}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    small_timm(monkeypatch)
    pixels = torch.randn(2, 3, 40, 40)
    with torch.no_grad():
        logits, boxes = load(tmp_path, "cpu").model(SimpleNamespace(pixels_BCHW=pixels))
        wanted = theirs(pixels)
    torch.testing.assert_close(logits, wanted.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(boxes, wanted.pred_boxes, rtol=0, atol=1e-5)


@pytest.mark.gpu  # where timm is: it needs a torchvision that fits torch
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_detector_with_timms_own_network_is_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("timm", exc_type=ImportError)
    torch.manual_seed(3)
    small = {key: value for key, value in SMALL.items() if "backbone" not in key}
    config = DetrConfig(**small, use_timm_backbone=True, use_pretrained_backbone=False, backbone=name)
    theirs = DetrForObjectDetection(config).eval()
    theirs.save_pretrained(tmp_path)
    DetrImageProcessorPil(size={"height": 64, "width": 64}, do_pad=False).save_pretrained(tmp_path)
    pixels = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        logits, boxes = load(tmp_path, "cpu").model(SimpleNamespace(pixels_BCHW=pixels))
        wanted = theirs(pixels)
    torch.testing.assert_close(logits, wanted.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(boxes, wanted.pred_boxes, rtol=0, atol=1e-5)


def test_a_detector_of_headways_own_kind_says_why_it_cannot_be_exported(tmp_path: Path) -> None:
    from headway.hub.families.detr import DETR
    from headway.models.box_head import Anchors, Boxes
    from headway.models.detr import DetrConfig as Own
    from headway.models.detr import ResNet

    with pytest.raises(InputError, match="model.stem=convolutions has no counterpart"):
        DETR.config_out(Own(), (3,), Boxes())
    with pytest.raises(InputError, match="head.start has no counterpart"):
        DETR.config_out(Own(stem=ResNet()), (3,), Boxes(start=Anchors()))
