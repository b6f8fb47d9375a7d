"""Whether a run is still learning: batches that had to be skipped, and a loss that has gone astray.

A step whose loss or gradient is not finite changes nothing; that is decided on the device. Here the host reads,
some steps later, which steps those were.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

NAMED = 8  # examples of a batch that a line names


class Diverged(Exception):
    """The run cannot go on; the message says why and what may help."""


@dataclass(frozen=True)
class Skipped:
    """A batch that was not learned from."""

    step: int
    examples: tuple[int, ...]

    def __str__(self) -> str:
        if not self.examples:
            return f"step {self.step:,}"
        shown = ", ".join(f"{number + 1:,}" for number in self.examples[:NAMED])
        more = f" and {len(self.examples) - NAMED:,} more" if len(self.examples) > NAMED else ""
        return f"step {self.step:,} (pairs {shown}{more} of the encoded training text)"


@dataclass
class Record:
    """What is kept in a checkpoint."""

    skipped: int = 0  # in all
    in_a_row: int = 0
    first_loss: float | None = None  # of the first reading
    best_loss: float | None = None
    astray: int = 0  # readings in a row with a loss that is far from what it was


class Health:
    def __init__(self, skips: int, patience: int) -> None:
        """`skips`: so many skipped batches in a row end the run. `patience`: so many readings of a loss that is
        above where it started, or has lost half of what was gained, end it (0: never)."""
        self.skips, self.patience = skips, patience
        self.record = Record()
        self._flags: list[tuple[int, tuple[int, ...], Tensor]] = []

    @property
    def sound(self) -> bool:
        """Whether what is there now is worth keeping."""
        return self.record.astray == 0 and self.record.in_a_row == 0

    def add(self, step: int, examples: tuple[int, ...], bad: Tensor) -> None:
        self._flags.append((step, examples, bad.clone()))

    def read(self) -> list[Skipped]:
        """The steps since the last reading that were skipped; raises `Diverged` when they are too many."""
        if not self._flags:
            return []
        bad = torch.stack([flag for _, _, flag in self._flags]).tolist()
        steps = zip(self._flags, bad, strict=True)
        found = [Skipped(step, examples) for (step, examples, _), is_bad in steps if is_bad]
        self._flags = []
        most = 0
        for is_bad in bad:
            self.record.in_a_row = self.record.in_a_row + 1 if is_bad else 0
            most = max(most, self.record.in_a_row)
        self.record.skipped += len(found)
        if self.skips and most >= self.skips:
            raise Diverged(
                f"the loss or its gradient was not finite in {most} steps running (the last: {found[-1]}): "
                "try a lower schedule.peak, a longer schedule.warmup, or engine.clip=1"
            )
        return found

    def judge(self, step: int, loss: float) -> None:
        """Look at the mean loss since the last reading; raises `Diverged` when it stays astray."""
        record = self.record
        if record.first_loss is None or record.best_loss is None:
            record.first_loss = record.best_loss = loss
            return
        limit = min(record.first_loss, record.best_loss + 0.5 * (record.first_loss - record.best_loss))
        # A loss that has hardly moved yet is neither good nor bad.
        gained = record.first_loss - record.best_loss
        limit = limit if gained > 0.1 * abs(record.first_loss) else 1.1 * record.first_loss
        record.astray = record.astray + 1 if loss > limit else 0
        record.best_loss = min(record.best_loss, loss)
        if self.patience and record.astray >= self.patience:
            raise Diverged(
                f"the loss is {loss:.2f} at step {step:,}, after {record.best_loss:.2f} at its best: the run has "
                "diverged; try a lower schedule.peak, a longer schedule.warmup, or engine.clip=1"
            )

    def facts(self) -> dict[str, Any]:
        return asdict(self.record)

    def go_on(self, facts: dict[str, Any]) -> None:
        self.record = Record(**facts)
