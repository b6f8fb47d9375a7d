"""A recording of any length, window by window, in little memory. N samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headway.data.sound_files import Samples, blocks


class Listening:
    """What is heard of a recording from some sample on. Windows never go back; what lies before one is dropped."""

    def __init__(self, value: Any, rate: int) -> None:
        self._coming: Iterator[Samples] = blocks(value, rate)
        self._held_N, self._start, self.ended = np.zeros(0, np.float32), 0, False

    def window(self, start: int, count: int) -> Samples:
        """The samples from `start` on, at most `count`; fewer where the recording ends."""
        self._fill(start + count)
        kept = max(0, start - self._start)
        self._held_N, self._start = self._held_N[kept:], self._start + min(kept, len(self._held_N))
        return self._held_N[:count]

    def more(self, start: int) -> bool:
        """Whether there are samples from `start` on."""
        self._fill(start + 1)
        return self._start + len(self._held_N) > start

    def _fill(self, end: int) -> None:
        parts, there = [self._held_N], self._start + len(self._held_N)
        while there < end and not self.ended:
            block_N = next(self._coming, None)
            if block_N is None:
                self.ended = True
                break
            parts.append(block_N)
            there += len(block_N)
        if len(parts) > 1:
            self._held_N = np.concatenate(parts)
