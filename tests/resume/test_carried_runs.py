"""Runs that carry a state from step to step go on, to the last bit, as if nothing had happened."""

from __future__ import annotations

import random
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from killing import Place, result
from running import Heard

from headway.errors import InputError
from headway.plain import change
from headway.recipes import RECIPES
from headway.recipes.grammar import sample
from headway.train.checkpoint import Checkpoint
from headway.train.job import train as train_run
from headway.train.loop import Training
from headway.train.parallel.ranks import Ranks
from small_runs import before_each_step

LSTM = (
    "engine.steps=60", "engine.batch=64", "engine.snapshot=10", "engine.log=7", "engine.checkpoint=6",
    "engine.average=3", "model.width=16", "model.layers=2", "model.max_length=8", "model.first=learned",
    "model.dropout.share=0.2", "data.text.kind=word", "data.text.min_count=1", "schedule.peak=0.02",
    "schedule.warmup=10", "validation.every=9", "validation.score_every=9",
)  # fmt: skip
AWD = (
    *LSTM, "model.dropout=locked", "model.embedding=8", "data.jitter=0.25", "optimiser=averaged-sgd",
    "optimiser.wait=1", "optimiser.decay=1e-5", "schedule=staircase", "schedule.peak=20", "schedule.factor=1.0",
    "objective.activation=2", "objective.change=0.6", "engine.clip=0.25", "engine.accumulate=2",
)  # fmt: skip
SETTINGS = {"lstm": LSTM, "awd": tuple(s for s in AWD if not s.startswith(("model.dropout.", "schedule.warmup")))}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("carried") / "text.txt"
    path.write_text("".join(row.source + "\n" for row in sample(300, seed=7)), encoding="utf-8")
    return path


def train(text: Path, out: Path, settings: tuple[str, ...], *, resume: bool = False) -> list[str]:
    run = change(RECIPES["lstm"].make(), [f"data.train={text}", "engine.device=cpu", *settings])
    out.mkdir(exist_ok=True)
    log = Heard(out)
    try:
        train_run(run, out, log, resume=resume)
    finally:
        log.close()
    return log.lines


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_run_that_fails_twice_ends_as_one_that_never_did(
    text: Path, tmp_path: Path, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an epoch each time: the state cannot be had from the weights and the batch alone."""
    said = train(text, tmp_path / "undisturbed", settings)
    assert any("mean of the weights" in line for line in said) == ("optimiser=averaged-sgd" in settings)

    failures = {15, 40}

    def fail(training: Training, step: int) -> None:
        if step in failures:
            failures.remove(step)
            raise RuntimeError("the power is gone")

    before_each_step(monkeypatch, fail)
    for resume in (False, True):
        with pytest.raises(RuntimeError, match="power"):
            train(text, tmp_path / "failed", settings, resume=resume)
    assert any("resuming from step" in line for line in train(text, tmp_path / "failed", settings, resume=True))
    undisturbed, found = result(tmp_path / "undisturbed"), result(tmp_path / "failed")
    assert undisturbed["log"] == found["log"]
    assert undisturbed == found


def test_without_the_carried_state_a_resumed_run_would_differ(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: a state that is forgotten shows."""
    train(text, tmp_path / "undisturbed", LSTM)
    own = Checkpoint.own
    monkeypatch.setattr(
        Checkpoint, "own", lambda self, kind, rank=0: {} if kind == "carried" else own(self, kind, rank)
    )

    failures = {33}

    def fail(training: Training, step: int) -> None:
        if step in failures:
            failures.remove(step)
            raise RuntimeError("the power is gone")

    before_each_step(monkeypatch, fail)
    with pytest.raises(RuntimeError, match="power"):
        train(text, tmp_path / "resumed", LSTM)
    train(text, tmp_path / "resumed", LSTM, resume=True)
    assert result(tmp_path / "resumed")["weights"] != result(tmp_path / "undisturbed")["weights"]


@pytest.mark.long  # the harness of tests/fuzz kills one too
def test_a_killed_lstm_ends_as_one_that_never_was(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path / "undisturbed", LSTM)
    place = Place(tmp_path)
    command = [
        sys.executable, "-m", "headway", "train", "lstm", "--data", str(text), "--device", "cpu", "--threads", "1",
        "--out", "killed", "--set", *LSTM,
    ]  # fmt: skip
    place.kill_during(command, "killed", "validation", random.Random(1))
    assert (tmp_path / "killed" / "run.json").exists() and not (tmp_path / "killed" / "model").exists()
    assert any("resuming from step" in line for line in train(text, tmp_path / "killed", LSTM, resume=True))
    assert result(tmp_path / "killed") == result(tmp_path / "undisturbed")


class TwoProcesses(Ranks):
    """As it looks to the first of two; the other is not there."""

    def barrier(self) -> None:
        pass

    def broadcast(self, value: object) -> object:
        return value


def test_several_processes_are_refused_in_one_line(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.train.job.joined", lambda device: nullcontext(TwoProcesses(count=2)))
    with pytest.raises(InputError, match="2 processes cannot share them"):
        train(text, tmp_path / "run", LSTM)


def test_a_transformer_carries_no_state_of_fixed_size(text: Path, tmp_path: Path) -> None:
    run = change(RECIPES["gpt"].make(), [f"data.train={text}", "data.order=stream", "objective=carried"])
    with pytest.raises(InputError, match="that pass a state from batch to batch"):
        train_run(run, tmp_path, Heard(tmp_path))
