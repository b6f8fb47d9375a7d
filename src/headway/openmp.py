"""The threads that GNU's OpenMP, by which torch computes on a CPU, keeps for each thread that has computed."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

HARD = 2  # omp_pause_hard


def rest() -> None:
    """End those that it keeps for the calling thread; they are made anew when it computes again.

    With more of them than cores, as when one thread has loaded a model and another runs it, they sleep at the end of
    every product instead of waiting for each other: small products then take an eighth longer.
    """
    for library in _libraries():
        library.omp_pause_resource_all(HARD)


@cache
def _libraries() -> tuple[Any, ...]:
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        return ()
    files = {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}
    found = [ctypes.CDLL(file) for file in sorted(files) if Path(file).is_file()]
    return tuple(library for library in found if hasattr(library, "omp_pause_resource_all"))
