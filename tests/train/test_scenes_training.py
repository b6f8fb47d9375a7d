"""What is in pictures, from drawn scenes to answers: training, resuming, predicting, drawing, evaluating."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import headway
from headway.data.annotated_files import save_annotated
from headway.data.scenes import Scenes, drawn
from headway.errors import InputError
from headway.generate.drawing import canvas, with_boxes
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from small_runs import call, check_resumed, told, train_quietly

SMALL = (
    "engine.device=cpu", "engine.batch=16", "engine.log=20", "model.image=32", "model.patch=4",
    "model.stem=patches", "model.width=32", "model.inner=64", "model.heads=2", "schedule.peak=0.003",
    "schedule.warmup=20", "data.scenes.held=24", "data.scenes.most=2",
)  # fmt: skip
STEPS = {"scenes-masks": 80, "scenes-boxes": 40, "scenes-objects": 20, "scenes-captions": 30}
LAYERS = {"scenes-captions": ("model.encoder_layers=2", "model.decoder_layers=1")}
RECIPE = pytest.mark.parametrize("recipe", STEPS)
FEW = pytest.mark.parametrize(
    "recipe",
    [pytest.param(name, marks=[pytest.mark.long] * (name not in ("scenes-masks", "scenes-boxes"))) for name in STEPS],
)


def run_of(recipe: str, *settings: str) -> Any:
    return change(RECIPES[recipe].make(), [*SMALL, *LAYERS.get(recipe, ("model.layers=2",)), *settings])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trained model of each recipe."""
    found = {}
    for recipe, steps in STEPS.items():
        found[recipe] = tmp_path_factory.mktemp(recipe)
        each = f"validation.every={steps}", f"validation.score_every={steps}"
        train_quietly(run_of(recipe, f"engine.steps={steps}", *each), found[recipe])
    return found


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("pictures")
    for number, pixels in enumerate(drawn(Scenes(most=2), 9, np.arange(3), 32).pixels_NCHW):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(place / f"{number}.png")
    return sorted(place.iterdir())


