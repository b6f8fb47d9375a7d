"""What a recipe is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.train.run import Run


@dataclass(frozen=True)
class Recipe:
    """A name, what it trains on what, which score it reaches where and in which time, and its run."""

    name: str
    summary: str
    reaches: str
    make: Callable[[], Run]
