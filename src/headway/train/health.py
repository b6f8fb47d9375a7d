"""Whether a run is still learning: batches that were skipped, and a loss that diverges.

A step whose loss or gradient is not finite changes nothing; that is decided on the device. Here the host reads,
some steps later, which steps those were.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

NAMED = 8  # examples of a batch that a line names
FEWEST = 10  # steps of a reading: what comes more often is put together
HINT = "try a lower schedule.peak, a longer schedule.warmup, or engine.clip=1"


class Diverged(Exception):
    """The run has to end; the message says why and what may help."""


@dataclass(frozen=True)
class Skipped:
    """A skipped batch."""

    step: int
    examples: tuple[int, ...]
    in_a_row: int = 1

    def __str__(self) -> str:
        if not self.examples:
            return f"step {self.step:,}"
        shown = ", ".join(f"{number + 1:,}" for number in self.examples[:NAMED])
        more = f" and {len(self.examples) - NAMED:,} more" if len(self.examples) > NAMED else ""
        return f"step {self.step:,} (examples {shown}{more} of the encoded training text)"


@dataclass
class Record:
    """What is kept in a checkpoint. A reading is the mean of one line of the log, or of several short ones."""

    skipped: int = 0  # in all
    in_a_row: int = 0
    first: float | None = None  # loss of the first reading
    best: float | None = None  # lowest loss, as the mean of `patience` readings running
    lowest: float | None = None  # nll, likewise, since it was last better than guessing
    since: int = 0  # readings since that was clearly lowered, the warm-up not counted
    well: int = 0  # step of the last reading that was as it should be
    recent: list[tuple[float, float]] = field(default_factory=list)  # loss and nll of the last readings
    read_at: int = 0  # step of the last reading
    lines: list[tuple[float, float]] = field(default_factory=list)  # of the log, since then


class Health:
    """Decides when a run has to end.

    skipped: `skips` batches in a row.
    blown up: `patience` readings in a row far above the first.
    lost: `patience` readings in a row that have lost half of what was gained, and are not on their way back.
    stuck: after the warm-up, no gain for five times `patience` readings while the nll is no better than guessing
    every token by its frequency (`guess`, the entropy of the tokens).
    """

    def __init__(self, skips: int, patience: int, warmup: int = 0, guess: float = float("inf")) -> None:
        """Of `skips` and `patience`, 0 means never."""
        self.skips, self.patience, self.warmup, self.guess = skips, patience, warmup, guess
        self.record = Record()
        self._flags: list[tuple[int, tuple[int, ...], Tensor]] = []

    @property
    def sound(self) -> bool:
        """Whether the present weights are worth a checkpoint."""
        recent = self.record.recent
        return not recent or recent[-1][0] <= self._limit()

    def add(self, step: int, examples: tuple[int, ...], bad: Tensor) -> None:
        self._flags.append((step, examples, bad.clone()))

    def read(self) -> list[Skipped]:
        """The steps since the last reading that were skipped."""
        if not self._flags:
            return []
        bad = torch.stack([flag for _, _, flag in self._flags]).tolist()
        found = []
        for (step, examples, _), is_bad in zip(self._flags, bad, strict=True):
            self.record.in_a_row = self.record.in_a_row + 1 if is_bad else 0
            if is_bad:
                found.append(Skipped(step, examples, self.record.in_a_row))
        self._flags = []
        self.record.skipped += len(found)
        return found

    def count(self, skipped: list[Skipped]) -> None:
        """Raises `Diverged` when too many consecutive batches were skipped."""
        if self.skips and (most := max((one.in_a_row for one in skipped), default=0)) >= self.skips:
            raise Diverged(f"the loss or its gradient was not finite in {most} consecutive steps: {HINT}")

    def judge(self, step: int, loss: float, nll: float) -> None:
        """Judge a line of the log; raises `Diverged` when the run has diverged."""
        record, patience = self.record, self.patience
        if not math.isfinite(loss) or not patience:  # every batch was skipped: that has a rule of its own
            return
        record.lines = [*record.lines, (loss, nll)]
        if step < record.read_at + FEWEST:
            return
        loss, nll = (sum(values) / len(values) for values in zip(*record.lines, strict=True))
        record.read_at, record.lines = step, []
        record.first = loss if record.first is None else record.first
        record.recent = [*record.recent, (loss, nll)][-patience:]
        limit = self._limit()
        if loss <= limit:
            record.well = step
        if len(record.recent) < patience:
            return
        losses, nlls = ([reading[which] for reading in record.recent] for which in (0, 1))
        if min(losses) > limit and (limit > record.first or not _falls(losses)):
            best = min(record.first, record.best or loss)
            raise Diverged(f"the loss is {loss:.2f} at step {step:,}, after {best:.2f}: the run has diverged; {HINT}")
        record.best = min(record.best or math.inf, sum(losses) / patience)
        if self._is_stuck(step, sum(nlls) / patience):
            raise Diverged(
                f"the loss is {loss:.2f} at step {step:,}: the run has diverged, it is no better than guessing each "
                f"token by its frequency; {HINT}"
            )

    def _is_stuck(self, step: int, nll: float) -> bool:
        record = self.record
        if nll <= 0.99 * self.guess:
            record.lowest, record.since = None, 0
        elif record.lowest is None or nll < 0.995 * record.lowest:
            record.lowest, record.since = nll, 0
        elif step > self.warmup:
            record.since += 1
        return record.since >= 5 * self.patience

    def _limit(self) -> float:
        """What no loss should be above for long."""
        first, best = self.record.first, self.record.best
        assert first is not None
        if best is None or first - best < 0.4 * first:  # so small a gain may be noise, or a low start
            return 2 * first
        return best + 0.5 * (first - best)


def _falls(values: list[float]) -> bool:
    """Whether the second half is clearly below the first."""
    middle = len(values) // 2
    before, after = values[:middle], values[middle:]
    return bool(before) and sum(after) / len(after) < 0.98 * sum(before) / len(before)
