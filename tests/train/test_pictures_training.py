"""A Vision Transformer from pictures to answers: training, resuming, predicting, evaluating, comparing, tracing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import headway
from headway.errors import InputError
from headway.folder import read_model
from headway.hub.hf_export import export_hf
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.train.run import read_run, write_run
from small_runs import told, train_quietly

SMALL = (
    "engine.device=cpu", "engine.steps=250", "engine.batch=32", "engine.log=50", "data.channels=1", "model.image=8",
    "model.patch=4",
    "model.layers=1", "model.width=16", "model.inner=32", "model.heads=2", "model.dropout=0.0",
    "data.augment.shift=0", "data.augment.flip=false",
    "schedule.peak=0.01", "schedule.warmup=20", "validation.every=125",
    "validation.score_every=125",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 grey pictures with a bright half: its place is the label."""
    place, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    for label, part in {"left": np.s_[:, :4], "right": np.s_[:, 4:], "top": np.s_[:4]}.items():
        (place / label).mkdir()
        for number in range(100):
            pixels = rng.integers(0, 120, (8, 8))
            pixels[part] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(place / label / f"{number}.png")
    return place


def run_of(folder: Path, *settings: str) -> Any:
    return change(RECIPES["classify-pictures"].make(), [f"data.train={folder}", *SMALL, *settings])


def train(folder: Path, out: Path, *settings: str, resume: bool = False) -> dict[str, Any]:
    return train_quietly(run_of(folder, *settings), out, resume).scores


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert train(folder, out)["validation accuracy"] > 0.9
    return out


