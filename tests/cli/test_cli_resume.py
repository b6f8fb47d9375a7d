"""Going on with a run from the shell: by the same command, by --resume, with changes; and what is refused."""

from __future__ import annotations

import errno
import fcntl
import json
import random
import shlex
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from calling import Headway, World, listing
from safetensors.numpy import load_file

from headway.cli import place
from headway.cli.app import main
from headway.train.loop import Training
from small_world import surroundings

Refuses = Callable[..., str]
SHORT = ["--set", "engine.steps=12", "engine.snapshot=3", "engine.log=2", "engine.checkpoint=4", "search.beam=1",
         "validation.sentences=3", "model.dropout=0.1"]  # fmt: skip
TIMES = ("seconds", "tokens_per_second", "training seconds", "of_peak", "memory")


class Killed(BaseException):
    """As if the process had been killed: nothing is tidied up that a kill would leave."""


def result(run: Path) -> dict[str, Any]:
    rows = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    weights = {name: array.tobytes() for name, array in load_file(run / "model/model.safetensors").items()}
    return {"log": [{k: v for k, v in row.items() if k not in TIMES} for row in rows], "weights": weights}


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    rows = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, rows) if row["event"] == kind]


@pytest.fixture(scope="module")
def done(world: World, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("done") / "run"
    with surroundings(cache), pytest.raises(SystemExit) as left:
        main([str(a) for a in world.train(out, *SHORT, "--set", "engine.tensorboard=true")])
    assert left.value.code == 0
    return out


@pytest.fixture(scope="module")
def half(world: World, done: Path, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """The same run, killed at step 10, with checkpoints of steps 4 and 8."""
    out = tmp_path_factory.mktemp("half") / "run"
    advance = Training.advance

    def killed(training: Training, batch: Any) -> None:
        if training.progress.step == 9:
            training.checkpoints.writer.wait()
            raise Killed
        advance(training, batch)

    with surroundings(cache), pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Training, "advance", killed)
        main([str(a) for a in world.train(out, *SHORT, "--set", "engine.tensorboard=true")])
    return out


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on with."""
    return Path(shutil.copytree(half, tmp_path / "run"))


def same(world: World, run: Path, *more: object) -> list[object]:
    return world.train(run, *SHORT, "--set", "engine.tensorboard=true", *more)


def test_the_same_command_goes_on_and_comes_to_the_same(headway: Headway, world: World, run: Path, done: Path) -> None:
    answer = headway(*same(world, run))
    assert answer.code == 0 and "resuming from step 8" in answer.err
    assert "learning the vocabulary" not in answer.err
    assert result(run) == result(done)
    again = headway(*same(world, run))
    assert again.code == 0 and "finished before" in again.out and again.err == ""


def test_resume_needs_the_folder_only(headway: Headway, run: Path, done: Path) -> None:
    answer = headway("train", run, "--resume")
    assert answer.code == 0 and "resuming from step 8" in answer.err
    assert result(run) == result(done)
    before = listing(run)
    for name in (run, run / "run.json"):
        assert "finished before" in headway("train", name, "--resume").out
    assert listing(run) == before


def test_more_steps_and_another_rate_are_taken_and_written_down(headway: Headway, run: Path) -> None:
    answer = headway("train", run, "--resume", "--set", "engine.steps=16", "schedule.peak=0.005", "engine.log=4")
    assert answer.code == 0 and "resuming from step 8" in answer.err
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert (facts["engine"]["steps"], facts["schedule"]["peak"], facts["engine"]["log"]) == (16, 0.005, 4)
    rows = events(run, "train")
    assert [row["step"] for row in rows] == [2, 4, 6, 8, 12, 16]
    assert rows[4]["rate"] == pytest.approx(0.005 * (10 / 12) ** 0.5)


def test_a_finished_run_can_be_given_more_steps_and_is_unfinished_until_it_has_them(
    headway: Headway, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(done, tmp_path / "run"))
    model = listing(run / "model")
    longer = ["train", run, "--resume", "--set", "engine.steps=20"]
    advance = Training.advance

    def interrupted(training: Training, batch: Any) -> None:
        if training.progress.step == 17:
            training.checkpoints.writer.wait()
            raise KeyboardInterrupt
        advance(training, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", interrupted)
        answer = headway(*longer)
    kept, last = answer.err.splitlines()[-2:]
    assert answer.code == 130 and "resuming from step 12" in answer.err and last == "headway: interrupted"
    assert kept == f"headway: not finished; headway train {run} --resume resumes from step 16"
    assert listing(run / "model") == model  # of the first 12 steps
    [row] = json.loads(headway("runs", run, "--json").out)
    assert (row["state"], row["step"], row["steps"]) == ("stopped", 16, 20)
    assert row["next"] == f"headway train {shlex.quote(str(run))} --resume"
    answer = headway(*shlex.split(row["next"])[1:])
    assert answer.code == 0 and "resuming from step 16" in answer.err and "steps: 20" in answer.out
    [row] = json.loads(headway("runs", run, "--json").out)
    assert (row["state"], row["step"], row["steps"]) == ("finished", 20, 20)
    assert [event["step"] for event in events(run, "end")] == [20]


def test_more_patience_wakes_a_run_that_patience_had_ended(headway: Headway, world: World, tmp_path: Path) -> None:
    never_better = ["schedule.peak=0.0", "validation.every=1", "validation.score_every=1", "validation.patience=2"]
    assert "steps: 3\n" in headway(*world.train(tmp_path / "run", *SHORT, "--set", *never_better)).out
    answer = headway("train", tmp_path / "run", "--resume", "--set", "validation.patience=4")
    assert answer.code == 0 and "steps: 5\n" in answer.out


def test_changes_that_a_run_cannot_go_on_with_are_listed_and_nothing_is_touched(refuses: Refuses, run: Path) -> None:
    before = listing(run)
    line = refuses("train", run, "--resume", "--set", "data.text.size=500", "model.width=64", "engine.steps=99")
    assert "data.text.size: 400 → 500" in line and "model.width: 32 → 64" in line and "engine.steps" not in line
    assert "engine.seed: 1 → 2" in refuses("train", run, "--resume", "--set", "engine.seed=2")
    assert "--size" in refuses("train", run, "--resume", "--size", "base")
    assert "--overwrite" in refuses("train", run, "--resume", "--overwrite")
    assert listing(run) == before


def test_another_run_in_the_folder_is_refused_with_what_differs(refuses: Refuses, world: World, run: Path) -> None:
    before = listing(run)
    line = refuses(*same(world, run, "--set", "model.width=64", "engine.steps=13"))
    assert "holds another run" in line and "model.width: 32 → 64" in line and "engine.steps: 12 → 13" in line
    assert all(way in line for way in ("--out", "--resume", "--overwrite"))
    assert listing(run) == before


def test_text_that_was_changed_is_refused_and_may_be_put_back(
    headway: Headway, refuses: Refuses, world: World, run: Path, done: Path
) -> None:
    path = world.files("train")[0]
    text = path.read_text(encoding="utf-8")
    before = listing(run)
    try:
        path.write_text(text.replace("the", "teh", 1), encoding="utf-8")
        line = refuses("train", run, "--resume", "--set", "engine.steps=14", after_work=True)
        assert "have changed since step 8" in line
    finally:
        path.write_text(text, encoding="utf-8")
    assert listing(run) == before
    assert headway(*same(world, run)).code == 0
    assert result(run) == result(done)


def test_a_folder_without_a_run_is_refused(refuses: Refuses, tmp_path: Path) -> None:
    assert "holds no run to resume" in refuses("train", tmp_path, "--resume")
    assert "holds no run to resume" in refuses("train", "translate", "--resume", "--out", tmp_path / "no")
    assert list(tmp_path.iterdir()) == []


def test_two_processes_cannot_train_in_one_folder(refuses: Refuses, world: World, run: Path) -> None:
    before = listing(run)
    with (run / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for call in (["train", run, "--resume"], same(world, run), same(world, run, "--overwrite")):
            assert "being trained by another process" in refuses(*call)
            assert listing(run) == before
            assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_folder_that_another_process_has_just_begun_is_not_taken_away(
    refuses: Refuses, world: World, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    with (tmp_path / "new/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "being trained by another process" in refuses(*world.train(tmp_path / "new", *SHORT))
        assert (tmp_path / "new/.lock").exists()


def test_a_process_that_reads_a_run_does_not_keep_it_from_resuming(
    headway: Headway, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`headway runs` holds a shared lock for an instant."""
    monkeypatch.setattr(place, "LOOK", 300.0)
    with (run / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        threading.Thread(target=lambda: (time.sleep(0.3), fcntl.flock(lock, fcntl.LOCK_UN))).start()
        assert headway("train", run, "--resume", "--set", "engine.steps=9").code == 0


def test_tensorboard_shows_each_point_once_after_going_on(headway: Headway, world: World, run: Path) -> None:
    """The steps after the checkpoint were drawn before the kill, and are drawn again."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    time.sleep(1.1)  # its files are read in the order of the second they were made in
    assert headway(*same(world, run)).code == 0
    assert len(list((run / "tensorboard").iterdir())) == 2
    board = accumulator.EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    assert [point.step for point in board.Scalars("train/loss")] == [2, 4, 6, 8, 10, 12]


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(
    headway: Headway, world: World, run: Path, done: Path
) -> None:
    shutil.rmtree(run / "checkpoints")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    answer = headway(*same(world, run))
    assert answer.code == 0 and "starting again" in answer.err
    assert result(run) == result(done)
    board = accumulator.EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    assert [point.step for point in board.Scalars("train/loss")] == [2, 4, 6, 8, 10, 12]


def test_the_line_that_runs_prints_works_for_a_run_without_a_checkpoint(headway: Headway, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    [row] = json.loads(headway("runs", run, "--json").out)
    assert (row["state"], row["checkpoint"]) == ("stopped", None)
    assert headway(*shlex.split(row["next"])[1:]).code == 0
    [row] = json.loads(headway("runs", run, "--json").out)
    assert row["state"] == "finished"


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    headway: Headway, run: Path, done: Path, seed: int
) -> None:
    dice = random.Random(seed)
    path = dice.choice(sorted((run / "checkpoints/step-8").iterdir()))
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 0x10
    path.write_bytes(bytes(data) if seed else bytes(data[: len(data) // 2]))
    answer = headway("train", run, "--resume")
    assert answer.code == 0
    assert "the checkpoint of step 8 is broken (" in answer.err and "resuming from step 4" in answer.err
    assert (run / "checkpoints/broken-step-8").is_dir()
    assert result(run) == result(done)


def test_no_room_at_the_end_is_one_line_that_says_how_to_go_on(
    headway: Headway, refuses: Refuses, world: World, tmp_path: Path, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = tmp_path / "run"
    advance = Training.advance

    def filled(training: Training, batch: Any) -> None:
        if training.progress.step == 5:
            training.checkpoints.writer.wait()
            monkeypatch.setattr("os.fsync", no_room)
        advance(training, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", filled)
        answer = headway(*same(world, run))
    assert answer.code == 2 and answer.out == ""
    assert "no checkpoint at step 8: no room left on the disk; training continues" in answer.err
    line = answer.err.splitlines()[-1]
    assert line.startswith("headway: no room left on the disk") and "make room" in line
    assert line.endswith(f"headway train {run} --resume resumes from step 4") and answer.err.count("headway: ") == 1
    assert "make room" in refuses(*same(world, run), after_work=True)  # there still is none
    monkeypatch.undo()
    answer = headway(*same(world, run))
    assert answer.code == 0 and "resuming from step 4" in answer.err
    assert result(run) == result(done)


@pytest.mark.parametrize("left", [0, 40, None])
def test_a_log_that_has_lost_lines_is_told(
    headway: Headway, world: World, run: Path, done: Path, left: int | None
) -> None:
    """Cut or deleted: the run comes to the same weights, and says what is missing."""
    log = run / "log.jsonl"
    log.unlink() if left is None else log.write_bytes(log.read_bytes()[:left])
    answer = headway(*same(world, run))
    assert answer.code == 0 and f"{log} has lost" in answer.err
    assert result(run)["weights"] == result(done)["weights"]


def test_weights_that_are_not_finite_at_the_end_are_no_model(headway: Headway, world: World, tmp_path: Path) -> None:
    """Too short a run for the loss to be called diverged on its way."""
    out = tmp_path / "run"
    answer = headway(
        *world.train(out, *SHORT, "schedule.peak=1e30", "schedule.warmup=0", "engine.astray=0", "engine.skips=0")
    )
    assert answer.code in (1, 2) and "finite" in answer.err and not (out / "model").exists()