@FEW
def test_a_stopped_run_that_is_resumed_gives_the_same_bits(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("engine.steps=8", "engine.checkpoint=3", "validation.every=4", "validation.score_every=4")
    run = run_of(recipe, *settings, "model.dropout=0.1", "engine.batch=6", "data.scenes.held=6")
    train_quietly(run, tmp_path / "whole")
    check_resumed(
        monkeypatch, tmp_path / "whole", tmp_path / "parts", 6,
        lambda out, resume=False: train_quietly(run, out, resume),
    )  # fmt: skip


def test_pixels_are_labelled_drawn_and_scored(
    runs: dict[str, Path], pictures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs["scenes-masks"]
    score = json.loads((folder / "model" / "headway.json").read_text())["score"]
    found = json.loads(told("evaluate", folder, "scenes", "--json", "--device", "cpu", capsys=capsys))
    assert found["mean_iou"] == pytest.approx(score["test mean_iou"], abs=1e-4) and found["pictures"] == 24
    assert found["pixel_accuracy"] > 0.8 and len(found["each"]) == 5
    model = headway.load(str(folder))
    [mine] = model.segment([pictures[0]])
    assert mine.labels_HW.shape == (32, 32) and sum(mine.shares.values()) == pytest.approx(1)
    answer = json.loads(told("predict", folder, pictures[0], "--json", "--draw", tmp_path / "a.png", capsys=capsys))
    assert answer["masks"] == mine.labels_HW.tolist() and answer["labels"][0] == "background"
    veiled = np.asarray(Image.open(tmp_path / "a.png"))
    assert veiled.shape == (512, 512, 3)
    plain = np.asarray(Image.open(pictures[0]).convert("RGB").resize((512, 512), Image.Resampling.NEAREST))
    changed = (veiled != plain).any(-1)[8::16, 8::16]
    assert not changed[mine.labels_HW == 0].any()


def test_objects_are_found_drawn_and_scored(
    runs: dict[str, Path], pictures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs["scenes-boxes"]
    score = json.loads((folder / "model" / "headway.json").read_text())["score"]
    found = json.loads(told("evaluate", folder, "scenes", "--json", "--device", "cpu", capsys=capsys))
    assert found["map"] == pytest.approx(score["test map"], abs=1e-4) and found["pictures"] == 24
    model = headway.load(str(folder))
    objects = model.detect(pictures[0], threshold=0.0)
    assert len(objects) == 12 and [one.probability for one in objects] == sorted(
        (one.probability for one in objects), reverse=True
    )
    assert all(0 <= edge <= 1 for one in objects for edge in one.box)
    certain = [one for one in objects if one.probability >= 0.5]
    answer = json.loads(told("predict", folder, pictures[0], "--json", "--draw", tmp_path / "a.png", capsys=capsys))
    assert [one["label"] for one in answer["objects"]] == [one.label for one in certain]
    assert Image.open(tmp_path / "a.png").size == (512, 512)
    trace = model.trace(str(pictures[0]))
    assert trace.about["objects"][0][0] in model.labels
    assert trace.axes["head.1.cross.weights"] == ("head", "queries", "patches")


def test_objects_are_outlined_drawn_and_scored(
    runs: dict[str, Path], pictures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs["scenes-objects"]
    score = json.loads((folder / "model" / "headway.json").read_text())["score"]
    found = json.loads(told("evaluate", folder, "scenes", "--json", "--device", "cpu", capsys=capsys))
    for name in ("mask_map", "mask_ap50", "map", "mean_iou", "pixel_accuracy"):
        assert found[name] == pytest.approx(score[f"test {name}"], abs=1e-4), name
    assert list(found["each"])[0] == "IoU of background" and len(found["each"]) == 5 and found["pictures"] == 24
    model = headway.load(str(folder))
    assert model.asked() == ["detect", "outline", "trace"]
    found = model.outline(pictures[0], threshold=0.0)
    assert len(found.objects) == 12 and found.objects_HW.shape == (32, 32) and found.objects_HW.max() <= 12
    labels = [0, *(1 + model.labels.index(one.label) for one in found.objects)]
    np.testing.assert_array_equal(found.labels_HW, np.array(labels)[found.objects_HW])
    assert [one.label for one in model.detect(pictures[0], threshold=0.0)] == [one.label for one in found.objects]
    answer = json.loads(told("predict", folder, pictures[0], "--json", "--draw", tmp_path / "a.png", capsys=capsys))
    certain = model.outline(pictures[0])
    assert answer["masks"] == certain.objects_HW.tolist() and len(answer["objects"]) == len(certain.objects)
    assert sum(one["pixels"] for one in answer["objects"]) == pytest.approx((certain.objects_HW > 0).mean(), abs=1e-4)
    assert Image.open(tmp_path / "a.png").size == (512, 512)
    assert model.trace(str(pictures[0])).about["objects"][0][0] in model.labels


def test_a_model_of_boxes_is_what_masks_may_start_from(runs: dict[str, Path], tmp_path: Path) -> None:
    one = ("engine.steps=1", "schedule.peak=0", "validation.every=1", "validation.score_every=1", "data.scenes.held=8")
    train_quietly(run_of("scenes-objects", *one, f"init={runs['scenes-boxes']}"), tmp_path / "more")
    first, second = (load(place, "cpu").model.state_dict() for place in (runs["scenes-boxes"], tmp_path / "more"))
    assert all(torch.equal(first[name], second[name]) for name in first if not name.startswith("head.labels."))


def test_pictures_are_described_and_scored(
    runs: dict[str, Path], pictures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs["scenes-captions"]
    score = json.loads((folder / "model" / "headway.json").read_text())["score"]
    out = tmp_path / "captions.txt"
    found = json.loads(told("evaluate", folder, "scenes", "--json", "--output", out, capsys=capsys))
    assert found["cider"] == pytest.approx(score["test cider"], abs=1e-4) and found["pictures"] == 24
    assert len(out.read_text().splitlines()) == 24
    model = headway.load(str(folder))
    texts = model.caption(pictures)
    assert texts == told("predict", folder, *pictures, capsys=capsys).splitlines()
    assert all(text.split()[0] == "a" for text in texts)
    assert Image.open(pictures[0]).size == (32, 32)
    told("predict", folder, pictures[0], "--beam-size", 3, "--draw", tmp_path / "a.png", capsys=capsys)
    assert Image.open(tmp_path / "a.png").height > 512
    trace = model.trace(str(pictures[0]))
    assert trace.about["caption"] == texts[0]
    assert trace.axes["decoder.0.cross.weights"] == ("head", "target", "source")
    own = model.trace(str(pictures[0]), "a red circle")
    assert own.tracks["target"].labels[1:] == ("a", "red", "circle")


def test_a_cached_search_writes_what_whole_passes_do(runs: dict[str, Path], pictures: list[Path]) -> None:
    model = load(runs["scenes-captions"], "cpu")
    network, symbols = model.model, model.symbols
    for picture in pictures:
        pixels = torch.from_numpy(model.image.encode([picture])[0])[None]
        ids = [symbols.start]
        while len(ids) <= model.limit and (len(ids) == 1 or ids[-1] != symbols.end):
            logits = network(SimpleNamespace(pixels_BCHW=pixels), torch.tensor([ids]))[0, -1]
            ids.append(int(logits.argmax()))
        assert model.caption(picture, beam=1) == model.tokenizer.decode([i for i in ids[1:] if i != symbols.end])


def test_boxes_are_drawn_where_they_are() -> None:
    plain = canvas(np.full((64, 64, 3), 200, np.uint8))
    found = np.asarray(with_boxes(plain, [(0.25, 0.5, 0.75, 0.875)], ["cat"], [1]))
    changed = (found != 200).any(-1)
    assert changed[256:449, 128].all() and changed[448, 128:385].all() and not changed[300:430, 200:300].any()


@FEW
def test_files_are_learned_from_too(recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_annotated(tmp_path / "all.npz", drawn(Scenes(most=2), 4, np.arange(40), 32))
    few = ("engine.steps=4", "validation.every=2", "validation.score_every=2", "engine.batch=8", "data.hold_out=0.3")
    files = (f"data.train={tmp_path / 'all.npz'}", f"data.test={tmp_path / 'all.npz'}", "data.flip=true")
    train_quietly(run_of(recipe, *few, *files), tmp_path / "run")
    found = json.loads(told("evaluate", tmp_path / "run", tmp_path / "all.npz", "--json", capsys=capsys))
    assert found["pictures"] == 40


@RECIPE
def test_several_pictures_are_drawn_into_a_folder(
    recipe: str, runs: dict[str, Path], pictures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told("predict", runs[recipe], *pictures, "--draw", tmp_path / "drawn", capsys=capsys).splitlines()
    assert len(lines) == 3 and sorted(path.name for path in (tmp_path / "drawn").iterdir()) == [
        "0.png", "1.png", "2.png",
    ]  # fmt: skip


@RECIPE
def test_a_trace_lies_along_the_patches(recipe: str, runs: dict[str, Path], pictures: list[Path]) -> None:
    trace = load(runs[recipe], "cpu").trace(str(pictures[0]))
    assert trace["encoder.0.attention.weights"].shape[0] == 2 and "pixels" in trace.tensors


@RECIPE
def test_what_cannot_be_answered_is_refused_in_one_line(
    recipe: str, runs: dict[str, Path], pictures: list[Path], tmp_path: Path
) -> None:
    picture = pictures[0]
    for words, line in (
        (("predict", runs[recipe], picture, "--draw", tmp_path / "a.txt"), "--draw writes a picture"),
        (("predict", runs[recipe], picture, "--draw", picture), "would replace the picture"),
        (("predict", runs[recipe], picture, "--draw", tmp_path / "no" / "a.png"), "there is no folder"),
        (("predict", runs[recipe], "--text", "a"), "this model reads pictures"),
        (("predict", runs[recipe], tmp_path / "none.png"), "there is no picture"),
        (("predict", runs[recipe], picture, "--all"), "--all has no meaning"),
        (("predict", runs[recipe], picture, "--conll"), "--conll has no meaning"),
        (("evaluate", runs[recipe], tmp_path / "none.npz"), "none.npz"),
        (("evaluate", runs[recipe], picture), "is no .npz with"),
    ):
        code, out, err = call(*words, *(() if words[0] == "train" else ("--device", "cpu")))
        assert code == 2 and line in err and len(err.splitlines()) == 1, err


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a head: set head=pixels"):
        change(RECIPES["scenes-masks"].make(), ["head=classes"])
    with pytest.raises(InputError, match="data.valid and data.test need data.train"):
        run_of("scenes-masks", f"data.valid={tmp_path / 'a.npz'}")
    with pytest.raises(InputError, match="as high as wide"):
        train_quietly(run_of("scenes-masks", "model.across=64"), tmp_path / "wide")
    with pytest.raises(InputError, match="data.channels must be 1"):
        run_of("scenes-masks", "data.channels=2")


@RECIPE
def test_a_run_can_be_estimated_and_started_from(
    recipe: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = told("train", runs[recipe] / "run.json", "--dry-run", "--device", "cpu", capsys=capsys)
    assert "parameters" in plan
    one = ("engine.steps=1", "schedule.peak=0", "validation.every=1", "validation.score_every=1", "data.scenes.held=24")
    train_quietly(run_of(recipe, *one, f"init={runs[recipe]}"), tmp_path / "more")
    first, second = (load(place, "cpu").model.state_dict() for place in (runs[recipe], tmp_path / "more"))
    assert all(torch.equal(first[name], second[name]) for name in first)
