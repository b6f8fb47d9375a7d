"""Where a command writes: a run's folder, or a file. Each appears whole, or nothing changes."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from glob import escape
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headway.atomic import replaced
from headway.errors import InputError, is_full, refuse
from headway.outside import read_object

if TYPE_CHECKING:
    from headway.train.run import Run

LOCK = ".lock"
REPLACES = ".replaces"  # in a folder that is trained beside another one: the name of that one
LOOK = 1.0  # seconds that a reader of a run holds its lock at most


def is_taken(place: Path) -> bool:
    """Whether the place is in use: it has more than what a process leaves that was killed before it had a run.json."""
    return place.exists() and (not place.is_dir() or not all(map(_is_debris, place.iterdir())))


def _is_debris(path: Path) -> bool:
    return path.name in (LOCK, REPLACES) or _is_half(path) or (path.name == "log.jsonl" and path.stat().st_size == 0)


def _is_half(path: Path) -> bool:
    """Whether a killed process was writing it: see headway.atomic."""
    return path.name.startswith(".") and (path.name.endswith(".part") or path.name.startswith(".model."))


def holds_run(place: Path, run: Run) -> bool:
    """Whether the folder holds this run, finished or not; a different run is refused, with what differs."""
    if not (differs := _differences(place, run)):
        return differs is not None
    listed = "; ".join(differs[:6]) + (f"; and {len(differs) - 6} more" if len(differs) > 6 else "")
    raise InputError(
        f"{place} holds another run ({listed}): choose another --out, continue that run with --resume, "
        "or pass --overwrite"
    )


def _differences(place: Path, run: Run) -> list[str] | None:
    """What differs between the folder's run and this one; None: there is none in it."""
    if not is_taken(place) or not (place / "run.json").is_file():
        return None
    from headway.plain import differences
    from headway.train.run import read_run

    return differences(read_run(place / "run.json"), run)


def beside(goal: Path) -> Path:
    """Where a run is trained that is to replace another one."""
    if goal.is_symlink() or goal.name in ("", ".."):
        goal = goal.resolve()  # a link to another disk stays a link
    return goal.with_name(f"{goal.name}.new")


def goal_of(place: Path) -> Path:
    """Where a run that is resumed here belongs when it is whole: the place of the run that it replaces, or its own."""
    try:
        name = Path((place / REPLACES).read_text(encoding="utf-8").strip()).name
    except (OSError, ValueError):
        return place
    goal = (place.resolve() if place.is_symlink() else place).with_name(name or place.name)
    refuse_stranger(goal)
    return goal


def chosen(goal: Path, run: Run, overwrite: bool) -> tuple[Path, bool]:
    """The folder to train in, and whether the run is resumed there; nothing is changed.

    With `overwrite` a finished run, or another one, stays in its place until the new one is whole: that is trained
    beside it. A run of these very settings that was stopped is resumed, wherever it was.
    """
    refuse_stranger(goal)
    if not overwrite or not is_taken(goal):
        return goal, holds_run(goal, run)
    if _is_stopped(goal, run):
        return goal, True
    return beside(goal), _differences(beside(goal), run) == []


def refuse_stranger(place: Path, name: str = "run.json", what: str = "a run") -> None:
    if is_taken(place) and not (place / name).is_file():
        raise InputError(f"{place} is there, and not the folder of {what}: it is left alone, choose another --out")


def _is_stopped(place: Path, run: Run) -> bool:
    try:
        return _differences(place, run) == [] and not (place / "model").exists()
    except InputError:  # a run.json that cannot be read: what is to be replaced may be damaged
        return False


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """No second process may work on the same run; the lock goes with the process, however it ends."""
    limit = time.monotonic() + LOOK
    while True:
        place.mkdir(parents=True, exist_ok=True)
        with (place / LOCK).open("a") as lock:
            if _has_lock(lock, place / LOCK):
                yield
                return
        refuse(time.monotonic() >= limit, f"{place} is being trained by another process: wait for it, or end it first")
        time.sleep(0.05)  # `headway runs` may be looking at it


