"""ViT and DeiT of `transformers`: opened, equal, written, and pictures read as their own processors read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file

import headway
from headway.errors import InputError
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign
from headway.models import build
from headway.tasks.loading import load
from headway.tasks.pictures import ImageClassification

RNG = np.random.default_rng(4)
SMALL = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40, "image_size": 12,
    "patch_size": 4, "id2label": {0: "cat", 1: "dog", 2: "cow"},
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", {}),
    "vit-grey": ("ViTForImageClassification", {"num_channels": 1, "qkv_bias": False, "layer_norm_eps": 1e-3}),
    "vit-relu": ("ViTForImageClassification", {"hidden_act": "relu", "num_hidden_layers": 1}),
    "deit": ("DeiTForImageClassification", {}),
    "deit-teacher": ("DeiTForImageClassificationWithTeacher", {"hidden_act": "gelu_new"}),
}
PROCESSORS = {"vit": transformers.ViTImageProcessorPil, "deit": transformers.DeiTImageProcessorPil}


def picture(height: int = 17, width: int = 23) -> np.ndarray:
    small = RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def made(case: str, place: Path, dtype: torch.dtype = torch.float32, **how: Any) -> tuple[Any, Any]:
    """Their model with its processor, saved; random weights, none of them at its first value."""
    architecture, settings = CASES[case]
    kind = getattr(transformers, architecture)
    torch.manual_seed(3)
    model = kind(kind.config_class(**SMALL | settings)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    side, channels = SMALL["image_size"], settings.get("num_channels", 3)
    if case.startswith("deit"):
        how = {"size": {"height": 16, "width": 16}, "crop_size": {"height": side, "width": side}} | how
    numbers = {"image_mean": [0.4, 0.5, 0.6][:channels], "image_std": [0.2, 0.25, 0.3][:channels]}
    processor = PROCESSORS[case.partition("-")[0]](**{"size": {"height": side, "width": side}} | numbers | how)
    model.save_pretrained(place)
    processor.save_pretrained(place)
    return model.to(dtype), processor


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    """Of the pictures as each reads them: pixels, and what is computed from them."""
    theirs, processor = made(case, tmp_path)
    mine = load(tmp_path, "cpu")
    channels = theirs.config.num_channels
    pictures = [picture(), picture(12, 12), picture(40, 9)]
    values = [Image.fromarray(one).convert("L" if channels == 1 else "RGB") for one in pictures]
    given = [np.asarray(value)[..., None] if channels == 1 else value for value in values]
    pixels = processor(given, return_tensors="pt", **({"input_data_format": "channels_last"} if channels == 1 else {}))
    inputs = mine._inputs([np.asarray(value) for value in values])
    torch.testing.assert_close(inputs.pixels_BCHW, pixels["pixel_values"], rtol=0, atol=1e-5)
    with torch.no_grad():
        wanted = theirs(pixels["pixel_values"]).logits
        found = mine.model(inputs)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    best = [guesses[0] for guesses in mine.classify([np.asarray(value) for value in values])]
    shares, at = wanted.softmax(-1).max(-1)
    assert [one.text for one in best] == [SMALL["id2label"][i] for i in at.tolist()]
    assert [one.probability for one in best] == pytest.approx(shares.tolist(), abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_model_goes_back_as_it_came(case: str, tmp_path: Path) -> None:
    theirs, processor = made(case, tmp_path / "theirs")
    import_foreign(str(tmp_path / "theirs"), str(tmp_path / "mine"))
    export_hf(tmp_path / "mine", tmp_path / "back")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    pixels = torch.randn(2, theirs.config.num_channels, 12, 12)
    with torch.no_grad():
        torch.testing.assert_close(again(pixels).logits, theirs(pixels).logits)
    assert again.config.id2label == theirs.config.id2label
    opened = type(processor).from_pretrained(tmp_path / "back").to_dict()
    known = processor.to_dict()
    for key in ("size", "image_mean", "image_std", "resample", "do_center_crop", "crop_size"):
        if known.get(key) is not None:
            assert opened[key] == pytest.approx(known[key]) if key.startswith("image") else opened[key] == known[key]


def test_attention_of_a_trace_is_that_of_transformers(tmp_path: Path) -> None:
    made("deit", tmp_path)
    theirs = transformers.DeiTForImageClassification.from_pretrained(tmp_path, attn_implementation="eager").eval()
    mine, value = load(tmp_path, "cpu"), picture()
    trace = mine.trace(value)
    assert trace.tracks["patches"].labels[:3] == ("[class]", "[distilled]", "0,0")
    with torch.no_grad():
        wanted = theirs(mine._inputs([value]).pixels_BCHW, output_attentions=True).attentions
    for number, weights in enumerate(wanted):
        np.testing.assert_allclose(trace[f"encoder.{number}.attention.weights"], weights[0], atol=1e-6)


def test_positions_of_a_larger_picture_are_those_of_transformers(tmp_path: Path) -> None:
    theirs, _ = made("vit", tmp_path)
    loaded = headway.folder.read_model(tmp_path)
    from dataclasses import replace

    larger = build("vit", replace(loaded.card.config, image=20), (3,), loaded.card.head).eval()
    found = {name: weight.detach() for name, weight in loaded.model.named_parameters()}
    weights = larger.fit(found, loaded.card.config)
    larger.load_state_dict(weights)
    pixels = torch.randn(2, 3, 20, 20)
    from types import SimpleNamespace

    with torch.no_grad():
        wanted = theirs(pixels, interpolate_pos_encoding=True).logits
        found = larger(SimpleNamespace(pixels_BCHW=pixels))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "line"),
    [({"do_resize": False}, "do_resize is false"), ({"size": {"height": 8, "width": 8}}, "the model takes 12 × 12"),
     ({"size": {"shortest_edge": 12}}, "headway reads a number, or a height and a width"),
     ({"resample": 5}, "resample"), ({"image_mean": [1, 2]}, "a number for each of 3 channels")],
)  # fmt: skip
def test_what_headway_would_read_otherwise_is_refused(change: dict[str, Any], line: str, tmp_path: Path) -> None:
    made("vit", tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=line):
        load(tmp_path, "cpu")


def test_a_model_without_labels_is_a_start_for_new_ones(tmp_path: Path) -> None:
    config = transformers.ViTConfig(**SMALL)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    mine = load(tmp_path, "cpu")
    with pytest.raises(InputError, match="it gives vectors"):
        mine.classify(picture())


def test_evaluating_scales_and_crops_a_picture_once(tmp_path: Path) -> None:
    """DeiT takes the middle of a larger square: of what is cropped already it would take another middle."""
    made("deit", tmp_path / "model")
    place = tmp_path / "pictures" / "cat"
    place.mkdir(parents=True)
    for number in range(12):
        Image.fromarray(RNG.integers(0, 256, (14, 14, 3), dtype=np.uint8)).save(place / f"{number:02}.png")
    mine = load(tmp_path / "model", "cpu")
    _, _, found = ImageClassification.labelled(mine, [str(place.parent)], {})
    wanted = mine.classify(sorted(place.iterdir()))
    assert [[(g.text, round(g.probability, 5)) for g in row] for row in found] == [
        [(g.text, round(g.probability, 5)) for g in row] for row in wanted
    ]
