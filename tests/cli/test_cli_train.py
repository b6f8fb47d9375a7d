"""Training from the shell: what a run writes, that it can be done again bit for bit, and carried on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from calling import DEVICE, SMALL, Headway, World, listing, write
from safetensors.numpy import load_file

import headway as package

SHORT = ["--set", "engine.steps=4", "engine.snapshot=2", "engine.log=1"]


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    rows = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, rows) if row["event"] == kind]


def test_a_run_holds_what_the_design_says(world: World) -> None:
    assert {path.name for path in world.run.iterdir()} == {
        "run.json",
        "log.jsonl",
        "checkpoints",
        "snapshots",
        "data",
        ".lock",
        "model",
        "tensorboard",
    }
    names = {"headway.json", "model.safetensors", "tokenizer.json", "README.md", "checksums.json"}
    assert {path.name for path in world.model.iterdir()} == names


def test_the_loss_falls_and_is_logged_as_json(world: World) -> None:
    losses = [row["loss"] for row in events(world.run, "train")]
    assert [row["step"] for row in events(world.run, "train")] == list(range(10, 151, 10))
    assert losses[-1] < 0.7 * losses[0]
    assert all(row["bleu"] >= 0 and row["perplexity"] > 1 for row in events(world.run, "validation"))
    assert events(world.run, "end")[0]["steps"] == 150


def test_tensorboard_gets_an_event_file_with_the_losses(world: World) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = accumulator.EventAccumulator(str(world.run / "tensorboard"))
    board.Reload()
    assert [scalar.step for scalar in board.Scalars("train/loss")] == list(range(10, 151, 10))


def test_results_go_to_standard_output_and_the_rest_to_stderr(headway: Headway, world: World, tmp_path: Path) -> None:
    answer = headway(*world.train(tmp_path / "run", *SHORT, "--test", *world.files("test")))
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "validation BLEU", "weights", "test BLEU", "steps", "epochs", "training seconds", "model",
    ]  # fmt: skip
    assert str(tmp_path / "run" / "model") in lines[-1]
    assert "learning the vocabulary" in answer.err and "parameters on" in answer.err


def test_a_dry_run_prints_the_run_as_json_first_and_writes_nothing(
    headway: Headway, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = headway("train", "translate", *world.data, *SMALL, *DEVICE, "--dry-run")
    assert answer.code == 0 and answer.err == ""
    run, end = json.JSONDecoder().raw_decode(answer.out)
    assert run["model"]["width"] == 32 and run["data"]["train"] == [str(path) for path in world.files("train")]
    assert "parameters: " in answer.out[end:] and "s a step" in answer.out[end:]
    assert "data: available" in answer.out[end:]
    assert list(tmp_path.iterdir()) == []
    again = headway("train", write(tmp_path, "run.json", [json.dumps(run)]), "--dry-run")
    assert json.JSONDecoder().raw_decode(again.out)[0] == run


def test_a_dry_run_looks_for_the_data(headway: Headway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    own = headway("train", "markov", "--data", tmp_path / "no.txt", "--dry-run")
    assert own.code == 2 and own.out == "" and "no.txt" in own.err
    known = headway("train", "names-markov", "--dry-run")
    assert known.code == 0 and "data: no file names/names.txt" in known.out and "--download" in known.out
    assert "data: none yet" in headway("train", "markov", "--dry-run").out


def test_the_run_file_of_a_run_gives_the_same_weights_bit_for_bit(
    headway: Headway, world: World, tmp_path: Path
) -> None:
    assert headway(*world.train(tmp_path / "one", *SHORT, "--set", "model.dropout=0.1")).code == 0
    before = listing(tmp_path / "one")
    assert headway("train", tmp_path / "one" / "run.json", "--out", tmp_path / "two").code == 0
    assert listing(tmp_path / "one") == before
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "one/model" / name).read_bytes() == (tmp_path / "two/model" / name).read_bytes()
    assert (tmp_path / "one/run.json").read_bytes() == (tmp_path / "two/run.json").read_bytes()
    other = ["--set", "engine.seed=2"]
    assert headway("train", tmp_path / "one" / "run.json", "--out", tmp_path / "three", *other).code == 0
    assert (tmp_path / "three/model/model.safetensors").read_bytes() != before["model/model.safetensors"]


def test_init_goes_on_from_the_weights_and_the_vocabulary(headway: Headway, world: World, tmp_path: Path) -> None:
    """The first loss is near the last one of the earlier run, and at a rate of 0 nothing changes."""
    more = ["--init", world.run, *DEVICE, *SHORT]
    call = ["train", "translate", "--data", *world.files("train"), "--valid", *world.files("valid"), *more]
    settings = ["engine.batch=1024", "schedule.peak=0.0", "model.dropout=0.1", "data.text.size=9999"]
    answer = headway(*call, "--set", *settings, "--out", tmp_path / "same")
    assert answer.code == 0, answer
    ours, theirs = (load_file(model / "model.safetensors") for model in (tmp_path / "same/model", world.model))
    assert all((ours[name] == theirs[name]).all() for name in theirs) and ours.keys() == theirs.keys()
    assert (tmp_path / "same/model/tokenizer.json").read_bytes() == (world.model / "tokenizer.json").read_bytes()
    card = json.loads((tmp_path / "same/model/headway.json").read_text(encoding="utf-8"))
    earlier = json.loads((world.model / "headway.json").read_text(encoding="utf-8"))
    assert card["processors"] == earlier["processors"] and card["config"]["dropout"] == 0.1
    assert [config["language"] for config in card["processors"].values()] == ["en", "fr"]
    assert events(tmp_path / "same", "train")[0]["loss"] < 0.7 * events(world.run, "train")[0]["loss"]


def test_a_run_that_patience_ends_before_its_first_snapshot_keeps_its_best(
    headway: Headway, world: World, tmp_path: Path
) -> None:
    never_better = ["schedule.peak=0.0", "validation.every=1", "validation.score_every=1", "validation.patience=1"]
    answer = headway(*world.train(tmp_path / "run", "--set", "engine.snapshot=500", *never_better))
    assert answer.code == 0, answer
    assert "stopped at step 2" in answer.err and "weights: step 1\n" in answer.out


def test_held_out_pairs_are_never_trained_on(headway: Headway, world: World, tmp_path: Path) -> None:
    call = ["train", "translate", "--data", *world.files("train"), *SMALL, *SHORT, *DEVICE]
    assert headway(*call, "--out", tmp_path / "run").code == 0
    parts = [
        set((tmp_path / "run/data" / f"{part}.source").read_text(encoding="utf-8").splitlines())
        for part in ("train", "valid", "test")
    ]
    assert all(parts) and sum(map(len, parts)) == len(set.union(*parts)) == 300


def test_separate_vocabularies_and_words(headway: Headway, world: World, tmp_path: Path) -> None:
    settings = ["--set", "data.text.kind=word", "data.text.joint=false", "model.embeddings=tied"]
    assert headway(*world.train(tmp_path / "run", *SHORT, *settings)).code == 0
    names = {path.name for path in (tmp_path / "run/model").iterdir()}
    assert {"source.tokenizer.json", "target.tokenizer.json"} <= names and "tokenizer.json" not in names
    assert isinstance(package.load(tmp_path / "run", device="cpu").translate(["the car"])[0], str)


def test_a_model_folder_can_be_moved_and_used_alone(headway: Headway, world: World, tmp_path: Path) -> None:
    moved = shutil.copytree(world.model, tmp_path / "elsewhere")
    here, there = (headway("translate", model, world.root / "test.en", *DEVICE) for model in (world.run, moved))
    assert here == there
