"""What a recipe is, and how a function becomes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headway.train.run import Run

Make = Callable[[], Run]


@dataclass(frozen=True)
class Recipe:
    """A name, what it trains on what, which score it reaches where and in which time, and its run."""

    name: str
    summary: str
    reaches: str
    make: Make


RECIPES: dict[str, Recipe] = {}


def recipe(name: str, summary: str, reaches: str = "") -> Callable[[Callable[[str], Run]], Make]:
    """Make a recipe of a function from the recipe's name to its run."""

    def register(function: Callable[[str], Run]) -> Make:
        RECIPES[name] = Recipe(name, summary, reaches, partial(function, name))
        return RECIPES[name].make

    return register


def varied(run: Run, **parts: Any) -> Run:
    """The run with other parts. A part that is given as a dict keeps the settings that the dict does not name."""
    changed = {
        name: replace(getattr(run, name), **part) if isinstance(part, dict) else part for name, part in parts.items()
    }
    return replace(run, **changed)
