"""headway as a Python package: its names, its help, and training by a call."""

from __future__ import annotations

import inspect
import os
import pydoc
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import headway
from headway.recipes.grammar import sample
from headway.train.log import Log

SMALL = {
    "model.layers": 1, "model.width": 16, "model.heads": 2, "model.max_length": 32, "data.text.size": 300,
    "engine.batch": 64, "engine.average": 0, "engine.log": 1, "schedule.warmup": 2, "validation.every": 3,
    "validation.score_every": 3, "engine.checkpoint": 3,
}  # fmt: skip


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "my.txt"
    path.write_text("\n".join(pair.source for pair in sample(200, seed=1)), encoding="utf-8")
    return path


def trained(text: Path, out: str = "run", **how: Any) -> Any:
    usual = {"data": text, "out": out, "device": "cpu", "steps": 6, "settings": SMALL}
    return headway.train("gpt", **(usual | how))


def test_dir_lists_what_is_for_users_whatever_is_loaded() -> None:
    import headway.train.job

    public = [name for name in dir(headway) if not name.startswith("__")]
    assert public == sorted(headway.__all__) and all(getattr(headway, name) is not None for name in public)
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        headway.laod  # noqa: B018


def test_names_are_listed_without_torch() -> None:
    script = "import headway, sys; assert 'load' in dir(headway); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300, check=True)
    assert answer.stdout == b"False\n"


def test_help_begins_with_each_public_function_in_a_line() -> None:
    shown = pydoc.plain(pydoc.render_doc(headway))
    begin = shown.partition("PACKAGE CONTENTS")[0]
    for name in ("load", "train", "fit", "trace", "show", "nn", "InputError"):
        assert any(line.split()[:1] == [name] for line in begin.splitlines()), name
    assert len(begin.splitlines()) < 40


def test_training_takes_every_option_of_the_command() -> None:
    from headway.cli.train import perform, train
    from headway.training import train as in_python

    of_command = set(inspect.signature(train).parameters) - {"threads"}  # torch.set_num_threads in Python
    assert set(inspect.signature(in_python).parameters) == of_command == set(inspect.signature(perform).parameters)


def test_a_call_trains_returns_the_model_and_gives_it_again_at_once(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained(text)
    told = capsys.readouterr()
    assert told.out == "" and "validation loss" in told.err  # a notebook shows stderr
    assert type(model) is headway.Generator and model.card.run["engine"]["steps"] == 6
    again = trained(text, settings=[f"{key}={value}" for key, value in SMALL.items()])
    assert "step" not in capsys.readouterr().err
    weights = (dict(one.model.named_parameters()) for one in (model, again))
    first, second = weights
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert trained(text, dry_run=True) is None and '"steps": 6' in capsys.readouterr().out


def test_errors_are_exceptions_in_the_words_of_python(text: Path) -> None:
    trained(text)
    for how, line in (
        ({"data": "no.txt", "out": "other"}, "no file no.txt"),
        ({"settings": ["engine.stepps=3"]}, "unknown key 'engine.stepps'.*did you mean 'steps'"),
        ({"settings": "engine.steps=3"}, r"settings takes a list or a dict.*write \['engine.steps=3'\]"),
        ({"settings": {"engine.steps": "many"}}, "engine.steps must be a whole number"),
        ({"seed": 7}, "holds another run.*choose another out, .*resume=True, or pass overwrite=True$"),
        ({"overwrite": True, "resume": True}, "^resume=True continues a run, overwrite=True starts it again"),
    ):
        with pytest.raises(headway.InputError, match=line):
            trained(text, **how)
    with pytest.raises(headway.InputError, match="there is no recipe 'gptt'.*did you mean 'gpt'"):
        headway.train("gptt")


def test_an_interrupted_call_leaves_a_checkpoint_and_the_same_call_finishes_the_run(
    text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = trained(text, out="whole")
    event = Log.event

    def interrupted(log: Log, kind: str, step: int | None = None, **values: Any) -> None:
        event(log, kind, step, **values)
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)  # what a notebook's stop sends

    with monkeypatch.context() as patch:
        patch.setattr(Log, "event", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(text)
    assert "resumes from step 2" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    model = trained(text)
    assert "resuming from step 2" in capsys.readouterr().err
    weights = dict(model.model.named_parameters())
    assert all(torch.equal(weights[name], weight) for name, weight in whole.model.named_parameters())
