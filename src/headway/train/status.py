"""The state of a run, read from its folder. Torch is not loaded, so this is fast."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
    except _Broken as problem:
        return Status(folder, "broken", touched, problem=str(problem))
    except OSError as error:
        return Status(folder, "broken", touched, problem=f"{error.filename or folder}: {error.strerror or error}")


class _Broken(Exception):
    pass


def _read(folder: Path, touched: float) -> Status:
    run = _object(folder / "run.json")
    log = folder / "log.jsonl"
    history = read_history(log) if log.is_file() else History()
    card = folder / "model" / "headway.json"
    score = _score(_object(card), run) if card.is_file() else None
    checkpoint, logged = _newest_checkpoint(folder), history.last_step
    state: State
    if is_locked(folder):
        state, step = "running", logged
    elif score is not None:
        state, step = "finished", _count(score.get("steps")) or logged
    elif checkpoint is not None:
        state, step = "stopped", checkpoint
    else:
        state, step = "not started" if logged is None else "stopped", logged
    figure, higher, verb = _shown(history)
    best, final = history.best(figure.lower(), higher), _figure(score, f"validation {figure}")
    return Status(
        folder, state, touched,
        recipe=run["recipe"] if isinstance(run.get("recipe"), str) else None,
        step=step,
        steps=_count(_part(run, "engine").get("steps")),
        checkpoint=checkpoint,
        figure=figure,
        validation=final if final is not None or best is None else best[1],
        test=_figure(score, f"test {figure}"),
        verb=verb,
        own_data=_has_own_data(folder, run),
    )  # fmt: skip


def _shown(history: History) -> tuple[str, bool, str]:
    """The figure of a run, whether higher is better, and the command for its model. A log of an earlier version
    does not name them: the figure is then one that it has."""
    start = history.start
    if isinstance(figure := start.get("figure"), str):
        return figure, bool(start.get("higher_is_better")), str(start.get("verb", "predict"))
    for name, higher, verb in EARLIER:
        if history.curve("validation", name.lower()):
            return name, higher, verb
    return EARLIER[-1]


def _score(card: dict[str, Any], run: dict[str, Any]) -> dict[str, Any] | None:
    """The model's score, unless the run has since been given more steps: then it is unfinished."""
    return _part(card, "score") if card.get("run") in (None, run) else None


def is_locked(folder: Path) -> bool:
    """Whether a process trains here: it holds a lock on `.lock`."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return False
    try:
        with (folder / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back when the file is closed
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _newest_checkpoint(folder: Path) -> int | None:
    places = (folder / "checkpoints").glob("step-*/manifest.json")
    names = [place.parent.name.removeprefix("step-") for place in places]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _has_own_data(folder: Path, run: dict[str, Any]) -> bool:
    """Whether it trains on files inside its own folder, as the demo does: replacing the folder deletes them."""
    files, inside = _part(run, "data").get("train"), os.path.join(os.path.abspath(folder), "")
    return isinstance(files, list) and any(os.path.abspath(str(name)).startswith(inside) for name in files)


def _touched(folder: Path) -> float:
    """When something last happened, in seconds since 1970."""
    times = []
    for name in ("run.json", "log.jsonl", "checkpoints", "model/headway.json"):
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _Broken(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _Broken(f"{path} is not a JSON object")
    return found


def _part(whole: dict[str, Any], key: str) -> dict[str, Any]:
    part = whole.get(key)
    return part if isinstance(part, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _figure(score: dict[str, Any] | None, key: str) -> float | None:
    value = score.get(key) if score else None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
