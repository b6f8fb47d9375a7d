"""Where a command writes: a run's folder, or a file. Each appears whole, or nothing changes."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headway.atomic import replaced
from headway.errors import InputError, is_full, refuse

if TYPE_CHECKING:
    from headway.train.run import Run

LOCK = ".lock"
LOOK = 1.0  # seconds that a reader of a run holds its lock at most


def is_taken(place: Path) -> bool:
    """Whether the place is in use: it has more than the lock of a process that was killed at once."""
    return place.exists() and (not place.is_dir() or any(path.name != LOCK for path in place.iterdir()))


def holds_run(place: Path, run: Run) -> bool:
    """Whether the folder holds this run, finished or not; a different run is refused, with what differs."""
    if not is_taken(place) or not (place / "run.json").is_file():
        return False
    from headway.plain import differences
    from headway.train.run import read_run

    differs = differences(read_run(place / "run.json"), run)
    if differs:
        listed = "; ".join(differs[:6]) + (f"; and {len(differs) - 6} more" if len(differs) > 6 else "")
        raise InputError(
            f"{place} holds another run ({listed}): choose another --out, continue that run with --resume, "
            "or pass --overwrite"
        )
    return True


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """No second process may work on the same run; the lock goes with the process, however it ends."""
    limit = time.monotonic() + LOOK
    with (place / LOCK).open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= limit:
                    why = f"{place} is being trained by another process: wait for it, or end it first"
                    raise InputError(why) from None
            time.sleep(0.05)  # `headway runs` may be looking at it
        yield


@contextmanager
def continued(place: Path) -> Iterator[None]:
    """A run's folder, locked, to resume in; an error says how to resume."""
    with locked(place):
        try:
            yield
        except BaseException as error:
            _advise(error, place)
            raise


@contextmanager
def claimed(place: Path, overwrite: bool) -> Iterator[None]:
    """An empty folder for a run. An existing one is replaced only with `overwrite`, and only if it holds a run.

    An earlier run is deleted when the new one has succeeded. A run that fails before its first checkpoint leaves
    nothing; one that fails later is kept, under another name if an earlier run gets its own name back.
    """
    if is_taken(place):
        if not (place / "run.json").is_file():
            raise InputError(f"{place} is there, and not the folder of a run: it is left alone, choose another --out")
        refuse(not overwrite, f"{place} is there already: choose another --out, or pass --overwrite")
    name, place = place, place.resolve()  # a link to another disk stays a link
    made = list(takewhile(lambda folder: not folder.exists(), (place, *place.parents)))
    earlier = None
    if is_taken(place):
        with locked(place):
            earlier = place.rename(place.with_name(f".{place.name}.earlier-{uuid.uuid4().hex[:8]}"))
    mine = False  # another process may train here
    try:
        place.mkdir(parents=True, exist_ok=True)
        with locked(place):
            mine = True
            yield
    except BaseException as error:
        kept = _withdraw(place, earlier, mine)
        if not made:
            place.mkdir(exist_ok=True)
        for folder in made[1:]:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        if kept:
            _advise(error, name.with_name(kept), f"{name} is as it was; " if earlier else "")
        raise
    if earlier is not None:
        shutil.rmtree(earlier, ignore_errors=True)


def _withdraw(place: Path, earlier: Path | None, mine: bool) -> str | None:
    """Restore what was there before. A failed run that has a checkpoint is kept: returns the name of its folder."""
    kept = None
    if mine and _newest(place) is None:
        shutil.rmtree(place, ignore_errors=True)
    elif mine:
        names = (place.with_name(f"{place.name}.failed-{number}") for number in count(1))
        kept = place.rename(next(name for name in names if not name.exists())).name if earlier else place.name
    if earlier is not None and not place.exists():
        earlier.rename(place)
    return kept


def _newest(place: Path) -> int | None:
    from headway.train.sealed import sealed_steps

    return max(sealed_steps(place / "checkpoints"), default=None)


def _recipe(place: Path) -> str | None:
    try:
        return str(json.loads((place / "run.json").read_text(encoding="utf-8"))["recipe"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_unfinished_demo(place: Path) -> bool:
    """Whether a demo was stopped here and can be resumed."""
    return _recipe(place) == "demo" and not (place / "report.txt").is_file() and _newest(place) is not None


def _advise(error: BaseException, place: Path, before: str = "") -> None:
    """Say how to resume: in the line of an `InputError`, else in a line of its own before the error."""
    step = _newest(place)
    if step is None:
        return
    name = shlex.quote(str(place))
    resumed = f"headway train {name} --resume"
    again = f"headway demo --out {name}" if _recipe(place) == "demo" else resumed
    if type(error).__name__ == "Diverged":
        error.args = (f"{error}; {before}{resumed} --set schedule.peak=… resumes from it with another rate",)
    elif isinstance(error, InputError):
        error.args = (f"{error}; {before}{again} resumes from step {step:,}",)
    elif is_full(error):
        line = f"no room left on the disk for {place}: make room there; {before}{again} resumes from step {step:,}"
        raise InputError(line) from error
    else:
        print(f"headway: not finished; {before}{again} resumes from step {step:,}", file=sys.stderr)


@contextmanager
def opened(output: str | None, option: str = "--output") -> Iterator[TextIO]:
    """Standard output, or a file that appears only when everything was written to it."""
    if output is None:
        yield sys.stdout
        return
    path = Path(output)
    refuse(path.is_dir(), f"{path} is a folder: {option} takes the name of a file")
    refuse(not path.parent.is_dir(), f"there is no folder {path.parent} for {option} {path.name}: make it first")
    # A device or a pipe is written to directly: it cannot be replaced by a file. A link stays a link.
    special = path.exists() and not path.is_file()
    with nullcontext(path) if special else replaced(path.resolve()) as part, _writable(part, path) as stream:
        yield stream


def _writable(part: Path, path: Path) -> TextIO:
    try:
        return part.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
