"""A training as a picture: what its log has over its steps, a panel a value, several runs in one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.errors import InputError
from headway.explore.canvas import (
    HAIRLINE,
    INK,
    QUIET,
    check_path,
    drawable,
    families,
    inches,
    new_figure,
    save,
    write,
)
from headway.train.history import KINDS, Curve, History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

# Okabe and Ito (2008), which nearly everybody can tell apart; without their yellow, too light on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))  # once all colours are taken
LONGEST_NAME = 60
PALE = {"linewidth": 1.0, "alpha": 0.55}
FEW = 50  # points up to which each is marked
PEAK = 10  # times the middle value

# Inches.
WIDTH, UPPER, LOWER, ALONE = 10.0, 2.9, 1.7, 4.2
ACROSS, DOWN, ABOVE, BESIDE = 0.75, 0.75, 0.45, 0.1
LETTER, SWATCH = 0.085, 0.62


@dataclass(frozen=True)
class Panel:
    """One value over the steps.

    large: it stands in the upper row. highest: its highest point is marked. from_zero: the axis begins there.
    wide: a logarithmic axis where one peak would press all else down.
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
    path = check_path(path)
    panels = _choose(runs, value)
    large, small = ([panel for panel in panels if panel.large == size] for size in (True, False))
    rows = [(row, height) for row, height in ((large, UPPER), (small, LOWER)) if row]
    if len(rows) == 1:
        rows = [(panels, ALONE)]
    tall = sum(height for _, height in rows) + DOWN * (len(rows) - 1)
    figure = new_figure(WIDTH, tall)
    last_step = max(history.last_step or 0 for history in runs.values())
    bottom = tall
    for row, height in rows:
        bottom -= height
        wide = (WIDTH - ACROSS * (len(row) - 1)) / len(row)
        for column, panel in enumerate(row):
            axes = figure.add_axes(inches(figure, column * (wide + ACROSS), bottom, wide, height))
            _draw(axes, panel, list(runs.values()))
            _dress(axes, panel, last_step, height)
            if row is rows[-1][0]:
                axes.set_xlabel("step", loc="right", fontsize=8, color=QUIET, family=list(families()), labelpad=1)
        bottom -= DOWN
    _name(figure, list(runs))
    return save(figure, path)


def _choose(runs: Mapping[str, History], value: str | None) -> list[Panel]:
    known = list(dict.fromkeys(name for history in runs.values() for name in history.names))
    if not known:
        raise InputError(f"nothing to draw: {', '.join(runs) or 'no run'} has not logged a step yet")
    if value is None:
        return [panel for panel in PANELS if panel.name in known] or [Panel(known[0], known[0])]
    if value not in known:
        raise InputError(f"no value '{value}' was logged; there is: {', '.join(known)}")
    named = {panel.name: panel for panel in PANELS}
    return [named.get(value) or Panel(value, value.replace("_", " "))]


def _dress(axes: "Axes", panel: Panel, last_step: int, height: float) -> None:
    """A title at the upper left, light lines across, numbers that can be read, and nothing else."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for side, spine in axes.spines.items():
        spine.set(visible=side == "bottom", color=HAIRLINE, linewidth=0.8)
    axes.grid(axis="y", color=HAIRLINE, linewidth=0.6, alpha=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8, labelcolor=QUIET, labelfontfamily=list(families()))
    plain = FuncFormatter(lambda number, _: f"{number:,.6g}")
    for axis, is_step in ((axes.xaxis, True), (axes.yaxis, False)):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=is_step))
    axes.xaxis.set_major_formatter(plain)
    axes.set_xlim(0, max(last_step, 1) * 1.02)
    title, values = panel.title, _finite(axes)
    if not values.size:
        axes.set_yticks([])
        write(axes, 0.5, 0.5, "no value is a finite number", 8, QUIET, transform=axes.transAxes, ha="center")
    elif panel.wide and values.min() > 0 and values.max() > PEAK * np.median(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=7))
        axes.yaxis.set_minor_locator(NullLocator())
        title += " (log scale)"
    elif panel.from_zero and values.max() > 0:
        axes.set_ylim(min(0, values.min()), 1.08 * values.max())
    axes.yaxis.set_major_formatter(plain)
    write(axes, 0, 1 + BESIDE / height, title, 10, transform=axes.transAxes, va="bottom")


def _finite(axes: "Axes") -> np.ndarray:
    """All values of all curves that can be drawn."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()])
    return values[np.isfinite(values)]


