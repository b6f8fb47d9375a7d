"""Small runs in this process, which is much quicker than processes of their own, and runs that fail on their way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from headway.cli.app import main
from headway.plain import change
from headway.recipes import RECIPES
from headway.train.job import Outcome, train
from headway.train.log import Log
from headway.train.loop import Training
from headway.train.run import Run

# Of a translator, for files of `small_world.write_pairs`.
PAIR_SETTINGS = (
    "engine.device=cpu", "engine.batch=512", "engine.snapshot=4", "engine.log=5", "engine.average=3",
    "engine.checkpoint=6", "model.width=16", "model.max_length=64", "model.dropout=0.1", "data.text.size=300",
    "data.text.min_count=1", "schedule.peak=0.01", "schedule.warmup=10", "validation.every=8",
    "validation.score_every=12", "validation.sentences=3", "data.source=en", "data.target=fr",
)  # fmt: skip


def train_quietly(run: Run, out: Path, resume: bool = False) -> Outcome:
    out.mkdir(exist_ok=True)
    with closing(Log(out, quiet=True)) as log:
        return train(run, out, log, resume=resume)


def carried_out(recipe: str, out: Path, *settings: str, resume: bool = False) -> Outcome:
    """Train a recipe with these settings."""
    return train_quietly(change(RECIPES[recipe].make(), list(settings)), out, resume)


def of_pairs(recipe: str, text: Path, out: Path, *settings: str, resume: bool = False) -> Path:
    """Train a translator on the files in `text`."""
    files = [f"data.{part}={text / f'{part}.en'},{text / f'{part}.fr'}" for part in ("train", "valid")]
    carried_out(recipe, out, *PAIR_SETTINGS, *files, *settings, resume=resume)
    return out


def call(*arguments: object) -> tuple[int, str, str]:
    """The command in this process: its exit code, standard output and standard error."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert isinstance(left.value.code, int)
    return left.value.code, out.getvalue(), err.getvalue()


def answered(*arguments: object) -> str:
    """The standard output of a command that succeeds."""
    code, out, err = call(*arguments)
    assert code == 0, err
    return out


def before_each_step(patch: pytest.MonkeyPatch, do: Callable[[Training, int], None]) -> None:
    """`do` is called with the training and the number of the step that is about to be taken."""
    advance = Training.advance

    def wrapped(training: Training, batch: Any) -> None:
        do(training, training.progress.step + 1)
        advance(training, batch)

    patch.setattr(Training, "advance", wrapped)


def check_resumed(patch: pytest.MonkeyPatch, expected: Path, out: Path, step: int, run: Callable[..., Any]) -> None:
    """A run that fails before `step` and is resumed ends with the weights of `expected`, to the bit. `run` is called
    with the folder, and then with `resume=True`."""
    failures = {step}

    def fail(training: Training, at: int) -> None:
        if at in failures:
            failures.remove(at)
            raise RuntimeError("the power is gone")

    before_each_step(patch, fail)
    with pytest.raises(RuntimeError, match="power"):
        run(out)
    run(out, resume=True)
    weights, found = (load_file(folder / "model" / "model.safetensors") for folder in (expected, out))
    torch.testing.assert_close(found, weights, rtol=0, atol=0)


def told(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command writes that succeeds."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert left.value.code == 0, err
    return out
