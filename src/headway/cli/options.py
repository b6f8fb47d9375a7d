"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from headway.errors import InputError, refuse
from headway.formats import FORMATS


def argument(metavar: str, text: str, default: Any = ...) -> Any:
    """An argument, with its name and its explanation in the help."""
    return typer.Argument(default, metavar=metavar, help=text)


def option(default: Any, metavar: str, text: str, *names: str, **more: Any) -> Any:
    """An option that takes a value. `names`: where it is not called like its parameter; `more`: such as its least
    value."""
    return typer.Option(default, *names, metavar=metavar, help=text, **more)


def flag(name: str, text: str, *names: str, **more: Any) -> Any:
    """An option that is there or not."""
    return typer.Option(False, name, *names, help=text, **more)


def _use_threads(threads: int) -> int:
    if threads > 0:
        refuse(threads > 4096, f"--threads is {threads}: a machine has a few of them, 4,096 at most")
        import torch

        torch.set_num_threads(threads)
    return threads


MODEL = argument("MODEL", "A model folder, or a run's folder.")
LANGUAGE_MODEL = argument("MODEL", "A language model's folder, or a run's folder.")
LINES = argument("FILE", "A text a line (.gz, .zst, .xz too); without it, stdin.", None)
TEXTS = option([], "TEXT...", "Texts, instead of a file.", "--text")
DEVICE = option("auto", "NAME", "cpu, cuda or cuda:N; auto takes a GPU where there is one.")
DTYPE = option("auto", "NAME", "float32 or bfloat16; auto is bfloat16 on a GPU.")
ENGINE = option("headway", "NAME", "headway, or ctranslate2 for fast use on a CPU.")
THREADS = option(0, "N", "CPU threads; 0 leaves it to torch.", min=0, callback=_use_threads)
BEAM_SIZE = option(None, "N", "Hypotheses kept; 1 is greedy. Default: as in validation.")
LENGTH_PENALTY = option(None, "α", "Score = log-probability / lengthᵅ. Default: as in validation.")
BATCH_SIZE = option(None, "N", "Sentences translated at once: fewer take less memory.", min=1)
TRUNCATE = flag("--truncate", "Cut a text that is longer than the model takes.")
TEXT_COLUMN = option(
    [], "COLUMN...", "Name or number (from 1) of the column with the texts; two for pairs. Default: found by its name.",
    "--text-column",
)  # fmt: skip
LABEL_COLUMN = option(
    None, "COLUMN", "Name or number (from 1) of the column with the labels. Default: found by its name or its values."
)
NO_ANSWER = option(
    None,
    "X",
    "Of a model that finds answers: there is none where log p of that is above log p of the best answer by X.",
)
MAX_ANSWER_TOKENS = option(None, "N", "Of a model that finds answers: the most tokens of one.", min=1)
AS_JSON = flag("--json", "As JSON.")


def check_model(model: str, use: str) -> None:
    """Refuse a file in the place of the model: the model was left out, or the order is not that of `use`."""
    if Path(model).is_file() and not any(form.find(model) or form.explain(model) for form in FORMATS):
        raise InputError(f"{model} is a file and no model; the model's folder comes first: {use}")


def run_folder(name: str, also: str = "") -> Path:
    """The folder of a run; anything else is refused. `also`: what else may be given."""
    refuse(not Path(name).exists(), f"there is no folder {name}")
    refuse(not Path(name).is_dir(), f"{name} is a file: give the folder of a run{also}")
    return Path(name)


def check_output(output: str | None, read: Iterable[str | None]) -> None:
    """Refuse to write to a file that is read; a device or a pipe may be both, and `-` is no file."""
    for file in read:
        if output is None or file is None or file == "-" or not (os.path.isfile(output) and os.path.isfile(file)):
            continue
        if os.path.samefile(output, file):
            raise InputError(f"--output {output} is a file that is read here ({file}): choose another name")


def refuse_given(options: Mapping[str, object], why: str) -> None:
    """Refuse the first option that was given; `why` names it."""
    for name, value in options.items():
        refuse(value, why.format(name))


def check_engine(engine: str) -> bool:
    """Whether it is CTranslate2."""
    refuse(engine not in ("headway", "ctranslate2"), f"--engine is headway or ctranslate2, not {engine}")
    return engine == "ctranslate2"


def engine_settings(device: str, dtype: str) -> list[str]:
    """Where a run computes, as settings of the run."""
    return [f"engine.{key}={value}" for key, value in (("device", device), ("dtype", dtype)) if value != "auto"]


def given(**values: object) -> dict[str, object]:
    """The options that were given; the others keep the model's own settings."""
    return {name: value for name, value in values.items() if value is not None}