def _draw(axes: "Axes", panel: Panel, runs: Sequence[History]) -> None:
    """Training as a thin pale line where validation stands beside it; a curve that is not a number has a gap."""
    kinds = [kind for kind in KINDS if any(history.curve(kind, panel.name) for history in runs)]
    for number, history in enumerate(runs):
        for kind in kinds:
            pale = kind == "train" and len(kinds) > 1
            _line(axes, history.curve(kind, panel.name), number, marked=kind == "validation", pale=pale)
        best = history.best(panel.name) if panel.highest else None
        if best is not None:
            axes.plot(*best, marker="o", markersize=8, markerfacecolor="none", markeredgecolor=_colour(number))
            if len(runs) == 1:
                _label(axes, best, f"{best[1]:.2f}")
    if len(kinds) > 1:
        styles = (PALE, {"linewidth": 1.6})
        _legend(axes, ("training", "validation"), [{"color": QUIET} | style for style in styles], 8, loc="upper right")


def _line(axes: "Axes", curve: Curve, number: int, *, marked: bool, pale: bool) -> None:
    if not curve:
        return
    steps, values = np.array(curve, dtype=np.float64).T
    values[~np.isfinite(values)] = np.nan
    style: dict[str, Any] = {"color": _colour(number), "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}
    style |= PALE if pale else {"linewidth": 1.6 if marked else 1.1}
    if marked and len(steps) <= FEW:
        style |= {"marker": "o", "markersize": 3}
    axes.plot(steps, values, solid_joinstyle="round", **style)
    there = np.pad(np.isfinite(values), 1)
    alone = there[1:-1] & ~there[:-2] & ~there[2:]  # no line leads there
    axes.plot(steps[alone], values[alone], "o", markersize=3, color=style["color"], alpha=style.get("alpha"))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _label(axes: "Axes", point: tuple[int, float], text: str) -> None:
    """A number above the highest point, where nothing can be in its way."""
    axes.annotate(
        text, point, (0, 8), textcoords="offset points", ha="center", fontsize=8, color=INK, family=list(families())
    )
    axes.margins(y=0.12)


def _name(figure: "Figure", names: Sequence[str]) -> None:
    """One run as a title, several as a legend above all panels."""
    tall = figure.get_size_inches()[1]
    shown = [name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :] for name in names]
    if len(shown) == 1:
        write(figure, 0, 1 + ABOVE / tall, shown[0], 12, va="bottom")
        return
    columns = max(1, int(WIDTH / (SWATCH + LETTER * max(map(len, shown)))))
    styles = [
        {"color": _colour(number), "linewidth": 2.2, "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}
        for number in range(len(shown))
    ]
    _legend(figure, shown, styles, 9.5, loc="lower left", bbox_to_anchor=(0, 1 + ABOVE / tall), ncols=columns)


def _legend(place: Any, names: Sequence[str], styles: Sequence[dict[str, Any]], size: float, **more: Any) -> None:
    from matplotlib.lines import Line2D

    bare: dict[str, Any] = {"frameon": False, "borderaxespad": 0, "borderpad": 0}
    handles = [Line2D([], [], **style) for style in styles]
    legend: Legend = place.legend(handles, ["·"] * len(names), fontsize=size, **bare, **more)
    # Set afterwards: a legend leaves out names that begin with an underscore, and reads `$` as mathematics.
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set(text=drawable(name), color=INK, family=list(families()), parse_math=False)
