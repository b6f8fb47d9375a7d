"""The first Ctrl-C or signal of a scheduler finishes the step, saves and leaves; the second leaves at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killing import result
from running import World

from headway.train.sealed import verify
from small_runs import before_each_step

# Sends itself a signal when step 14 is about to be taken; a checkpoint of that step may take its time.
PROCESS = """
import os, signal, sys, time
from pathlib import Path
from headway.cli.app import main
from headway.train import checkpoint, sealed
from headway.train.loop import Training

number, slow, *sys.argv[1:] = sys.argv[1:]
advance, write_parts = Training.advance, sealed.write_parts

def wrapped(training, batch):
    if training.progress.step + 1 == 14:
        training.checkpoints.writer.wait()
        os.kill(os.getpid(), int(number))
    advance(training, batch)

def slowly(folder, *what):
    if slow == "slow" and folder.name == ".step-14.writing":
        Path("saving").touch()
        time.sleep(3600)  # longer than any test waits
    return write_parts(folder, *what)

Training.advance = wrapped
checkpoint.write_parts = slowly
main()
"""


def start(world: World, cwd: Path, number: int, how: str = "quick", before: object = None) -> subprocess.Popen[bytes]:
    settings = [part for part in world.settings if not part.startswith("data.")]
    files = [[str(world.root / f"{part}.{side}") for side in ("en", "fr")] for part in ("train", "valid")]
    command = [
        sys.executable, "-c", PROCESS, str(int(number)), how, "train", "translate", "--data", *files[0], "--valid",
        *files[1], "--source", "en", "--target", "fr", "--threads", "1", "--out", "run", "--set", *settings,
        "data.text.size=300", "data.text.min_count=1",
    ]  # fmt: skip
    options: dict[str, object] = {"cwd": cwd, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, preexec_fn=before, **options)  # type: ignore[call-overload, no-any-return]


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGINT], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(
    world: World, undisturbed: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with start(world, tmp_path, number) as running:
        _, said = running.communicate(timeout=300)
    lines = said.decode().splitlines()
    assert running.returncode == 128 + number, lines
    assert "stopping after this step, with a checkpoint" in lines[-4]
    assert lines[-3] == "stopped after step 14 of 24, with a checkpoint"
    assert lines[-2] == "headway: not finished; headway train run --resume resumes from step 14"
    assert lines[-1] == ("headway: interrupted" if number == signal.SIGINT else "headway: ended by SIGTERM")
    assert "step-14" in checkpoints(tmp_path / "run")
    verify(tmp_path / "run/checkpoints/step-14")
    world.train(tmp_path / "run", resume=True)
    assert world.heard("resuming from step 14")
    assert result(tmp_path / "run") == result(undisturbed)


@pytest.mark.parametrize("step", [1, 12, 13, 24], ids="at step {}".format)
def test_a_signal_at_any_step_changes_nothing(
    world: World, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Also at the first, at the last, and at one that has a checkpoint anyway."""

    def at(_: object, now: int) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        before_each_step(patch, at)
        with pytest.raises(KeyboardInterrupt):
            world.train(tmp_path / "run")
    assert world.heard(f"stopped after step {step} of 24, with a checkpoint")
    assert f"step-{step}" in checkpoints(tmp_path / "run") and not (tmp_path / "run/model").exists()
    world.train(tmp_path / "run", resume=True)
    found, expected = result(tmp_path / "run"), result(undisturbed)
    assert all(found[key] == expected[key] for key in ("weights", "log", "score"))


@pytest.mark.long
def test_a_second_one_during_a_slow_save_leaves_at_once(world: World, undisturbed: Path, tmp_path: Path) -> None:
    with start(world, tmp_path, signal.SIGINT, "slow") as running:
        limit = time.monotonic() + 300
        while not (tmp_path / "saving").exists() and running.poll() is None and time.monotonic() < limit:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=300)
    lines = said.decode().splitlines()
    assert running.returncode == 130 and lines[-1] == "headway: interrupted", lines
    assert lines[-2] == "headway: not finished; headway train run --resume resumes from step 12"
    verify(tmp_path / "run/checkpoints/step-12")
    world.train(tmp_path / "run", resume=True)
    assert world.heard("resuming from step 12")
    assert result(tmp_path / "run") == result(undisturbed)


@pytest.mark.long
def test_a_closed_terminal_is_ignored_under_nohup(world: World, undisturbed: Path, tmp_path: Path) -> None:
    with start(world, tmp_path, signal.SIGHUP, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as running:
        _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said
    assert result(tmp_path / "run") == result(undisturbed)


def test_a_signal_before_the_first_step_ends_at_once(world: World, tmp_path: Path) -> None:
    """While the text is being prepared there is no step to finish and nothing to save."""
    code = PROCESS.replace("Training.advance = wrapped", "Training.fit = lambda *_: None").replace(
        "main()", "from headway.tasks.translation import Translation\n"
        "Translation._files = lambda *a, **k: (os.kill(os.getpid(), int(number)), time.sleep(3600))\nmain()"
    )  # fmt: skip
    call = [sys.executable, "-c", code, str(int(signal.SIGTERM)), "quick", "train", "translate", "--data"]
    command = [*call, str(world.root / "train.en"), str(world.root / "train.fr"), "--out", "run"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300)
    assert answer.returncode == 143, answer
    assert answer.stderr.decode().splitlines() == ["headway: ended by SIGTERM"]
    assert list(tmp_path.iterdir()) == []
