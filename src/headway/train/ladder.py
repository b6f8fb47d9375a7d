"""A ladder of small runs for a scaling law: budgets of operations, and for each some sizes around the best share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from headway.errors import refuse
from headway.evaluate.scaling import OPERATIONS

TOKENS = 20.0  # of a weight, where the sizes of a budget have their middle (Hoffmann et al. 2022)
BUDGETS = (1 / 16, 1 / 4, 1.0)  # shares of the largest
SIZES = (0.35, 0.7, 1.4, 2.8)  # of the middle
STEP, HEAD = 8, 32  # widths are multiples of it; the least width of a head
WIDEST = 4096
SHORTEST = 100  # steps that a run must have: in fewer it learns little but its rate's rise


@dataclass(frozen=True)
class Shape:
    """A decoder: depth grows with width. `head`: the width of its heads (0: any). `inner`: of its feed-forward networks
    (0: as the family has it)."""

    layers: int
    width: int
    head: int = 0
    inner: int = 0

    @property
    def weights(self) -> int:
        """Of its blocks: attention 4D², feed-forward 8D²."""
        return 12 * self.layers * self.width**2

    @property
    def heads(self) -> int:
        """As many as are at least 32 wide, or as wide as they have to be."""
        if self.head:
            return self.width // self.head
        return max(heads for heads in range(1, max(1, self.width // HEAD) + 1) if self.width % heads == 0)

    @property
    def settings(self) -> dict[str, int]:
        sizes = {"model.layers": self.layers, "model.width": self.width, "model.heads": self.heads}
        return sizes | ({"model.inner": self.inner} if self.inner else {})


def shape_of(weights: float, head: int = 0) -> Shape:
    """The shape whose number of weights is nearest."""
    step = head or STEP
    every = (Shape(max(2, round(width / 32)), width, head) for width in range(step, WIDEST + 1, step))
    return min(every, key=lambda shape: abs(math.log(shape.weights / weights)))


@dataclass(frozen=True)
class Rung:
    """A run: its shape, how many steps, and its rate; `more`: settings that stand behind all others."""

    shape: Shape
    steps: int
    batch: int
    peak: float
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.shape.layers}x{self.shape.width}-{self.steps}"

    @property
    def tokens(self) -> int:
        return self.steps * self.batch

    @property
    def operations(self) -> float:
        return float(OPERATIONS * self.shape.weights * self.tokens)

    @property
    def settings(self) -> dict[str, Any]:
        steps = {"engine.steps": self.steps, "schedule.peak": self.peak, "schedule.warmup": max(1, self.steps // 20)}
        often = {"validation.every": self.steps, "validation.score_every": self.steps, "engine.snapshot": self.steps}
        return self.shape.settings | steps | often | {"validation.patience": 0}


def rung_of(run: Any, weights: float, operations: float) -> Rung:
    """Of about so many weights, for so many operations; its rate as `engine.parametrisation` says."""
    known = {field.name: getattr(run.model, field.name) for field in fields(run.model)}
    none = f"the family '{run.model.name}' has no layers, width and heads that can be scaled"
    refuse(not {"layers", "width", "heads"} <= set(known), none)
    width, follows = known["width"], run.engine.parametrisation
    head = follows.head_width(width, known["heads"])
    shape, batch = shape_of(weights, head), run.task.tokens_a_step(run)
    shape = replace(shape, inner=round(known.get("inner", 0) * shape.width / width))
    steps = round(operations / (OPERATIONS * shape.weights * batch))
    peak = follows.peak(run.schedule.peak, width, shape.width)
    base = follows.chosen_at(width)
    more = (f"engine.parametrisation.base={base}",) if base else ()
    return Rung(shape, steps, batch, float(f"{peak:.3g}"), more)


def rungs(run: Any, operations: float) -> list[Rung]:
    """Twelve runs of at most so many operations each, the cheapest first."""
    found = dict[str, Rung]()
    for share in BUDGETS:
        budget = share * operations
        middle = math.sqrt(budget / (OPERATIONS * TOKENS))
        for size in SIZES:
            rung = rung_of(run, size * middle, 0.98 * budget)
            found[rung.name] = rung
    fewest = min(rung.steps for rung in found.values())
    few = f"{operations:g} operations are too few for batches of {run.engine.batch} tokens"
    refuse(fewest < SHORTEST, f"{few}: a run would have {fewest} steps. Give more, or a smaller --batch-size")
    return sorted(found.values(), key=lambda rung: (round(math.log2(rung.operations)), rung.shape.weights))
