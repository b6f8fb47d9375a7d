"""Where a verb writes: a run's folder, or a file. Each appears whole, or everything is as it was before."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headway.errors import InputError

if TYPE_CHECKING:
    from headway.train.run import Run

LOCK = ".lock"


def is_taken(place: Path) -> bool:
    return place.exists() and (not place.is_dir() or any(place.iterdir()))


def goes_on(place: Path, run: Run) -> bool:
    """Whether the folder holds this very run, finished or not; another one is refused by what differs."""
    if not is_taken(place) or not (place / "run.json").is_file():
        return False
    from headway.plain import differences
    from headway.train.run import read_run

    differs = differences(read_run(place / "run.json"), run)
    if differs:
        listed = "; ".join(differs[:6]) + (f"; and {len(differs) - 6} more" if len(differs) > 6 else "")
        raise InputError(
            f"{place} holds another run ({listed}): choose another --out, go on with that one by --resume, "
            "or pass --overwrite"
        )
    return True


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """No second process may work on the same run; the lock goes with the process, however it ends."""
    with (place / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{place} is being trained by another process: wait for it, or end it first") from None
        yield


@contextmanager
def claimed(place: Path, overwrite: bool) -> Iterator[None]:
    """An empty folder for a run; one that is there is only replaced when asked, only if it is a run.

    An earlier run is deleted when the new one has succeeded. One that fails before its first checkpoint leaves
    nothing behind; one that fails later is kept, under another name if an earlier run needs its own back.
    """
    if is_taken(place):
        if not overwrite:
            raise InputError(f"{place} is there already: choose another --out, or pass --overwrite")
        if not (place / "run.json").is_file():
            raise InputError(f"{place} is not the folder of a run: it is left alone, choose another --out")
    place = place.resolve()  # a link to a bigger disk stays one
    made = list(takewhile(lambda folder: not folder.exists(), (place, *place.parents)))
    earlier = None
    if place.exists() and any(place.iterdir()):
        earlier = place.rename(place.with_name(f".{place.name}.earlier-{uuid.uuid4().hex[:8]}"))
    try:
        place.mkdir(parents=True, exist_ok=True)
        with locked(place):
            yield
    except BaseException:
        _withdraw(place, earlier)
        if not made:
            place.mkdir(exist_ok=True)
        for folder in made[1:]:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise
    if earlier is not None:
        shutil.rmtree(earlier, ignore_errors=True)


def _withdraw(place: Path, earlier: Path | None) -> None:
    if not any((place / "checkpoints").glob("step-*")):
        shutil.rmtree(place, ignore_errors=True)
    elif earlier is None:
        print(f"headway: not finished; the same command goes on from {place / 'checkpoints'}", file=sys.stderr)
    else:
        names = (place.with_name(f"{place.name}.failed-{number}") for number in count(1))
        kept = place.rename(next(name for name in names if not name.exists()))
        print(f"headway: {place} is as it was; headway train {kept} --resume goes on with the new one", file=sys.stderr)
    if earlier is not None:
        earlier.rename(place)


@contextmanager
def opened(output: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when everything was written to it."""
    if output is None:
        yield sys.stdout
        return
    path = Path(output)
    if path.is_dir():
        raise InputError(f"{path} is a folder: --output takes the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for --output {path.name}: make it first")
    # A device or a pipe can be written to, but a file that takes its place would be something else.
    special = path.exists() and not path.is_file()
    goal = path.resolve()  # a link goes on leading there
    part = path if special else goal.with_name(f".{goal.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with _writable(part, path) as stream:
            yield stream
        if not special:
            os.replace(part, goal)
    finally:
        if not special:
            part.unlink(missing_ok=True)


def _writable(part: Path, path: Path) -> TextIO:
    try:
        return part.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
