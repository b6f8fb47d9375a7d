"""Training runs as pictures: what a log has over its steps, and runs compared by their scores and their cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.errors import refuse
from headway.explore import plots
from headway.explore.plots import COLOURS, HAIRLINE, INK, QUIET, Bar, write
from headway.train.history import KINDS, Curve, History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headway.train.comparison import Entry

LONGEST_NAME = 60
PALE = {"linewidth": 1.0, "alpha": 0.55}
FEW = 50  # points up to which each is marked
PEAK = 10  # times the median: above it a logarithmic axis
APART = 3  # times the smallest score: on a linear scale one outlier would squeeze the others together

# Inches.
WIDTH, UPPER, LOWER, ALONE = 10.0, 2.9, 1.7, 4.2
ACROSS, DOWN, ABOVE, BESIDE = 0.75, 0.75, 0.45, 0.1
LETTER, SWATCH = 0.085, 0.62
ROW, LEFT, GAP = 0.34, 1.9, 0.5


@dataclass(frozen=True)
class Panel:
    """One value over the steps.

    large: in the upper row. highest: its highest point is marked. from_zero: the axis begins there. wide: a
    logarithmic axis where one peak would squeeze the rest.
    """

    name: str
    title: str
    large: bool = False
    highest: bool = False
    from_zero: bool = False
    wide: bool = False


PANELS = (
    Panel("loss", "loss", large=True),
    Panel("bleu", "validation BLEU", large=True, highest=True),
    Panel("rate", "learning rate", from_zero=True),
    Panel("gradient", "gradient norm", from_zero=True, wide=True),
    Panel("tokens_per_second", "tokens/s", from_zero=True),
)


def curves_picture(runs: Mapping[str, History], path: str | Path, *, value: str | None = None) -> Path:
    """Draw the runs, each under its name, to `path` as PNG, SVG or PDF; with `value`, that one alone."""
    panels = _choose(runs, value)
    large, small = ([panel for panel in panels if panel.large == size] for size in (True, False))
    rows = [(row, height) for row, height in ((large, UPPER), (small, LOWER)) if row]
    if len(rows) == 1:
        rows = [(panels, ALONE)]
    tall = sum(height for _, height in rows) + DOWN * (len(rows) - 1)
    figure = plots.new_figure(WIDTH, tall)
    last_step = max(history.last_step or 0 for history in runs.values())
    bottom = tall
    for row, height in rows:
        bottom -= height
        wide = (WIDTH - ACROSS * (len(row) - 1)) / len(row)
        for column, panel in enumerate(row):
            axes = plots.panel(figure, column * (wide + ACROSS), bottom, wide, height)
            _draw(axes, panel, list(runs.values()))
            _dress(axes, panel, last_step, height)
            plots.quiet(axes, "y", below="step" if row is rows[-1][0] else "")
            axes.spines["bottom"].set(visible=True, color=HAIRLINE, linewidth=0.8)
        bottom -= DOWN
    _name(figure, list(runs))
    return plots.save(figure, path)


def _choose(runs: Mapping[str, History], value: str | None) -> list[Panel]:
    known = list(dict.fromkeys(name for history in runs.values() for name in history.names))
    refuse(not known, f"nothing to draw: {', '.join(runs) or 'no run'} has not logged a step yet")
    if value is None:
        return [panel for panel in PANELS if panel.name in known] or [Panel(known[0], known[0])]
    refuse(value not in known, f"no value '{value}' was logged; there is: {', '.join(known)}")
    named = {panel.name: panel for panel in PANELS}
    return [named.get(value) or Panel(value, value.replace("_", " "))]


def _dress(axes: Axes, panel: Panel, last_step: int, height: float) -> None:
    """A title at the upper left, and axes that fit the values."""
    from matplotlib.ticker import MaxNLocator

    for axis, is_step in ((axes.xaxis, True), (axes.yaxis, False)):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=is_step))
    plots.plain_numbers(axes.xaxis)
    axes.set_xlim(0, max(last_step, 1) * 1.02)
    # All values of all curves that can be drawn.
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()])
    values = values[np.isfinite(values)]
    title, multiples = panel.title, ()  # type: str, tuple[int, ...]
    if not values.size:
        axes.set_yticks([])
        write(axes, 0.5, 0.5, "no value is a finite number", 8, QUIET, transform=axes.transAxes, ha="center")
    elif panel.wide and values.min() > 0 and values.max() > PEAK * np.median(values):
        axes.set_yscale("log")
        title, multiples = f"{title} (log scale)", (1, 2, 5)
    elif panel.from_zero and values.max() > 0:
        axes.set_ylim(min(0, values.min()), 1.08 * values.max())
    plots.plain_numbers(axes.yaxis, multiples)
    write(axes, 0, 1 + BESIDE / height, title, 10, transform=axes.transAxes, va="bottom")


def _draw(axes: Axes, panel: Panel, runs: Sequence[History]) -> None:
    """Training as a thin pale line where validation stands beside it; a curve that is not a number has a gap."""
    kinds = [kind for kind in KINDS if any(history.curve(kind, panel.name) for history in runs)]
    for number, history in enumerate(runs):
        for kind in kinds:
            pale = kind == "train" and len(kinds) > 1
            _line(axes, history.curve(kind, panel.name), number, marked=kind == "validation", pale=pale)
        if panel.highest and (best := history.best(panel.name)):
            colour = plots.style_of(number)["color"]
            axes.plot(*best, marker="o", markersize=8, markerfacecolor="none", markeredgecolor=colour)
            if len(runs) == 1:  # a number above the highest point, where nothing can be in its way
                label: dict[str, Any] = {"ha": "center", "fontsize": 8, "color": INK, "family": list(plots.families())}
                axes.annotate(f"{best[1]:.2f}", best, (0, 8), textcoords="offset points", **label)
                axes.margins(y=0.12)
    if len(kinds) > 1:
        styles = [{"color": QUIET} | style for style in (PALE, {"linewidth": 1.6})]
        plots.legend(axes, ("training", "validation"), styles, 8, loc="upper right")


def _line(axes: Axes, curve: Curve, number: int, *, marked: bool, pale: bool) -> None:
    if not curve:
        return
    steps, values = np.array(curve, dtype=np.float64).T
    values[~np.isfinite(values)] = np.nan
    style = plots.style_of(number)
    style |= PALE if pale else {"linewidth": 1.6 if marked else 1.1}
    if marked and len(steps) <= FEW:
        style |= {"marker": "o", "markersize": 3}
    axes.plot(steps, values, solid_joinstyle="round", **style)
    there = np.pad(np.isfinite(values), 1)
    alone = there[1:-1] & ~there[:-2] & ~there[2:]  # no line leads there
    axes.plot(steps[alone], values[alone], "o", markersize=3, color=style["color"], alpha=style.get("alpha"))


def _name(figure: Figure, names: Sequence[str]) -> None:
    """One run as a title, several as a legend above all panels."""
    tall = figure.get_size_inches()[1]
    shown = [name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :] for name in names]
    if len(shown) == 1:
        write(figure, 0, 1 + ABOVE / tall, shown[0], 12, va="bottom")
        return
    columns = max(1, int(WIDTH / (SWATCH + LETTER * max(map(len, shown)))))
    styles = [plots.style_of(number) | {"linewidth": 2.2} for number in range(len(shown))]
    plots.legend(figure, shown, styles, 9.5, loc="lower left", bbox_to_anchor=(0, 1 + ABOVE / tall), ncols=columns)


def comparison_picture(entries: Sequence[Entry], path: str | Path, higher_is_better: bool = True) -> Path:
    """A row a recipe: test (or validation) score with its spread over seeds on the left, training seconds at right."""
    from headway.train.comparison import short  # which imports torch: curves are drawn without

    tall, wide = max(1.2, ROW * len(entries)), (WIDTH - LEFT - GAP) / 2
    figure = plots.new_figure(WIDTH, tall)
    tested = all(entry.test for entry in entries)
    scores = [entry.test if tested else entry.validation for entry in entries]
    better = "higher" if higher_is_better else "lower"
    title = f"{'test' if tested else 'validation'} {entries[0].figure}, {better} is better"
    finite = [value for some in scores for value in some if math.isfinite(value)] or [1.0]
    low, high = min(finite), max(finite)
    axes = plots.panel(figure, LEFT, 0, wide * 1.25, tall)
    plots.bars(axes, [_score(entry.name, some, low) for entry, some in zip(entries, scores, strict=True)], 9.5)
    # To the right of the largest there must be room for its number.
    _across(axes, title, (low / 1.15 if high > APART * low else 0, high * 1.35 or 1.0), tall)
    seconds = [statistics.median(entry.seconds) for entry in entries]
    least = max(min(seconds), 0.1) / 2
    axes = plots.panel(figure, LEFT + wide * 1.25 + GAP, 0, wide * 0.75, tall)
    plots.bars(axes, [Bar("", least, max(some, 0.1), "#a9b1b9", 4, text=f"  {short(some)}") for some in seconds])
    _across(axes, "training seconds", (least, max(*seconds, 0.1) * 3), tall)
    return plots.save(figure, path)


def breakdown_picture(entries: Sequence[Entry], path: str | Path) -> Path | None:
    """A line a recipe: the test score by what all are broken down by (the length of the source), mean over seeds. None
    where they are not, or not alike."""
    groups = {tuple((row["from"], row["to"]) for row in seed) for entry in entries for seed in entry.breakdown}
    if len(groups) != 1 or not all(entry.breakdown for entry in entries):
        return None
    names = {at: str(low) if low == high else f"{low}–{high}" for at, (low, high) in enumerate(groups.pop())}
    curves = {
        entry.name: [(at, statistics.mean(seed[at]["value"] for seed in entry.breakdown)) for at in names]
        for entry in entries
    }
    return plots.lines_picture(
        curves, path, heading=f"test {entries[0].figure} by {entries[0].by}", value=f"test {entries[0].figure}",
        names_of_x=names, below=entries[0].by,
    )  # fmt: skip


def _score(name: str, seeds: Sequence[float], lowest: float) -> Bar:
    """A dot for the mean, a line from the lowest seed to the highest, the number beside it."""
    if not all(map(math.isfinite, seeds)):
        return Bar(name, lowest, lowest, text="infinite")
    mean = statistics.mean(seeds)
    return Bar(name, min(seeds), max(seeds), COLOURS[0], 2.2, ((mean, COLOURS[0], True),), f"   {mean:,.1f}")


def _across(axes: Axes, title: str, limits: tuple[float, float], tall: float) -> None:
    """A horizontal axis, logarithmic unless it begins at 0."""
    if limits[0] > 0:
        axes.set_xscale("log")
        title += " (log scale)"
    axes.set_xlim(*limits)
    narrow = limits[1] < 30 * limits[0]
    plots.plain_numbers(axes.xaxis, () if not limits[0] else (1, 2, 3, 5) if narrow else (1,))
    plots.quiet(axes, "x")
    write(axes, 0, 1 + 0.12 / tall, title, 10, transform=axes.transAxes, va="bottom")
