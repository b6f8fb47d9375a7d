"""The two pictures that most analyses draw: a value for every head as shades, and values by layer as lines.

L layers, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.explore.canvas import ACCENT, HAIRLINE, INK, QUIET, check_path, inches, new_figure, save, write
from headway.explore.curves import COLOURS, DASHES
from headway.explore.picture import shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches.
CELL, LEAST_ACROSS, LEAST_DOWN, MOST = 0.24, 1.25, 0.5, 2.6
BETWEEN, ABOVE, TOP = 0.55, 0.72, 0.3
WIDTH, HEIGHT = 6.4, 3.4
FEW_CELLS = 64  # up to which each has its number


@dataclass(frozen=True)
class Grid:
    """A value for every head: layers run downward, heads to the right; NaN is left blank.

    high: the darkest (None: the largest of these). lowest: low values are the good ones, and dark. best: the (layer,
    head) to outline, as numbers of rows and columns. layers, heads: their numbers, where they are not 0, 1, 2, …
    """

    title: str
    values_LH: NDArray[Any]
    low: float = 0.0
    high: float | None = None
    lowest: bool = False
    best: tuple[int, int] | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int | str, ...] | None = None


def grids_picture(rows: Sequence[Sequence[Grid]], path: str | Path, *, title: str = "") -> Path:
    """Grids beside and below one another."""
    path = check_path(path)
    sizes = [[_size(grid) for grid in row] for row in rows]
    across = max(sum(wide + BETWEEN for wide, _ in row) for row in sizes) - BETWEEN
    down = sum(max(tall for _, tall in row) + ABOVE for row in sizes) - ABOVE + TOP
    figure = new_figure(across, down)
    bottom = down + ABOVE - TOP
    for row, row_sizes in zip(rows, sizes, strict=True):
        bottom -= max(tall for _, tall in row_sizes) + ABOVE
        left = 0.0
        for grid, (wide, tall) in zip(row, row_sizes, strict=True):
            lift = max(other for _, other in row_sizes) - tall
            _draw(figure.add_axes(inches(figure, left, bottom + lift, wide, tall)), grid, first=left == 0)
            left += wide + BETWEEN
    _title(figure, title)
    return save(figure, path)


def layers_picture(
    curves: Mapping[str, Sequence[float | None]], path: str | Path, *, title: str = "", value: str = "",
    layers: Mapping[str, Sequence[int]] | None = None, from_zero: bool = True, below: str = "layer",
    ticks: Mapping[int, str] | None = None,
) -> Path:  # fmt: skip
    """Lines over the layers, each with its name at its end. `layers`: of a curve, where they are not 0, 1, 2, …

    `ticks`: names of places that are no number of a layer.
    """
    path = check_path(path)
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.add_axes((0, 0, 1, 1))
    ends = []
    for number, (name, values) in enumerate(curves.items()):
        places = list(layers[name]) if layers is not None else list(range(len(values)))
        numbers = np.array([np.nan if one is None else one for one in values], dtype=np.float64)
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
        axes.plot(places, numbers, color=colour, linestyle=dash, linewidth=1.8, marker="o", markersize=4)
        seen = np.flatnonzero(np.isfinite(numbers))
        if seen.size:
            ends.append((places[seen[-1]], float(numbers[seen[-1]]), name, colour))
    quiet_axes(axes, below)
    _tick(axes, ticks or {})
    if from_zero:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    _name_ends(axes, ends)
    if value:
        write(axes, 0, 1.03, value, 9, QUIET, transform=axes.transAxes)
    _title(figure, title, above=0.32 if value else 0.1)
    return save(figure, path)


def quiet_axes(axes: Axes, below: str = "") -> None:
    """A grid of hairlines and quiet numbers, no frame."""
    axes.tick_params(colors=QUIET, labelsize=8, length=0)
    axes.grid(color=HAIRLINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    if below:
        axes.set_xlabel(below, loc="right", fontsize=9, color=QUIET)


def _size(grid: Grid) -> tuple[float, float]:
    layers, heads = grid.values_LH.shape
    wide = float(np.clip(heads * CELL, LEAST_ACROSS, MOST))
    return wide, float(np.clip(layers * CELL, LEAST_DOWN, MOST))


def _draw(axes: Axes, grid: Grid, first: bool) -> None:
    values_LH = np.asarray(grid.values_LH, dtype=np.float64)
    layers, heads = values_LH.shape
    finite = values_LH[np.isfinite(values_LH)]
    high = grid.high if grid.high is not None else (float(finite.max()) if finite.size else 1.0)
    high = high if high > grid.low else grid.low + 1.0
    axes.pcolormesh(values_LH, cmap=shades(grid.lowest), vmin=grid.low, vmax=high, edgecolors="white", linewidth=0.7)
    axes.set(xlim=(0, heads), ylim=(layers, 0))
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=QUIET, labelsize=6.5, length=0, pad=2)
    for axis, count, numbers in ((axes.xaxis, heads, grid.heads), (axes.yaxis, layers, grid.layers)):
        step = -(-count // 12)
        shown = range(0, count, step)
        axis.set_ticks([at + 0.5 for at in shown], [str(numbers[at] if numbers else at) for at in shown])
    if values_LH.size <= FEW_CELLS:
        for (layer, head), one in np.ndenumerate(values_LH):
            if np.isfinite(one):
                x, y, size = head + 0.5, layer + 0.52, min(6.5, 22 * _size(grid)[0] / heads)  # room for four signs
                dark = ((one - grid.low) / (high - grid.low) > 0.55) != grid.lowest
                colour = "white" if dark else INK
                write(axes, x, y, _short(float(one)), size, colour, ha="center", va="center_baseline")
    if grid.best is not None:
        from matplotlib.patches import Rectangle

        layer, head = grid.best
        axes.add_patch(
            Rectangle((head, layer), 1, 1, fill=False, edgecolor=ACCENT, linewidth=1.6, zorder=3, clip_on=False)
        )
    axes.set_title(grid.title, fontsize=8.5, color=INK, loc="left", pad=5)
    if first:
        axes.set_ylabel("layer", fontsize=7.5, color=QUIET, labelpad=2)
    axes.set_xlabel("head", fontsize=7.5, color=QUIET, labelpad=1)


def _short(value: float) -> str:
    """`.42`, `3.1`, `12`."""
    if abs(value) < 0.995:
        return f"{value:.2f}".replace("0.", ".")
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"


def _tick(axes: Axes, names: Mapping[int, str]) -> None:
    """Whole numbers only, at most a dozen, and the names."""
    low, high = (int(np.rint(end)) for line in [axes.dataLim] for end in (line.x0, line.x1))
    numbers = [at for at in range(low, high + 1) if at not in names]
    shown = [*numbers[:: -(-len(numbers) // 12) or 1], *(at for at in names if low <= at <= high)]
    axes.set_xticks(shown, [names.get(at, str(at)) for at in shown])


def _name_ends(axes: Axes, ends: list[tuple[int, float, str, str]]) -> None:
    """Names beside the ends of their lines, moved apart where they would touch."""
    low, high = axes.get_ylim()
    gap, last = (high - low) * 0.06, -np.inf
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        last = max(y, last + gap)
        axes.annotate(name, (x, y), (8, (last - y) / (high - low) * HEIGHT * 72), textcoords="offset points",
                      fontsize=9, color=colour, va="center", parse_math=False)  # fmt: skip


def _title(figure: Figure, title: str, above: float = 0.1) -> None:
    if title:
        write(figure, 0, 1 + above / figure.get_size_inches()[1], title, 11, va="bottom")
