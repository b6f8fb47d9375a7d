"""How long a run is: so many steps, or as many as there is time for."""

from __future__ import annotations

from headway.train.parallel.ranks import ALONE, Ranks


class Pace:
    """The steps that a run will have, so that a schedule comes down in time.

    Whatever takes time counts, validation too, but for what was before the first look: then things are set up.
    """

    def __init__(self, steps: int, seconds: float, ranks: Ranks = ALONE) -> None:
        """`seconds`: 0 for as many as it takes."""
        self.most, self.seconds, self.ranks = steps, seconds, ranks
        self.steps = steps
        self.first: tuple[int, float] | None = None  # step and seconds of the first look

    def due(self, step: int) -> bool:
        """Whether to look: at first often, since a run may be short, later wherever its end should be."""
        return bool(self.seconds) and (step & (step - 1) == 0 or step >= self.steps)

    def look(self, step: int, seconds: float) -> bool:
        """Foresee the last step from the time that those since the first look took; whether all of it is over."""
        if not self.seconds:
            return False
        if self.first is None:
            self.first = step, seconds
        first, began = self.first
        if step > first:
            left = (self.seconds - seconds) * (step - first) / max(seconds - began, 1e-9)
            # All processes have one rate: the first one's.
            self.steps = self.ranks.tell(min(self.most, step + max(0, round(left))))
        return self.ranks.any(seconds >= self.seconds)

    def resume(self, first: tuple[int, float] | None, step: int, seconds: float) -> bool:
        """Be where a run was; whether it has no time left."""
        self.first = first
        return self.look(step, seconds)
