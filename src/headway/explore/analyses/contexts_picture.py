"""One word in many contexts as a picture: its occurrences in the plane at some layers, and how alike they are at all.

N occurrences.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.explore.analyses.analysis import Table
from headway.explore.analyses.charts import quiet_axes
from headway.explore.canvas import HAIRLINE, INK, QUIET, check_path, inches, new_figure, save, write
from headway.explore.curves import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Inches.
PANEL, BETWEEN, PLOT, ABOVE, NAMES = 2.3, 0.18, 1.7, 0.55, 0.5
PANELS = 4
LINE = 0.09  # of the axis of cosines, so high is a line of text
CURVES = (
    ("within", "one sense", "solid"),
    ("across", "different senses", (0, (5, 2))),
    ("any two", "any two pieces", (0, (1.5, 1.5))),
)


def contexts_picture(table: Table, path: str | Path) -> Path:
    """Panels of the first layer, the last, and some between; a colour a sense."""
    path = check_path(path)
    points_LN2 = np.array(table.more["points"])
    senses = list(dict.fromkeys(table.more["senses"]))
    shown = sorted({round(at) for at in np.linspace(0, len(points_LN2) - 1, PANELS)})
    width = len(shown) * (PANEL + BETWEEN) - BETWEEN
    height = PANEL + ABOVE + PLOT + NAMES
    figure = new_figure(width, height)
    for column, at in enumerate(shown):
        place = inches(figure, column * (PANEL + BETWEEN), PLOT + ABOVE, PANEL, PANEL)
        axes = figure.add_axes(place)
        _scatter(axes, points_LN2[at], [senses.index(sense) for sense in table.more["senses"]])
        layer = table.column("layer")[at]
        write(axes, 0, 1.02, "input" if layer < 0 else f"layer {layer}", 9, QUIET, transform=axes.transAxes)
    across = 0.0
    for number, sense in enumerate(senses):
        write(figure, across / width, 1, f"● {sense or 'all'}", 9, COLOURS[number % len(COLOURS)], va="top")
        across += 0.35 + 0.08 * max(3, len(sense))
    _similarities(figure.add_axes(inches(figure, 0.35, 0, width - 1.6, PLOT)), table)
    return save(figure, path)


def _scatter(axes: Axes, points_N2: Any, sense_N: list[int]) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(color=HAIRLINE, linewidth=0.8)
    axes.scatter(
        points_N2[:, 0],
        points_N2[:, 1],
        s=26,
        c=[COLOURS[one % len(COLOURS)] for one in sense_N],
        alpha=0.8,
        linewidths=0,
    )
    axes.margins(0.12)


def _similarities(axes: Axes, table: Table) -> None:
    quiet_axes(axes, "layer")
    axes.grid(visible=False, axis="x")
    layers = table.column("layer")
    ends = []
    for column, name, dash in CURVES:
        values = [np.nan if one is None else one for one in table.column(column)]
        if np.isfinite(values).any():
            colour = QUIET if column == "any two" else INK
            axes.plot(layers, values, color=colour, linestyle=dash, linewidth=1.6, marker="o", markersize=3.5)
            ends.append((values[-1], name, colour))
    lowest = -np.inf
    for value, name, colour in sorted(ends):
        lowest = max(value, lowest + LINE)  # names that would touch are moved apart
        write(axes, layers[-1] + 0.1, lowest, name, 8.5, colour, va="center")
    axes.set_xticks(layers, ["input" if layer < 0 else str(layer) for layer in layers])
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.02)
    write(axes, 0, 1.04, "mean cosine", 9, QUIET, transform=axes.transAxes)
