"""Folders that are no models, or not whole ones: one line that names the file, whatever is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from calling import DEVICE, Headway, World

Refuses = Callable[..., str]


@pytest.fixture
def model(world: World, tmp_path: Path) -> Path:
    """A copy that a test may break: without its checksums, so that what lies behind them is seen."""
    model = Path(shutil.copytree(world.model, tmp_path / "model"))
    (model / "checksums.json").unlink()
    return model


def test_a_file_that_was_changed_is_named(
    refuses: Refuses, headway: Headway, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command that takes the model; --no-verify takes weights as they are, and small files never."""
    model = Path(shutil.copytree(world.model, tmp_path / "model"))
    assert "as they were written" in headway("verify", model).out
    weights, source = model / "model.safetensors", world.root / "test.en"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    for command in (("translate", model, source, *DEVICE), ("verify", model)):
        assert "model.safetensors was changed after it was written" in refuses(*command)
    monkeypatch.setattr("headway.checksums.SMALL", len(data) - 1)  # now these weights are large
    assert headway("translate", model, source, *DEVICE, "--no-verify").code == 0
    (model / "tokenizer.json").write_text("{}")
    assert "tokenizer.json was changed" in refuses("translate", model, source, *DEVICE, "--no-verify")


def test_a_folder_that_is_no_model(refuses: Refuses, world: World, tmp_path: Path) -> None:
    line = refuses("translate", tmp_path, world.root / "test.en", *DEVICE)
    assert str(tmp_path) in line and "headway.json is missing" in line
    assert "there is no folder" in refuses("translate", tmp_path / "none", *DEVICE)
    assert "no model" in refuses("translate", world.root / "test.en", *DEVICE)


def test_a_run_without_a_model_is_told_from_a_folder_that_is_none(
    refuses: Refuses, world: World, tmp_path: Path
) -> None:
    shutil.copy(world.run / "run.json", tmp_path)
    for verb in ("translate", "evaluate"):
        assert "a run without a model" in refuses(verb, tmp_path, *world.files("test")[: 1 + (verb != "translate")])


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 0.999])
def test_weights_that_were_cut_short(refuses: Refuses, world: World, model: Path, share: float) -> None:
    path = model / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    line = refuses("translate", model, world.root / "test.en", *DEVICE)
    assert str(path) in line and "broken" in line


@pytest.mark.parametrize("at", [0, 3, 7, 8, 9, 40, 200])
def test_weights_with_a_changed_header(refuses: Refuses, world: World, model: Path, at: int) -> None:
    path = model / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0xFF
    path.write_bytes(raw)
    assert str(path) in refuses("translate", model, world.root / "test.en", *DEVICE)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "headway.json"])
def test_a_missing_file_is_named(refuses: Refuses, world: World, model: Path, name: str) -> None:
    (model / name).unlink()
    assert name in refuses("translate", model, world.root / "test.en", *DEVICE)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"version": "1.0"}'])
def test_a_broken_tokenizer_is_named(refuses: Refuses, world: World, model: Path, content: bytes) -> None:
    (model / "tokenizer.json").write_bytes(content)
    assert str(model / "tokenizer.json") in refuses("translate", model, world.root / "test.en", *DEVICE)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"{}"])
def test_a_broken_card_is_named(refuses: Refuses, world: World, model: Path, content: bytes) -> None:
    (model / "headway.json").write_bytes(content)
    assert str(model / "headway.json") in refuses("translate", model, world.root / "test.en", *DEVICE)


def put(facts: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        facts = facts[key]
    facts[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", 99, ("format 99", "upgrade")),
        ("format", "new", ("format new",)),
        ("family", "transfromer", ("transfromer", "did you mean 'transformer'")),
        ("family", None, ("family",)),
        ("config.widht", 3, ("config.widht", "did you mean 'width'")),
        ("config.width", "wide", ("config.width", "whole number")),
        ("config.width", 48, ("shape",)),
        ("config.heads", 3, ("multiple",)),
        ("config.heads", 0, ("headway.json",)),
        ("config.width", -32, ("headway.json",)),
        ("config.decoder_layers", 2, ("lacks the weight 'decoder.",)),
        ("config", None, ("config",)),
        ("processors.source.options.kind", "letters", ("processors.source.options.kind", "letters")),
        ("processors", None, ("processors",)),
        ("processors", {"text": {"name": "text", "size": 400}}, ("processors must be source, target, not text",)),
        ("processors.source.size", 5, ("entries",)),
        ("search", {"beam": 0}, ("beam",)),
        ("search", {"baem": 2}, ("search.baem", "did you mean 'beam'")),
    ],
)
def test_a_card_with_a_wrong_value(
    refuses: Refuses, world: World, model: Path, path: str, value: Any, words: tuple[str, ...]
) -> None:
    card = model / "headway.json"
    facts = json.loads(card.read_text(encoding="utf-8"))
    put(facts, path, value)
    card.write_text(json.dumps(facts), encoding="utf-8")
    line = refuses("translate", model, world.root / "test.en", *DEVICE)
    assert all(word in line for word in words), line


def test_init_from_a_broken_model_leaves_nothing_behind(
    refuses: Refuses, world: World, model: Path, tmp_path: Path
) -> None:
    (model / "model.safetensors").write_bytes(b"")
    line = refuses("train", "translate", *world.data, "--init", model, "--out", tmp_path / "x", *DEVICE)
    assert "model.safetensors" in line
    assert not (tmp_path / "x").exists()


def test_init_with_another_shape_is_refused(refuses: Refuses, world: World, tmp_path: Path) -> None:
    settings = ["--set", "model.width=64"]
    line = refuses(
        "train", "translate", *world.data, "--init", world.run, *settings, "--out", tmp_path / "x", *DEVICE,
        after_work=True,
    )  # fmt: skip
    assert "shape" in line
    assert list(tmp_path.iterdir()) == []
