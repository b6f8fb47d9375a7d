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
        self._first: tuple[int, float] | None = None

    def over(self, seconds: float) -> bool:
        return bool(self.seconds) and self.ranks.any(seconds >= self.seconds)

    def go_on(self, step: int, seconds: float) -> None:
        """Be where a run was: as fast as it has been on the whole."""
        if step:
            self._first = 0, 0.0
            self.look(step, seconds)

    def look(self, step: int, seconds: float) -> None:
        """Foresee the last step from the time that those since the first look took."""
        if not self.seconds:
            return
        if self._first is None:
            self._first = step, seconds
            return
        first, began = self._first
        left = (self.seconds - seconds) * (step - first) / max(seconds - began, 1e-9)
        # All processes have one rate: the first one's.
        self.steps = self.ranks.tell(min(self.most, step + max(0, round(left))))
