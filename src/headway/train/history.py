"""A run's `log.jsonl` as curves over steps. Torch is not loaded."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = ("train", "validation")  # events that have a step and numbers
Curve = list[tuple[int, float]]  # (step, value), steps rising


@dataclass
class History:
    """A curve for each kind of event and name of a value; `unreadable` are the numbers of lines left out."""

    curves: dict[tuple[str, str], Curve] = field(default_factory=dict)
    unreadable: list[int] = field(default_factory=list)
    start: dict[str, Any] = field(default_factory=dict)  # the first event of the run
    data: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each part, how much there is
    seconds: float = 0.0  # of the run, up to its last event
    breakdown: dict[str, Any] = field(default_factory=dict)  # of the last score: `rows` of it `by` something

    def curve(self, kind: str, name: str) -> Curve:
        return self.curves.get((kind, name), [])

    @property
    def names(self) -> list[str]:
        """Every value there is, once, in the order of the log."""
        return list(dict.fromkeys(name for _, name in self.curves))

    @property
    def last_step(self) -> int | None:
        return max((curve[-1][0] for curve in self.curves.values()), default=None)

    def last(self, kind: str, name: str) -> float | None:
        curve = self.curve(kind, name)
        return curve[-1][1] if curve else None

    def best(self, name: str, higher_is_better: bool = True) -> tuple[int, float] | None:
        """The step and value of the best validation score; the first one where several are equal."""
        points = [point for point in self.curve("validation", name) if math.isfinite(point[1])]
        return (max if higher_is_better else min)(points, key=lambda point: point[1], default=None)

    def _add(self, event: dict[str, Any]) -> None:
        kind, step = event.get("event"), event.get("step")
        if isinstance(seconds := event.get("seconds"), int | float):
            self.seconds = float(seconds)
        if kind == "start":
            self.start = event
        if kind == "data":
            self.data[str(event.get("part"))] = event
        if kind == "breakdown":
            self.breakdown = event
        if kind not in KINDS or not isinstance(step, int):
            return
        for name, value in event.items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                point, curve = (step, float(value)), self.curves.setdefault((kind, name), [])
                # A run that was resumed does some steps again: what it wrote last counts.
                while curve and curve[-1][0] >= step:
                    curve.pop()
                curve.append(point)


def read_history(path: Path) -> History:
    """Read a log that may be written to meanwhile: an incomplete last line is ignored."""
    history = History()
    *whole, unfinished = path.read_bytes().split(b"\n")
    for number, line in enumerate([*whole, unfinished], 1):
        if not line.strip():
            continue
        try:
            history._add(json.loads(line))
        except (ValueError, AttributeError, OverflowError, RecursionError):  # not JSON, or not an object
            if number <= len(whole):
                history.unreadable.append(number)
    return history
