"""headway scaling: the runs that it would train, a law of what they reach, and a large run beside its prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli import scaling as command
from headway.evaluate.scaling import Law, Trained
from headway.train.ladder import shape_of
from small_runs import answered, call

LAW = Law(e=1.2, a=60.0, b=900.0, alpha=0.35, beta=0.4)
SMALL = ("--batch-size", "128", "--set", "data.text.kind=char", "model.max_length=32")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat and the dog ran off\n" * 400)
    return file


def test_a_dry_run_shows_what_it_would_cost_and_trains_nothing(text: Path, tmp_path: Path) -> None:
    out = answered("scaling", "gpt", "--data", text, "--operations", 1e12, "--dry-run", "--out", tmp_path / "s", *SMALL)
    assert "12 runs" in out and not (tmp_path / "s").exists()
    costs = [float(line.split()[-2]) for line in out.splitlines()[1:13]]
    assert max(costs) <= 1e12 and max(costs) / min(costs) > 8


def follow(law: Law, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Runs reach what the law says; the weights of those that are trained."""
    weights = list[float]()

    def trained(recipe: str, rung: Any, out: Path, how: object) -> Trained:
        size = rung.shape.weights, rung.tokens
        weights.append(rung.shape.weights)
        return Trained(*size, law.loss(*size))

    monkeypatch.setattr(command, "_trained", trained)
    return weights


def test_a_large_run_that_is_not_to_be_trusted_is_not_trained(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = follow(Law(e=1.2, a=2e4, b=20.0, alpha=1.2, beta=0.1), monkeypatch)
    (tmp_path / "s").mkdir()
    words = ("scaling", "gpt", "--data", text, "--operations", 1e12, "--out", tmp_path / "s", *SMALL)
    code, _, err = call(*words, "--check")
    assert code == 2 and "not to be trusted" in err and len(weights) == 12
    code, out, err = call(*words)
    assert code == 0 and "not to be trusted" in err and "predicted loss" in out


def test_a_law_is_fitted_and_checked(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(LAW, monkeypatch)
    (tmp_path / "s").mkdir()
    words = ("scaling", "gpt", "--data", text, "--operations", 1e12, "--check", "--out", tmp_path / "s", *SMALL)
    found = json.loads(answered(*words, "--json"))
    assert abs(found["apart"]) < 0.02 and len(found["runs"]) == 12
    assert (tmp_path / "s" / "scaling.png").stat().st_size > 5000
    assert "the prediction is" in answered(*words)


def test_a_rung_is_trained_and_not_again(text: Path, tmp_path: Path) -> None:
    from headway.cli.train import resolve
    from headway.train.ladder import rung_of

    settings = ["data.text.kind=char", "model.max_length=32", "engine.batch=128"]
    run = resolve("gpt", {"train": (str(text),)}, None, None, settings)
    rung = rung_of(run, 5000, 2e8)
    how = {"data": [str(text)], "valid": [], "settings": settings, "device": "cpu"}
    first = command._trained("gpt", rung, tmp_path, how)
    assert 0 < first.loss < 5 and first.tokens == rung.steps * 128
    changed = (tmp_path / rung.name / "model" / "headway.json").stat().st_mtime_ns
    assert command._trained("gpt", rung, tmp_path, how) == first
    assert (tmp_path / rung.name / "model" / "headway.json").stat().st_mtime_ns == changed


def test_shapes_are_near_what_was_asked_and_their_heads_divide() -> None:
    for weights in (5e3, 1e5, 3e6, 1e8, 1e9):
        shape = shape_of(weights)
        assert 0.3 < shape.weights / weights < 3 and shape.width % shape.heads == 0


def test_too_few_operations_and_a_small_prediction_are_refused(text: Path) -> None:
    code, _, err = call("scaling", "gpt", "--data", text, "--operations", 1e8, "--dry-run")
    assert code == 2 and "operations are too few" in err
    code, _, err = call("scaling", "gpt", "--data", text, "--operations", 1e12, "--predict", 1e11, "--dry-run", *SMALL)
    assert code == 2 and "no larger than the small runs" in err
    code, _, err = call("scaling", "gpt", "--data", text.with_name("none.txt"), "--dry-run")
    assert code == 2 and "none.txt" in err
    code, _, err = call("scaling", "lstm", "--data", text, "--operations", 1e13, "--dry-run")
    assert code == 2 and "has no layers, width and heads" in err
