"""One thread that does the work, and a short queue before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class Busy(Exception):
    """Too many requests are waiting."""


class Worker:
    """Runs tasks one after the other, in the order of their arrival."""

    def __init__(self, waiting: int = 8) -> None:
        self.waiting, self.inside = waiting, 0
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def do(self, task: Callable[[], Result]) -> Result:
        """The result of a task; `Busy` at once where too many are waiting."""
        if self.inside > self.waiting:
            raise Busy
        self.inside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, task)
        finally:
            self.inside -= 1
