"""The length of a run: a number of steps, or as many as fit into a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.train.parallel.ranks import ALONE, Ranks

SCORING = 1 / 3  # of the time, that the last scoring may take; likewise all validations before it
LEAST = 1 / 64  # of the validation data, that a scoring is timed with first
SOON = 1 / 50  # of the time: a scoring that takes less is timed again with more data


class Pace:
    """Ends a run with a time limit so that its last scoring fits in, and estimates its last step, so that a schedule
    ends there.

    The time is that of the whole run: preparing the data, compiling, steps, validations, the last scoring.
    scoring: seconds of one validation with its score, `times` of which the end of the run takes. share: of the
    validation and test data that is scored; less than all where that would take longer than `SCORING` of the time.
    """

    def __init__(self, steps: int, seconds: float, ranks: Ranks = ALONE) -> None:
        """`seconds`: 0 for as many as it takes."""
        self.most, self.seconds, self.ranks = steps, seconds, ranks
        self.steps = steps
        self.first: tuple[int, float] | None = None  # step and seconds of the first look
        self.scoring, self.times, self.share = 0.0, 0.0, 1.0
        self.validating = 0.0  # seconds of all validations so far

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        names = ("first", "scoring", "times", "share", "validating")
        return {name: getattr(self, name) for name in names}

    def resume(self, state: Any) -> None:
        """`state`: of an earlier version only `first`."""
        for name, value in (state if isinstance(state, dict) else {"first": state}).items():
            setattr(self, name, value)

    @property
    def reserve(self) -> float:
        """Seconds that are kept for the end."""
        return self.scoring * self.times

    def measure(self, score: Callable[[float], tuple[float, float]], candidates: int) -> None:
        """Time the scoring. `score` validates on a share of the data and computes the final figures there, and returns
        the seconds of both; `candidates`: weights that are validated at the end."""
        share = LEAST
        while True:
            once, last = self.ranks.broadcast(score(share))
            if share == 1 or once + last > SOON * self.seconds:
                break
            share = min(1.0, 4 * share)
        self.times = 1 + candidates + last / max(once, 1e-9)
        whole = once / share
        self.share = min(1.0, SCORING * self.seconds / max(whole * self.times, 1e-9))
        self.scoring = whole * self.share

    def may_validate(self, seconds: float) -> bool:
        """Whether a validation that is due takes place: not where validations would take too much of the time, nor
        where the last one is next."""
        if not self.seconds:
            return True
        fits = self.validating + self.scoring <= SCORING * seconds
        return bool(self.ranks.broadcast(fits and seconds + self.scoring + self.reserve < self.seconds))

    def validated(self, seconds: float, scored: bool) -> None:
        """A validation took so long."""
        self.validating += seconds
        if scored and self.times:
            self.scoring = seconds

    def due(self, step: int) -> bool:
        """Whether to look: often at first, since a run may be short; later at the estimated end."""
        return bool(self.seconds) and (step & (step - 1) == 0 or step >= self.steps)

    def look(self, step: int, seconds: float) -> bool:
        """Estimate the last step from the time of the steps since the first look; whether there is no time for another
        one."""
        if not self.seconds:
            return False
        if self.first is None:
            self.first = step, seconds
        first, began = self.first
        room, each = self.seconds - self.reserve, 0.0
        if step > first:
            each = max(seconds - began, 1e-9) / (step - first)
            # All processes have one rate: the first one's.
            self.steps = self.ranks.broadcast(min(self.most, step + max(0, round((room - seconds) / each))))
        return self.ranks.any(seconds >= room or seconds + each > room)
