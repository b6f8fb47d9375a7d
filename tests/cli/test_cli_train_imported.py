"""`train translate --init` from other people's translators: their tokenizer and ids are kept, their weights learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from calling import DEVICE, Headway, write

import headway as library
from foreign_world import write_translator
from headway.folder import read_model
from headway.recipes.grammar import sample

ROWS = sample(12, seed=5)
SOURCES, TARGETS = ([getattr(row, side) for row in ROWS] for side in ("source", "target"))
SHORT = [
    "--set", "engine.steps=200", "engine.batch=512", "engine.average=0", "engine.log=40", "schedule.peak=0.006",
    "schedule.warmup=10", "validation.every=200", "validation.score_every=200", "search.beam=2",
]  # fmt: skip


@pytest.fixture(params=["marian", "t5"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_translator(tmp_path / request.param, request.param, [*SOURCES, *TARGETS])
    return tmp_path / request.param


@pytest.fixture
def data(tmp_path: Path) -> list[object]:
    files = [write(tmp_path, "x.en", SOURCES), write(tmp_path, "x.fr", TARGETS)]
    return ["--data", *files, "--valid", *files]


def equal(found: list[str]) -> int:
    """How many are exactly right."""
    return sum(mine == wanted for mine, wanted in zip(found, TARGETS, strict=True))


def weights(model: Any) -> dict[str, torch.Tensor]:
    return dict(read_model(model).model.named_parameters())


def test_it_learns_its_new_pairs_and_stays_the_same_kind_of_model(
    headway: Headway, folder: Path, data: list[object], tmp_path: Path
) -> None:
    before = library.load(folder, "cpu")
    assert not equal(before.translate(SOURCES))
    answer = headway("train", "translate", *data, "--init", folder, *DEVICE, *SHORT, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    after = library.load(tmp_path / "run", "cpu")
    found = after.translate(SOURCES)
    assert equal(found) > 0.8 * len(TARGETS)  # so the end is learned too, whatever its id
    assert (after.card.symbols, after.card.foreign_text) == (before.card.symbols, True)
    kept = tmp_path / "run" / "model" / "tokenizer.json"
    assert kept.read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert headway("translate", tmp_path / "run", tmp_path / "x.en", *DEVICE).out.splitlines() == found


def test_what_a_run_would_be_is_told_with_the_folders_vocabulary(
    headway: Headway, folder: Path, data: list[object]
) -> None:
    size = library.load(folder, "cpu").card.sizes[1]
    count = sum(weight.numel() for weight in weights(folder).values())
    told = headway("train", "translate", *data, "--init", folder, *DEVICE, "--dry-run").out
    assert f"parameters: {count:,} (with a vocabulary of {size})" in told


def test_layers_are_frozen_and_rates_multiplied_by_their_names(
    headway: Headway, folder: Path, data: list[object], tmp_path: Path
) -> None:
    how = [*SHORT, "engine.steps=3", "engine.frozen=encoder.layers.0,embed_source", 'engine.rates={"decoder": 0.0001}']
    out = tmp_path / "run"
    answer = headway("train", "translate", *data, "--init", folder, *DEVICE, *how, "--out", out)
    assert answer.code == 0, answer.err
    old, new = weights(folder), weights(out)
    assert old.keys() == new.keys()
    moved = {name: (old[name] - new[name]).abs().max().item() for name in old}
    still = [name for name in moved if name.startswith(("encoder.layers.0.", "embed_source."))]
    assert still and all(moved[name] == 0 for name in still)
    assert all(moved[name] > 0 for name in moved if name.startswith("encoder.layers.1."))
    slow = max(moved[name] for name in moved if name.startswith("decoder.layers."))
    assert 0 < slow < 1e-3 * max(moved.values())


def test_a_run_that_was_stopped_goes_on_with_the_folders_tokenizer(
    headway: Headway, folder: Path, data: list[object], tmp_path: Path
) -> None:
    how = [*SHORT, "engine.steps=6", "engine.checkpoint=3"]
    for out, settings in (("whole", []), ("cut", ["engine.steps=3"])):
        started = headway(
            "train", "translate", *data, "--init", folder, *DEVICE, *how, *settings, "--out", tmp_path / out
        )
        assert started.code == 0, started.err
    again = headway("train", tmp_path / "cut", "--resume", "--set", "engine.steps=6")
    assert again.code == 0, again.err
    first, second = (weights(tmp_path / out) for out in ("whole", "cut"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    said = [json.loads(line) for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert any(line.get("step") == 6 for line in said)
