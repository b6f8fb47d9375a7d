"""What a run says: a progress bar on a terminal, plain lines in a log, `log.jsonl` and TensorBoard on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headway.errors import InputError


class Log:
    """One run's voice. Lines and bars go to stderr; every event is one JSON object in `log.jsonl`."""

    def __init__(self, folder: Path | None = None, tensorboard: bool = False, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self.started = time.perf_counter()
        self._file: TextIO | None = None
        self._board: Any = None
        if folder is not None:
            self._file = (folder / "log.jsonl").open("w", encoding="utf-8")
            if tensorboard:
                self._board = _tensorboard(folder)

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    def event(self, kind: str, step: int | None = None, **values: Any) -> None:
        """Keep an event; numbers of a step go to TensorBoard too."""
        record = {
            "event": kind,
            "step": step,
            "seconds": round(time.perf_counter() - self.started, 3),
        } | values
        if self._file is not None:
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self._file.flush()
        if self._board is not None and step is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    @contextmanager
    def bar(self, what: str, total: int | None, unit: str = "") -> Iterator[Callable[..., None]]:
        """A progress bar on a terminal; otherwise a plain line now and then. Call it with done= and text=."""
        if self.console.is_terminal and not self.console.quiet:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self.console, transient=True) as progress:
                task = progress.add_task(what, total=total, text="")

                def update(done: int, text: str = "") -> None:
                    progress.update(task, completed=done, text=text)

                yield update
        else:
            yield self._plain_lines(what, total, unit)

    def _plain_lines(self, what: str, total: int | None, unit: str) -> Callable[..., None]:
        started = self._last_line = time.perf_counter()

        def update(done: int, text: str = "") -> None:
            now = time.perf_counter()
            if now - self._last_line < 5:
                return
            self._last_line = now
            spent = now - started
            left = f", {(total - done) * spent / done:.0f} s left" if total and done else ""
            self.say(f"{what} {done:,}{f' of {total:,}' if total else ''}{unit}{f' {text}' if text else ''}{left}")

        return update

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("TensorBoard is not installed: pip install 'headway[tensorboard]'") from None
    return SummaryWriter(str(folder / "tensorboard"))
