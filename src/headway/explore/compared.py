"""A comparison as a picture: each recipe's score with its spread, and what it cost to get there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.explore.canvas import HAIRLINE, QUIET, check_path, families, inches, new_figure, save, write
from headway.explore.curves import COLOURS
from headway.train.comparison import Entry, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Inches.
WIDTH, ROW, LEAST, LEFT, GAP, ABOVE = 10.0, 0.34, 1.2, 1.9, 0.5, 0.12
FILLED, OPEN = COLOURS[0], COLOURS[1]
APART = 3  # times the smallest value: on an even scale one far away would press the others together
LABELLED = 1.35  # times the largest value: room on the right for the numbers


def comparison_picture(entries: Sequence[Entry], path: str | Path) -> Path:
    """A row a recipe: test (or validation) score on the left, training seconds on the right."""
    path = check_path(path)
    tall = max(LEAST, ROW * len(entries))
    figure = new_figure(WIDTH, tall)
    wide = (WIDTH - LEFT - GAP) / 2
    scores = figure.add_axes(inches(figure, LEFT, 0, wide * 1.25, tall))
    costs = figure.add_axes(inches(figure, LEFT + wide * 1.25 + GAP, 0, wide * 0.75, tall))
    tested = all(entry.test for entry in entries)
    part = "test" if tested else "validation"
    better = "lower" if entries[0].figure == "perplexity" else "higher"
    _scores(scores, [entry.test if tested else entry.validation for entry in entries])
    _bars(costs, [statistics.median(entry.seconds) for entry in entries])
    _dress(scores, f"{part} {entries[0].figure}, {better} is better", [entry.name for entry in entries], tall)
    _dress(costs, "training seconds", [""] * len(entries), tall)
    return save(figure, path)


def _scores(axes: Axes, values: Sequence[Sequence[float]]) -> None:
    """A dot for the mean, a line from the lowest seed to the highest, the number beside it."""
    finite = [value for some in values for value in some if math.isfinite(value)] or [1.0]
    smallest, largest = min(finite), max(finite)
    for row, some in enumerate(values):
        if not all(map(math.isfinite, some)):
            write(axes, smallest, row, "infinite", 8.5, QUIET, va="center")
            continue
        mean = statistics.mean(some)
        axes.plot([min(some), max(some)], [row, row], color=FILLED, linewidth=2.2, solid_capstyle="round")
        axes.plot(mean, row, "o", markersize=6, color=FILLED)
        write(axes, max(some), row, f"   {mean:,.1f}", 8.5, va="center")
    if largest > APART * smallest:
        axes.set_xscale("log")
        axes.set_xlim(smallest / 1.15, largest * LABELLED)
    else:
        axes.set_xlim(0, LABELLED * largest)


def _bars(axes: Axes, values: Sequence[float]) -> None:
    shown = [max(value, 0.1) for value in values]
    axes.set_xscale("log")
    for row, value in enumerate(shown):
        axes.plot([min(shown) / 2, value], [row, row], color=QUIET, linewidth=4, solid_capstyle="butt", alpha=0.6)
        write(axes, value, row, f"  {short(values[row])}", 8.5, va="center")
    axes.set_xlim(min(shown) / 2, max(shown) * 3)


def _dress(axes: Axes, title: str, names: Sequence[str], tall: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(axis="x", color=HAIRLINE, linewidth=0.6)
    axes.set_axisbelow(True)
    if axes.get_xscale() == "log":
        title += " (log scale)"
        narrow = axes.get_xlim()[1] < 30 * axes.get_xlim()[0]
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if narrow else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.6g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(length=0, labelsize=8, labelcolor=QUIET, labelfontfamily=list(families()))
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    # In the axes' own coordinates across, in rows down.
    beside: Any = axes.get_yaxis_transform()
    for row, name in enumerate(names):
        write(axes, -0.02, row, name, 9.5, ha="right", va="center", transform=beside)
    write(axes, 0, 1 + ABOVE / tall, title, 10, transform=axes.transAxes, va="bottom")
