"""Ctrl-C and a scheduler's signals while training: the first stops after the step, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Stop:
    """A context in which the first signal only sets `asked`; a second one has its usual effect."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.asked_by: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        return self.asked_by is not None

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for name in SIGNALS:
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self._obey(number, frame)
        self.asked_by = number
        again = "Ctrl-C again" if number == signal.SIGINT else "the signal again"
        with suppress(RuntimeError):  # the signal came while a line was being printed
            self.say(f"stopping after this step, with a checkpoint ({again} leaves at once)")

    def leave(self) -> None:
        """End the process as the signal would have."""
        self._obey(self.asked_by or signal.SIGINT, None)

    def _obey(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt
