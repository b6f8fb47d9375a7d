"""CUDA graphs: work that is recorded once and replayed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capture(graph: Any, pool: Any = None) -> Iterator[None]:
    """What is launched inside becomes the graph's.

    Other threads may use the device meanwhile: what they do is no part of it. No garbage is collected: an earlier graph
    may be part of it, which gives its memory back to the driver, and that call ends a capture with an error.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()
