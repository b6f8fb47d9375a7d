"""`headway.train`: what `headway train` does at the shell, called from Python."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import InputError

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
FLAGS = ("overwrite", "resume", "download", "dry_run")


def train(
    recipe: str | os.PathLike[str], *, data: Files = (), valid: Files = (), test: Files = (), source: str | None = None,
    target: str | None = None, size: str | None = None, text_column: str | Sequence[str] = (),
    label_column: str | None = None, init: str | os.PathLike[str] | None = None, lr: float | None = None,
    steps: int | None = None, batch_size: int | None = None, seed: int | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (), out: str | os.PathLike[str] | None = None,
    overwrite: bool = False, resume: bool = False, download: bool = False, dry_run: bool = False, device: str = "auto",
    dtype: str = "auto",
) -> Any:  # fmt: skip
    """Train a model and return it, as `headway.load` gives it: `headway.train("gpt", data="my.txt", out="runs/mine")`.

    The parameters are the options of `headway train`; `headway.train(..., dry_run=True)` prints the run with all its
    settings and trains nothing. data, valid, test: one file or a list. settings: what `--set` takes, as a list
    (`["engine.steps=500"]`) or a dict (`{"engine.steps": 500}`). lr, steps, batch_size and seed are short for four of
    them. Progress goes to stderr. What is wrong raises `headway.InputError`.

    An interrupted training (Ctrl-C, or a notebook's stop) leaves a checkpoint and raises KeyboardInterrupt; the same
    call resumes it, and gives a finished run's model at once.
    """
    from headway.cli.train import perform
    from headway.tasks.loading import load

    try:
        done = perform(
            os.fspath(recipe), data=_files(data), valid=_files(valid), test=_files(test), source=source, target=target,
            size=size, text_column=_files(text_column), label_column=label_column,
            init=None if init is None else os.fspath(init), lr=lr, steps=steps, batch_size=batch_size,
            seed=seed, settings=_settings(settings), out=None if out is None else os.fspath(out), overwrite=overwrite,
            resume=resume, download=download, dry_run=dry_run, device=device, dtype=dtype,
        )  # fmt: skip
    except InputError as error:
        error.args = (_in_python(str(error)),)
        raise
    return None if done is None else load(done.model, device, dtype)


def _files(given: Files) -> list[str]:
    return [os.fspath(file) for file in ([given] if isinstance(given, str | os.PathLike) else given)]


def _settings(given: Sequence[str] | Mapping[str, Any]) -> list[str]:
    if isinstance(given, str):
        raise InputError(f"settings takes a list or a dict, not one text: write ['{given}']")
    if not isinstance(given, Mapping):
        return list(given)
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in given.items()]


def _in_python(line: str) -> str:
    """An error's line with this function's parameters in place of the shell's options; a whole command stays one."""
    names = inspect.signature(train).parameters

    def renamed(option: re.Match[str]) -> str:
        name = {"set": "settings"}.get(option[1], option[1].replace("-", "_"))
        return option[0] if name not in names else f"{name}=True" if name in FLAGS else name

    return line if "headway train " in line else re.sub(r"--([a-z-]+[a-z])", renamed, line)
