"""States and actions of gymnasium as headway has them: one row of numbers, and one of several or a row of numbers.

K steps, S width of a state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import refuse
from headway.worlds.world import Choices, Floats, Numbers, Space


class Spaces:
    """Of one world. States of several parts keep those that are numbers (a mission in words is none); choices may begin
    at another number than 0 there (`first`). library: `gymnasium.spaces`."""

    def __init__(self, library: Any, observed: Any, acted: Any, name: str) -> None:
        self.library, self.name, self.first = library, name, int(getattr(acted, "start", 0))
        self.actions: Space = self._actions(acted)
        if isinstance(observed, library.Dict):
            observed = library.Dict({key: part for key, part in observed.items() if self._flat_of(part)})
        flat = self._flat_of(observed)
        refuse(flat is None or not flat.shape[0], f"the states of {name!r} are no row of numbers: {observed}")
        self.observed, self.states = observed, Numbers(tuple(map(float, flat.low)), tuple(map(float, flat.high)))

    def _actions(self, space: Any) -> Space:
        if isinstance(space, self.library.Discrete):
            return Choices(int(space.n))
        ours = isinstance(space, self.library.Box) and len(space.shape) == 1
        refuse(not ours, f"the actions of '{self.name}' are {space}: headway takes one of several, or a row of numbers")
        return Numbers(tuple(map(float, space.low)), tuple(map(float, space.high)))

    def _flat_of(self, space: Any) -> Any:
        """The row of numbers that a space can be written as, or None."""
        try:
            flat = self.library.flatten_space(space)
        except NotImplementedError:
            return None
        return flat if isinstance(flat, self.library.Box) else None

    def flat(self, state: Any) -> Floats:
        """A state as a row."""
        if isinstance(self.observed, self.library.Dict):
            state = {key: state[key] for key in self.observed}
        return np.asarray(self.library.flatten(self.observed, state), np.float32)

    def done(self, actions: Any) -> NDArray[Any]:
        """Actions of gymnasium, as headway numbers them."""
        return np.asarray(actions, np.int64) - self.first if isinstance(self.actions, Choices) else np.asarray(actions)