def _lock(file: TextIO) -> None:
    """Raises OSError where another process has it."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _has_lock(lock: TextIO, path: Path) -> bool:
    """Whether this process has the lock now, of the folder that is still in its place: another process may have
    replaced it while this one waited."""
    try:
        _lock(lock)
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except OSError:
        return False


@contextmanager
def worked_in(place: Path, goal: Path, resume: bool, keeps: Callable[[Path], object] | None = None) -> Iterator[None]:
    """The folder of a run, locked. When the run is whole, it takes the place of `goal`, where that is another folder.

    A run that fails before its first checkpoint leaves nothing; one that fails later is kept, and the error says how
    to resume it. `keeps`: whether what is there after a failure is worth keeping (default: it has a checkpoint).
    """
    name, earlier, place, goal = place, goal, place.resolve(), goal.resolve()
    made = list(takewhile(lambda folder: not folder.exists(), (place, *place.parents)))
    with ExitStack() as locks:
        if goal != place:
            locks.enter_context(locked(goal))
        locks.enter_context(locked(place))
        _tidy(place)
        if is_taken(place) and not resume:
            if goal == place:
                refuse_stranger(name)
                raise InputError(f"{name} is there already: choose another --out, or pass --overwrite")
            _empty(place)  # of another run that was to replace this one, and was stopped
        if goal != place:
            (place / REPLACES).write_text(f"{goal.name}\n", encoding="utf-8")
        try:
            yield
        except BaseException as error:
            if not resume and not (keeps or _has_checkpoint)(place):
                shutil.rmtree(place, ignore_errors=True)
                _restore(made, place)
            else:
                _advise(error, name, f"{earlier} stays as it was; the same command, or " if goal != place else "")
            raise
        if goal != place:
            take_place(goal, place)


@contextmanager
def set_aside(place: Path, wanted: bool) -> Iterator[None]:
    """Move a run that is there to PLACE.earlier while another one is made in its place; delete it when that is whole,
    and put it back if that leaves nothing. For a folder whose own files name it, so that it cannot be made beside."""
    refuse_stranger(place)
    if not wanted or not is_taken(place):
        yield
        return
    goal = place.resolve()
    names = (goal.with_name(f"{goal.name}.earlier{number or ''}") for number in count())
    earlier = next(name for name in names if not name.exists())
    with locked(goal):
        goal.rename(earlier)
    try:
        yield
    except BaseException:
        if not is_taken(goal):
            shutil.rmtree(goal, ignore_errors=True)
            earlier.rename(goal)
        else:
            print(f"headway: the earlier run is in {earlier}", file=sys.stderr)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _tidy(place: Path) -> None:
    """Remove what a killed process was writing; a model that was about to be replaced comes back."""
    for path in [path for path in place.iterdir() if _is_half(path)]:
        if path.name.startswith(".model.old-") and not (place / "model").exists():
            path.rename(place / "model")
        else:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _empty(place: Path) -> None:
    for path in place.iterdir():
        if path.name != LOCK:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _restore(made: list[Path], place: Path) -> None:
    """Folders that were there before are there again, empty; those that were made are gone."""
    if not made:
        place.mkdir(exist_ok=True)
    for folder in made[1:]:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def take_place(goal: Path, place: Path) -> None:
    """Put a finished folder where another one is. `settle` completes it if it is cut short."""
    old = goal.with_name(f".{goal.name}.old-{uuid.uuid4().hex[:8]}")
    goal.rename(old)
    place.rename(goal)
    (goal / REPLACES).unlink(missing_ok=True)
    shutil.rmtree(old, ignore_errors=True)


def settle(goal: Path) -> None:
    """Complete what a killed process had begun in `take_place`."""
    goal = goal.resolve()
    for old in goal.parent.glob(f".{escape(goal.name)}.old-*"):
        with locked(old):  # a process that is just doing it has this lock
            if not goal.exists():
                (beside(goal) if beside(goal).exists() else old).rename(goal)
            shutil.rmtree(old, ignore_errors=True)


def _has_checkpoint(place: Path) -> bool:
    return _newest(place) is not None


def _newest(place: Path) -> int | None:
    from headway.train.sealed import sealed_steps

    return max(sealed_steps(place / "checkpoints"), default=None)


def _recipe(place: Path) -> str | None:
    try:
        return str(read_object(place / "run.json")["recipe"])
    except (InputError, KeyError):
        return None


def is_unfinished_demo(place: Path) -> bool:
    """Whether a demo was stopped here and can be resumed."""
    return _recipe(place) == "demo" and not (place / "report.txt").is_file()


def _advise(error: BaseException, place: Path, before: str = "") -> None:
    """Say how to resume: in the line of an `InputError`, else in a line of its own before the error."""
    step = _newest(place)
    if step is None:
        return
    name = shlex.quote(str(place))
    resumed = f"headway train {name} --resume"
    again = (f"headway demo --out {name}" if _recipe(place) == "demo" else resumed) + ("," if before else "")
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
