"""Lane keeping: a car at a steady speed on a road that bends at random; the policy steers.

    y' = v·sin ψ        ψ' = v·tan(δ)/L − v·κ(s)·cos ψ / (1 − y·κ(s))        s' = v·cos ψ / (1 − y·κ(s))

y is how far left of the middle the car is, ψ its heading beside the road's, δ the angle of the wheels, L the wheelbase,
s the place along the road and κ the road's curvature there: a sum of three waves that the seed draws.

S width of a state, D distances ahead, P pixels of a side, C colours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.worlds.world import Bytes, Floats, Moved, Numbers

Doubles = NDArray[np.float64]

SPEED, STEP, WHEELBASE, STEEPEST = 10.0, 0.1, 2.7, 0.35  # m/s, s, m, rad
HALF, LONGEST = 2.0, 300  # metres from the middle to the edge of the lane; steps of an episode
AHEAD = np.array([0.0, 5.0, 10.0, 20.0])  # metres at which the road's curvature is seen
BENT = 0.02  # 1/m: the deviation of the curvature
SEEN = 30.0  # metres that the picture shows
GRASS, ROAD, LINE, CAR = (70, 120, 60), (110, 110, 115), (240, 240, 240), (200, 40, 40)


class LaneKeeping:
    """The state: y and ψ, the last steering, the curvature here and ahead. A step's reward is 1 − (y/half the lane)²;
    off the lane it ends, after thirty seconds it has succeeded."""

    name = "lane-keeping"
    command = "keep to the lane"
    actions = Numbers((-1.0,), (1.0,))
    states = Numbers((-np.inf,) * (3 + len(AHEAD)), (np.inf,) * (3 + len(AHEAD)))

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> Floats:
        draw = np.random.default_rng(seed)
        self.seed = seed
        lengths, phases = draw.uniform(40, 150, 3), draw.uniform(0, 2 * np.pi, 3)
        self.waves = 2 * np.pi / lengths, phases
        self.y, self.heading = draw.uniform(-HALF / 2, HALF / 2), draw.uniform(-0.1, 0.1)
        self.place, self.steering, self.steps = 0.0, 0.0, 0
        return self._state()

    def curvature(self, places_D: Doubles) -> Doubles:
        numbers, phases = self.waves
        waves_DW = np.sin(np.multiply.outer(places_D, numbers) + phases)
        bent_D: Doubles = BENT * (2 / 3) ** 0.5 * waves_DW.sum(-1)
        return bent_D

    def _state(self) -> Floats:
        bends_D = self.curvature(self.place + AHEAD) / BENT
        return np.array([self.y / HALF, self.heading, self.steering, *bends_D], np.float32)

    def step(self, action: Any) -> Moved:
        self.steering = float(self.actions.bounded(np.ravel(action))[0])
        bend = float(self.curvature(np.array(self.place)))
        along = SPEED * np.cos(self.heading) / (1 - self.y * bend)
        turning = SPEED * np.tan(self.steering * STEEPEST) / WHEELBASE
        self.y += STEP * SPEED * float(np.sin(self.heading))
        self.heading += STEP * float(turning - along * bend)
        self.place += STEP * float(along)
        self.steps += 1
        ended = abs(self.y) > HALF or abs(self.heading) > np.pi / 2
        cut = self.steps >= LONGEST and not ended
        return Moved(self._state(), 1 - min(1.0, (self.y / HALF) ** 2), ended, cut, cut)

    def picture(self, size: int) -> Bytes:
        """The lane from above, the car at the lower edge, driving upwards."""
        ahead_P = np.linspace(SEEN, 0, size)
        fine_D = np.linspace(0, SEEN, 4 * size)
        each = fine_D[1]
        # The road's heading, and then its middle, as the car sees them.
        bends_D = np.cumsum(self.curvature(self.place + fine_D)) * each - self.heading
        middle_P = np.interp(ahead_P, fine_D, np.cumsum(np.sin(bends_D)) * each - self.y)
        left_P = np.linspace(SEEN / 2, -SEEN / 2, size)
        away_PP = np.abs(left_P - middle_P[:, None])
        lines_PPC = np.where(away_PP[..., None] > HALF + 0.3, GRASS, LINE)
        seen_PPC = np.where(away_PP[..., None] < HALF - 0.3, ROAD, lines_PPC).astype(np.uint8)
        long, wide = max(1, round(4 * size / SEEN)), max(1, round(0.9 * size / SEEN))
        seen_PPC[-long:, size // 2 - wide : size // 2 + wide] = CAR
        return seen_PPC

    def carried(self) -> dict[str, Any]:
        return {
            "seed": self.seed, "y": self.y, "heading": self.heading, "place": self.place, "steering": self.steering,
            "steps": self.steps,
        }  # fmt: skip

    def restore(self, carried: dict[str, Any]) -> Floats:
        self.reset(int(carried["seed"]))
        for name in ("y", "heading", "place", "steering", "steps"):
            setattr(self, name, carried[name])
        return self._state()

    def close(self) -> None:
        pass
