"""The length of a run: a number of steps, or as many as fit into a time."""

from __future__ import annotations

from headway.train.parallel.ranks import ALONE, Ranks


class Pace:
    """Estimates the last step of a run with a time limit, so that a schedule ends there.

    Validation counts as well; the time before the first look, which is spent on setting up, does not.
    """

    def __init__(self, steps: int, seconds: float, ranks: Ranks = ALONE) -> None:
        """`seconds`: 0 for as many as it takes."""
        self.most, self.seconds, self.ranks = steps, seconds, ranks
        self.steps = steps
        self.first: tuple[int, float] | None = None  # step and seconds of the first look; a checkpoint has it

    def due(self, step: int) -> bool:
        """Whether to look: often at first, since a run may be short; later at the estimated end."""
        return bool(self.seconds) and (step & (step - 1) == 0 or step >= self.steps)

    def look(self, step: int, seconds: float) -> bool:
        """Estimate the last step from the time of the steps since the first look; whether the time is over."""
        if not self.seconds:
            return False
        if self.first is None:
            self.first = step, seconds
        first, began = self.first
        if step > first:
            left = (self.seconds - seconds) * (step - first) / max(seconds - began, 1e-9)
            # All processes have one rate: the first one's.
            self.steps = self.ranks.broadcast(min(self.most, step + max(0, round(left))))
        return self.ranks.any(seconds >= self.seconds)
