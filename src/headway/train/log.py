"""A run's output: a progress bar on a terminal or plain lines, and on disk `log.jsonl` and TensorBoard."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from headway.durations import spoken
from headway.errors import InputError, is_full
from headway.plain import json_line


@contextmanager
def unless_full() -> Iterator[None]:
    """Nothing is raised where the disk has no room left."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


class Log:
    """Lines and progress bars go to stderr; every event is one JSON object in `log.jsonl`.

    When the disk is full, events wait in memory.
    """

    def __init__(self, folder: Path | None = None, tensorboard: bool = False, quiet: bool = False) -> None:
        # A notebook's stderr says that it is a terminal, and keeps every frame of a bar.
        terminal = False if type(sys.stderr).__module__.startswith("ipykernel") else None
        self.console = Console(
            stderr=True, quiet=quiet, force_jupyter=False, force_terminal=terminal, highlight=False, soft_wrap=True
        )
        self.started = time.perf_counter()
        self._folder, self._tensorboard = folder, tensorboard
        self._file: Any = None
        self._writer: Any = None
        self._waiting = b""  # not on the disk yet
        self._known = False  # whether events are in the file already

    def say(self, line: str) -> None:
        with unless_full():  # stderr may be a file on the full disk
            self.console.print(line, markup=False)

    def resume(self) -> None:
        """Ignore events until `cut_back`: the file has them from an earlier start."""
        self._known = True

    def cut_back(self, position: int, seconds: float, step: int) -> None:
        """Delete events after a checkpoint, and continue from there."""
        self._known = False
        self.started = time.perf_counter() - seconds
        if self._folder is not None:
            path = self._folder / "log.jsonl"
            path.touch()
            self._open("r+b", step)
            there = path.stat().st_size
            if there < position:
                self.say(f"{path} has lost {position - there:,} of its {position:,} bytes since step {step:,}")
                there = path.read_bytes().rfind(b"\n") + 1  # a line that was cut would spoil the next one
            self._file.truncate(min(position, there))  # truncating beyond the end would add zeros
            self._file.seek(0, os.SEEK_END)

    def _open(self, mode: str = "wb", step: int = 0) -> None:
        if self._file is None and self._folder is not None:
            self._file = (self._folder / "log.jsonl").open(mode, buffering=0)
            if self._tensorboard:
                self._writer = _tensorboard(self._folder, step)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def position(self) -> int:
        """The position of the next event in `log.jsonl`; everything before it is on the disk."""
        self._open()
        if self._file is None:
            return 0
        self._write()
        if self._waiting:
            raise OSError(errno.ENOSPC, "No space left on device", "log.jsonl")
        os.fsync(self._file.fileno())
        return self._file.tell()

    def event(self, kind: str, step: int | None = None, **values: Any) -> None:
        """Write an event; numbers of a step go to TensorBoard too."""
        if self._known or self._folder is None:
            return
        self._open()
        record = {"event": kind, "step": step, "seconds": round(self.seconds, 3)} | values
        self._waiting += (json_line(record) + "\n").encode()
        self._write()
        if self._writer is not None and step is not None:
            self._draw(kind, step, values)

    def _draw(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Add points to TensorBoard, which raises here the errors of earlier points."""
        try:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(f"{kind}/{name}", value, step)
        except OSError as error:
            if not is_full(error):
                raise
            self._writer = None
            self.say("no room left on the disk: TensorBoard gets no more points until the run is started again")

    def _write(self) -> None:
        """Write as much of the waiting events as the disk takes."""
        with unless_full():
            while self._waiting:
                self._waiting = self._waiting[self._file.write(self._waiting) or 0 :]

    @contextmanager
    def bar(self, what: str, total: int | None, unit: str = "") -> Iterator[Callable[..., None]]:
        """A progress bar on a terminal; otherwise a plain line now and then. Call it with what is done, a text and,
        where it has changed, the total."""
        if self.console.is_terminal and not self.console.quiet:
            begin = "{task.description}", BarColumn(bar_width=20), MofNCompleteColumn()
            end = "{task.fields[text]}", TimeRemainingColumn(), "left"
            with Progress(*begin, *end, console=self.console, transient=True) as progress:
                task = progress.add_task(what, total=total, text="")

                def update(done: int, text: str = "", of: int | None = None) -> None:
                    progress.update(task, completed=done, total=of, text=text)  # None leaves it

                yield update
        else:
            yield self._plain_lines(what, total, unit)

    def _plain_lines(self, what: str, total: int | None, unit: str) -> Callable[..., None]:
        self._last_line = time.perf_counter()
        began: tuple[int, float] | None = None  # a resumed run starts in the middle

        def update(done: int, text: str = "", of: int | None = None) -> None:
            nonlocal began
            now, whole = time.perf_counter(), of or total
            began = began or (done, now)
            if now - self._last_line < 5:
                return
            self._last_line = now
            since, spent = done - began[0], now - began[1]
            left = f", {spoken((whole - done) * spent / since)} left" if whole and since else ""
            self.say(f"{what} {done:,}{f' of {whole:,}' if whole else ''}{unit}{f' {text}' if text else ''}{left}")

        return update

    def close(self) -> None:
        if self._file is not None:
            self._write()
            self._file.close()
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("TensorBoard is not installed: pip install 'headway[tensorboard]'") from None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)