def test_a_resumed_run_ends_with_the_same_bits(folder: Path, tmp_path: Path) -> None:
    steady = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0", "model.dropout=0.2")
    drawn = {"shift": 1, "flip": "true", "operations": 2, "erase": 0.2, "mixup": 0.8, "cutmix": 1.0, "zoom": 0.7}
    augment = [f"data.augment.{name}={value}" for name, value in drawn.items()]
    settings = (
        *steady,
        *augment,
        "model.drop_path=0.3",
        "engine.checkpoint=4",
        "validation.every=4",
        "validation.score_every=4",
    )
    train(folder, tmp_path / "whole", "engine.steps=12", *settings)
    train(folder, tmp_path / "parts", "engine.steps=4", *settings)
    train(folder, tmp_path / "parts", "engine.steps=12", *settings, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_picture_is_labelled_from_a_file_and_from_an_array(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(trained, "cpu")
    names = [folder / "left" / "3.png", folder / "top" / "5.png"]
    best = [guesses[0].text for guesses in model.classify(names)]
    assert best == ["left", "top"] and model.labels == ("left", "right", "top")
    again = model.classify([np.asarray(Image.open(name)) for name in names])
    assert again == model.classify(names)
    lines = told("predict", trained, *names, capsys=capsys).splitlines()
    assert [line.split("\t")[0] for line in lines] == best
    values = json.loads(told("predict", trained, names[0], "--json", capsys=capsys))
    assert abs(sum(share for _, share in values["labels"]) - 1) < 1e-4
    assert model.classify(names[0]) == model.classify(names[:1])[0]
    assert model.classify(np.asarray(Image.open(names[0]))) == model.classify(names[:1])[0]
    with pytest.raises(InputError, match=r"there is no picture a\.png"):
        model.classify("a.png")


def test_evaluate_counts_what_predict_gives(folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told("evaluate", trained, folder, "--json", capsys=capsys))
    paths = sorted(folder.glob("*/*.png"))
    guesses = load(trained, "cpu").classify(paths)
    right = [guess[0].text == path.parent.name for guess, path in zip(guesses, paths, strict=True)]
    assert found["pictures"] == 300 and found["accuracy"] == pytest.approx(np.mean(right))


def test_the_folder_keeps_how_pictures_are_read(folder: Path, trained: Path) -> None:
    loaded = read_model(trained)
    pixels = np.stack([np.asarray(Image.open(path)) for path in folder.glob("*/*.png")]) / 255
    config = loaded.card.processors["image"]
    assert (config.size, config.height, config.width) == (1, 8, 8) and loaded.card.task == "image-classification"
    assert config.mean[0] == pytest.approx(pixels.mean(), abs=0.01)
    assert config.std[0] == pytest.approx(pixels.std(), abs=0.01)
    assert "pictures of 8 × 8 in grey" in (trained / "model" / "README.md").read_text(encoding="utf-8")


def test_another_run_starts_from_the_model(folder: Path, trained: Path, tmp_path: Path) -> None:
    scores = train(folder, tmp_path / "more", "engine.steps=2", f"init={trained}", "schedule.peak=0")
    assert scores["validation accuracy"] == read_model(trained).card.score["validation accuracy"]


def test_another_run_starts_from_the_model_with_larger_pictures(folder: Path, trained: Path, tmp_path: Path) -> None:
    """Positions between those of the earlier model: without a step it still knows most of the pictures."""
    larger = ("engine.steps=1", f"init={trained}", "schedule.peak=0", "model.image=16")
    scores = train(folder, tmp_path / "larger", *larger)
    loaded = read_model(tmp_path / "larger")
    assert loaded.card.reads.height == 16 and loaded.model.context == 17
    assert scores["validation accuracy"] > 0.5


def test_a_trace_lies_along_the_patches(folder: Path, trained: Path) -> None:
    model = load(trained, "cpu")
    path = str(folder / "left" / "3.png")
    trace = model.trace(path)
    assert trace.tracks["patches"].labels == ("[class]", "0,0", "0,1", "1,0", "1,1")
    weights = trace["encoder.0.attention.weights"]
    assert trace.axes["encoder.0.attention.weights"] == ("head", "patches", "patches") and weights.shape == (2, 5, 5)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert trace.about["labels"][0][0] == "left"
    with headway.trace(model) as recording:
        model.classify([path])
    np.testing.assert_allclose(recording.row().tensors["encoder.0.attention.weights"], weights, rtol=1e-5)
    assert list(recording.row().tracks) == ["patches"]


def test_explore_writes_a_page_and_the_plan_counts_channels(
    folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    told("explore", trained, "--text", folder / "left" / "3.png", "--html", page, capsys=capsys)
    assert page.stat().st_size > 10_000
    plan = told("train", trained / "run.json", "--dry-run", "--device", "cpu", capsys=capsys)
    assert "pictures whose channels are 1" in plan
    assert "pictures whose channels are 1" in told("cost", trained, capsys=capsys)


def test_two_sizes_are_compared(
    folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = read_run(trained / "run.json")
    for name, width in (("narrow", 8), ("wide", 16)):
        (tmp_path / name).mkdir()
        write_run(replace(run, model=replace(run.model, width=width)), tmp_path / name / "run.json")
    files = [tmp_path / name / "run.json" for name in ("narrow", "wide")]
    out = tmp_path / "out"
    table = told(
        "compare", *files, "--data", folder, "--tokens", 320, "--out", out, "--device", "cpu", "--json", capsys=capsys
    )
    found = {entry["name"]: entry for entry in json.loads(table)["runs"]}
    assert (
        found.keys() == {"narrow", "wide"} and 320 - 32 < found["narrow"]["tokens"] <= 320
    )  # of the last batch of an epoch, less
    assert found["narrow"]["parameters"] < found["wide"]["parameters"]
    assert (out / "comparison.png").is_file()


def test_data_that_does_not_fit_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="needs a head: set head=classes"):
        replace(run_of(folder), head=None)
    with pytest.raises(InputError, match="data.channels must be 1"):
        run_of(folder, "data.channels=2")
    bert = RECIPES["classify"].make()
    with pytest.raises(InputError, match="family 'bert' does not learn from labelled-images"):
        replace(run_of(folder), model=bert.model)


def test_a_trained_model_is_one_of_transformers(folder: Path, trained: Path, tmp_path: Path) -> None:
    from transformers import ViTForImageClassification, ViTImageProcessorPil

    export_hf(trained, tmp_path / "hf")
    theirs = ViTForImageClassification.from_pretrained(tmp_path / "hf").eval()
    processor = ViTImageProcessorPil.from_pretrained(tmp_path / "hf")
    paths = sorted(folder.glob("*/3.png"))
    arrays = [np.asarray(Image.open(path))[..., None] for path in paths]
    pixels = processor(arrays, return_tensors="pt", input_data_format="channels_last")["pixel_values"]
    with torch.no_grad():
        shares = theirs(pixels).logits.softmax(-1)
    mine = load(trained, "cpu").classify(paths)
    for row, guesses in zip(shares, mine, strict=True):
        wanted = {theirs.config.id2label[at]: float(share) for at, share in enumerate(row)}
        assert {guess.text: guess.probability for guess in guesses} == pytest.approx(wanted, abs=1e-5)
