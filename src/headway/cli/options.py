"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import typer

from headway.errors import InputError

DEVICE = typer.Option("auto", metavar="NAME", help="cpu, cuda or cuda:N; auto takes a GPU where there is one.")
DTYPE = typer.Option("auto", metavar="NAME", help="float32 or bfloat16; auto is bfloat16 on a GPU.")
ENGINE = typer.Option("headway", metavar="NAME", help="headway, or ctranslate2 for fast use on a CPU.")
THREADS = typer.Option(0, min=0, metavar="N", help="CPU threads; 0 leaves it to torch.")
BEAM_SIZE = typer.Option(None, metavar="N", help="Hypotheses kept; 1 is greedy. Default: as in validation.")
LENGTH_PENALTY = typer.Option(None, metavar="α", help="Score = log-probability / lengthᵅ. Default: as in validation.")
BATCH_SIZE = typer.Option(None, min=1, metavar="N", help="Sentences translated at once: fewer take less memory.")


def check_model(model: str, use: str) -> None:
    """Refuse a file in the place of the model: the model was left out, or the order is not that of `use`."""
    if Path(model).is_file():
        raise InputError(f"{model} is a file and no model; the model's folder comes first: {use}")


def check_output(output: str | None, read: Iterable[str | None]) -> None:
    """Refuse to write to a file that is read; a device or a pipe may be both, and `-` is no file."""
    for file in read:
        if output is None or file is None or file == "-" or not (os.path.isfile(output) and os.path.isfile(file)):
            continue
        if os.path.samefile(output, file):
            raise InputError(f"--output {output} is a file that is read here ({file}): choose another name")


def check_engine(engine: str) -> bool:
    """Whether it is CTranslate2."""
    if engine not in ("headway", "ctranslate2"):
        raise InputError(f"--engine is headway or ctranslate2, not {engine}")
    return engine == "ctranslate2"


def use_threads(threads: int) -> None:
    if threads > 0:
        import torch

        torch.set_num_threads(threads)


def engine_settings(device: str, dtype: str) -> list[str]:
    """Where a run computes, as settings of the run."""
    return [f"engine.{key}={value}" for key, value in (("device", device), ("dtype", dtype)) if value != "auto"]


def given(**values: object) -> dict[str, object]:
    """The options that were given; the others keep the model's own settings."""
    return {name: value for name, value in values.items() if value is not None}
