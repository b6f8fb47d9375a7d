"""Independent work side by side, each on a core of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Made = TypeVar("Made")


def on_every_core(works: Sequence[Callable[[], Made]]) -> Iterator[Made]:
    """The results in order. As many at a time as torch has CPU threads, one thread each: cores that share one product
    wait for each other at its end, and for long where other programs use them too."""
    cores = torch.get_num_threads()
    if cores == 1 or len(works) == 1:
        yield from (work() for work in works)
        return
    pool = ThreadPoolExecutor(cores, "core", initializer=lambda: torch.set_num_threads(1))
    try:
        for future in [pool.submit(work) for work in works]:
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(cores)  # the number is every thread's, but for those that have begun
