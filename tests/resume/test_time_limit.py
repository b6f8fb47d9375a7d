"""A run with a time limit keeps to it, the last scoring included; on a clock of its own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from running import World

from headway.batch import sampled
from headway.tasks.translation import Translation
from headway.train import job as job_module
from headway.train.loop import Training

STEP, SENTENCE, PREPARING = 4.0, 1.0, 10.0
LONG = (
    "engine.steps=1000",
    "engine.log=50",
    "validation.every=5",
    "validation.score_every=5",
    "validation.sentences=0",
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock on which steps, translated sentences and the preparation of the data take a fixed time."""
    now = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr("headway.train.gauge.measured_peak", lambda *_: 1e9)  # it waits for the clock
    step, start = job_module.TrainStep.__call__, Translation.__init__

    def stepping(self: Any, *rest: Any) -> Any:
        now[0] += STEP
        return step(self, *rest)

    def translating(self: Any, sources: list[str], references: list[str]) -> float:
        now[0] += SENTENCE * len(list(sampled(sources, self.share)))
        return now[0]  # the later, the better

    def preparing(self: Any, *rest: Any) -> None:
        now[0] += PREPARING
        start(self, *rest)

    monkeypatch.setattr(job_module.TrainStep, "__call__", stepping)
    monkeypatch.setattr(Translation, "_bleu", translating)
    monkeypatch.setattr(Translation, "__init__", preparing)
    return now


def scores(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "model/headway.json").read_text())["score"]
    return found


@pytest.mark.parametrize("limit", [150])
def test_preparing_steps_validations_and_the_last_scoring_fit_into_the_time(
    world: World, tmp_path: Path, clock: list[float], limit: int
) -> None:
    began = clock[0]
    out = world.train(tmp_path / "run", f"engine.seconds={limit}", *LONG)
    assert 0.8 * limit <= clock[0] - began <= limit
    assert scores(out)["steps"] * STEP > 0.3 * limit
    assert "share scored" not in scores(out)
    assert world.heard("preparing took 10 s")


def test_where_scoring_all_would_take_too_long_a_sample_is_scored_and_the_score_says_so(
    world: World, tmp_path: Path, clock: list[float]
) -> None:
    began = clock[0]
    out = world.train(tmp_path / "run", "engine.seconds=60", *LONG)
    assert clock[0] - began <= 60
    assert 0 < scores(out)["share scored"] < 1
    assert world.heard("of the validation and test data")


@pytest.mark.long
def test_a_resumed_run_has_the_time_that_was_left(
    world: World, tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    began, advance = clock[0], Training.advance

    def stopped(training: Training, batch: Any) -> None:
        advance(training, batch)
        training.stop.asked_by = 2 if training.progress.step == 10 else None

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", stopped)
        with pytest.raises(KeyboardInterrupt):
            world.train(tmp_path / "run", "engine.seconds=400", *LONG)
    spent, clock[0] = clock[0] - began, clock[0] + 10_000
    began = clock[0]
    world.train(tmp_path / "run", "engine.seconds=400", *LONG, resume=True)
    assert 0.8 * 400 <= spent + clock[0] - began - PREPARING <= 400  # the data is opened a second time
