"""The state of a run, read from its folder. Torch is not loaded, so this is fast."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headway.errors import InputError
from headway.outside import read_object
from headway.train.history import History, read_history

State = Literal["finished", "running", "stopped", "not started", "broken"]
DEEPEST = 3  # folders below the one that is searched
# What logs of earlier versions have: figure, whether higher is better, command.
EARLIER = (("BLEU", True, "translate"), ("accuracy", True, "predict"), ("perplexity", False, "generate"))


@dataclass(frozen=True)
class Status:
    """`checkpoint` is the newest step that can be resumed from; `problem` says what is wrong where it is broken.

    `step` is where the run stands: the last one logged, or that of the checkpoint once it has stopped at one. `figure`:
    the score that tables show, with its best or final value on the validation data and its value on the test data.
    `verb`: the command for the finished model.
    """

    folder: Path
    state: State
    touched: float
    recipe: str | None = None
    step: int | None = None
    steps: int | None = None
    checkpoint: int | None = None
    figure: str | None = None
    validation: float | None = None
    test: float | None = None
    verb: str | None = None
    own_data: bool = False
    problem: str | None = None


def find_runs(folder: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """The folder itself if it is a run, else the runs below it. Nothing inside a run is looked at."""
    if os.path.isfile(folder / "run.json"):
        yield folder
    elif depth > 0:
        try:
            below = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and os.path.isdir(path))
        except OSError:  # not for us to read
            return
        for path in below:
            yield from find_runs(path, depth - 1)


def read_status(folder: Path) -> Status:
    """Never raises: a folder that cannot be read is a broken one."""
    touched = _touched(folder)
    try:
        return _read(folder, touched)
    except InputError as problem:
        return Status(folder, "broken", touched, problem=str(problem))
    except OSError as error:
        return Status(folder, "broken", touched, problem=f"{error.filename or folder}: {error.strerror or error}")


def _read(folder: Path, touched: float) -> Status:
    run = read_object(folder / "run.json")
    log = folder / "log.jsonl"
    history = read_history(log) if log.is_file() else History()
    place, score = folder / "model" / "headway.json", None
    # A run that has since been given more steps is unfinished, whatever its model has reached.
    if place.is_file() and (card := read_object(place)).get("run") in (None, run):
        score = _at(card, dict, "score") or {}
    checkpoint, logged = _newest_checkpoint(folder), history.last_step
    state: State
    if is_locked(folder):
        state, step = "running", logged
    elif score is not None:
        state, step = "finished", _at(score, int, "steps") or logged
    elif checkpoint is not None:
        state, step = "stopped", checkpoint
    else:
        state, step = "not started" if logged is None else "stopped", logged
    figure, higher, verb = _shown(history)
    best, final = history.best(figure.lower(), higher), _figure(score, f"validation {figure}")
    return Status(
        folder, state, touched, recipe=_at(run, str, "recipe"), step=step, steps=_at(run, int, "engine", "steps"),
        checkpoint=checkpoint, figure=figure, validation=final if final is not None or best is None else best[1],
        test=_figure(score, f"test {figure}"), verb=verb, own_data=_has_own_data(folder, run),
    )  # fmt: skip


def _shown(history: History) -> tuple[str, bool, str]:
    """The figure of a run, whether higher is better, and the command for its model. A log of an earlier version
    does not name them: the figure is then one that it has."""
    start = history.start
    if isinstance(figure := start.get("figure"), str):
        return figure, bool(start.get("higher_is_better")), str(start.get("verb", "predict"))
    return next((known for known in EARLIER if history.curve("validation", known[0].lower())), EARLIER[-1])


def is_locked(folder: Path) -> bool:
    """Whether a process trains here: it holds a lock on `.lock`."""
    try:
        import fcntl

        with (folder / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back when the file is closed
    except (ImportError, OSError) as error:  # a system without such locks, a folder without this one
        return isinstance(error, BlockingIOError)
    return False


def _newest_checkpoint(folder: Path) -> int | None:
    places = (folder / "checkpoints").glob("step-*/manifest.json")
    names = [place.parent.name.removeprefix("step-") for place in places]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _has_own_data(folder: Path, run: dict[str, Any]) -> bool:
    """Whether it trains on files inside its own folder, as the demo does: replacing the folder deletes them."""
    inside = os.path.join(os.path.abspath(folder), "")
    return any(os.path.abspath(str(name)).startswith(inside) for name in _at(run, list, "data", "train") or ())


def _touched(folder: Path) -> float:
    """When something last happened, in seconds since 1970."""
    newest = 0.0
    for name in ("run.json", "log.jsonl", "checkpoints", "model/headway.json"):
        with suppress(OSError):
            newest = max(newest, (folder / name).stat().st_mtime)
    return newest


def _at(facts: Any, kind: Any, *keys: str) -> Any:
    """The value below these keys; None where there is none of this type."""
    for key in keys:
        facts = facts.get(key) if isinstance(facts, dict) else None
    return facts if isinstance(facts, kind) and not isinstance(facts, bool) else None


def _figure(score: dict[str, Any] | None, key: str) -> float | None:
    value = _at(score, int | float, key)
    return float(value) if value is not None and math.isfinite(value) else None
