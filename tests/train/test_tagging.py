"""A tagger that is trained, resumed to the bit, asked and evaluated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from encoder_folders import write_encoder
from headway.cli.app import app
from headway.errors import InputError
from headway.evaluate.entities import EntityScores
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.tasks.tagging import Tagging
from headway.train.job import train as train_run
from headway.train.log import Log
from small_world import surroundings

SMALL = (
    "engine.device=cpu", "engine.steps=150", "engine.batch=512", "engine.snapshot=1000", "engine.log=20",
    "engine.checkpoint=1000", "model.layers=1", "model.width=32", "model.inner=48", "model.heads=2",
    "model.max_length=48", "model.dropout=0.0", "model.attention_dropout=0.0", "data.text.size=300",
    "schedule.peak=0.01", "schedule.warmup=5", "validation.every=30", "validation.score_every=30",
)  # fmt: skip


@pytest.fixture(autouse=True)
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with surroundings(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """First names and last names are a person, in the columns of CoNLL; some words have several tokens."""
    folder, random = tmp_path_factory.mktemp("tagged"), np.random.default_rng(1)
    chunks = [
        [("Ann", "B-PER")], [("Ann", "B-PER"), ("O'Hara-Lee", "I-PER")], [("Elm", "B-LOC"), ("Street", "I-LOC")],
        [("saw", "O")], [("the", "O")], [("U.N.", "B-ORG")], [("in", "O"), (".", "O")],
    ]  # fmt: skip
    paths = {}
    for part, count in (("train", 300), ("valid", 40), ("test", 40)):
        rows = []
        for _ in range(count):
            for at in random.integers(0, len(chunks), random.integers(2, 6)).tolist():
                rows += [f"{word} {label}" for word, label in [*chunks[at], ("and", "O")]]
            rows.append("")
        paths[part] = folder / f"{part}.conll"
        paths[part].write_text("\n".join(rows))
    return paths


def train(files: dict[str, Path], out: Path, *settings: str, resume: bool = False) -> dict[str, Any]:
    parts = [f"data.{part}={path}" for part, path in files.items()]
    run = change(RECIPES["tag"].make(), [*parts, *SMALL, *settings])
    out.mkdir(exist_ok=True)
    log = Log(out, quiet=True)
    try:
        return train_run(run, out, log, resume=resume).scores
    finally:
        log.close()


@pytest.mark.parametrize("head", ["crf", "tags"])
def test_a_tagger_learns_answers_and_is_evaluated(files: dict[str, Path], tmp_path: Path, head: str) -> None:
    out = tmp_path / "run"
    scores = train(files, out, f"head={head}")
    assert scores["test f1"] > 0.95 and scores["validation f1"] > 0.95
    tagger = load(out, "cpu")
    report = Tagging.evaluate(tagger, [str(files["test"])], {})
    assert report.values["f1"] == pytest.approx(scores["test f1"], abs=1e-4)

    call = CliRunner().invoke(app, ["predict", str(out), "--text", "Ann O'Hara-Lee saw  Elm Street", "--device", "cpu"])
    assert call.stdout == "Ann/B-PER O'Hara-Lee/I-PER saw/O Elm/B-LOC Street/I-LOC\n", call.output
    [words] = tagger.tag(["Ann O'Hara-Lee saw  Elm Street"])
    assert [(word.start, word.end) for word in words] == [(0, 3), (4, 14), (15, 18), (20, 23), (24, 30)]
    assert all(0.5 < word.probability <= 1 + 1e-6 for word in words)
    call = CliRunner().invoke(app, ["evaluate", str(out), str(files["test"]), "--json", "--device", "cpu"])
    assert json.loads(call.stdout)["f1"] == report.values["f1"]


def test_the_validation_figure_is_that_of_evaluate_where_texts_are_cut(files: dict[str, Path], tmp_path: Path) -> None:
    """Entities behind the cut count as missed."""
    scores = train(files, tmp_path / "run", "model.max_length=16", "engine.steps=20")
    report = Tagging.evaluate(load(tmp_path / "run", "cpu"), [str(files["test"])], {})
    assert report.values["f1"] == pytest.approx(scores["test f1"], abs=1e-4) and report.values["recall"] < 0.95
    assert isinstance(EntityScores(1, 1, 1, 1, 1).to_dict()["true"], int)


def test_a_head_that_hugging_face_lacks_is_not_exported(files: dict[str, Path], tmp_path: Path) -> None:
    train(files, tmp_path / "run", "engine.steps=2", "model.types=2")
    call = CliRunner().invoke(app, ["export", str(tmp_path / "run"), str(tmp_path / "theirs"), "--format", "hf"])
    assert isinstance(call.exception, InputError) and "head has no counterpart there" in str(call.exception)


def test_a_run_in_two_parts_ends_as_one(files: dict[str, Path], tmp_path: Path) -> None:
    """With dropout: the random generator is resumed too."""
    steady = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0", "model.dropout=0.2")
    settings = (*steady, "engine.checkpoint=4", "validation.every=4", "validation.score_every=4")
    whole = train(files, tmp_path / "whole", "engine.steps=8", *settings)
    train(files, tmp_path / "parts", "engine.steps=4", *settings)
    parts = train(files, tmp_path / "parts", "engine.steps=8", *settings, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert "head.between_LL" in first and all(torch.equal(first[name], second[name]) for name in first)
    assert {k: v for k, v in whole.items() if "seconds" not in k} == {
        k: v for k, v in parts.items() if "seconds" not in k
    }


def test_an_imported_tagger_keeps_its_tokenizers_words_and_is_evaluated_on_given_ones(tmp_path: Path) -> None:
    write_encoder(tmp_path / "theirs", "ForTokenClassification")
    encoder = load(tmp_path / "theirs", "cpu")
    assert [word.text for word in encoder.tag(["the cats sat, a"])[0]] == ["the", "cats", "sat", ",", "a"]
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"words": ["the", "cats", "sat,"], "labels": ["O", "B-X", "O"]}) + "\n")
    assert Tagging.evaluate(encoder, [str(data)], {}).values["words"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.train=[]"], "no training data: pass --data FILE"),
        (["head=classes"], "needs a head: set head=tags or crf"),
        (["objective=labels"], "set objective=word-labels"),
        (["objective.smoothing=0.1"], "no label smoothing: set objective.smoothing=0"),
    ],
)
def test_bad_settings_are_one_line(files: dict[str, Path], tmp_path: Path, changes: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(files, tmp_path / "run", *changes)


def test_labels_that_are_no_chunks_are_judged_by_accuracy(tmp_path: Path) -> None:
    (tmp_path / "pos.txt").write_text("\n".join(f"the DT\ncat{number % 7} NN\n" for number in range(60)))
    data = {"train": tmp_path / "pos.txt"}
    with pytest.raises(InputError, match=r"\(DT, NN …\), so there are no entities: set objective.judge=accuracy"):
        train(data, tmp_path / "run")
    assert train(data, tmp_path / "run", "objective.judge=accuracy")["validation accuracy"] > 0.95
