"""Panels of lines side by side: how the experiments on parts draw their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.explore.plots import COLOURS, DASHES, HAIRLINE, INK, QUIET, inches, legend, new_figure, save
from headway.explore.plots import write as label

WIDE, HIGH, APART = 3.7, 2.6, 0.95  # inches


@dataclass(frozen=True)
class Panel:
    """`lines`: points (x, y) by the name of the line; a y of None is a gap. `ticks`: the x that are named. `high`: what
    is above it is not shown."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float | None]]]
    along: str
    ticks: Sequence[float] = ()
    log_x: bool = True
    log_y: bool = False
    high: float | None = None


def style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}


def draw(panels: Sequence[Panel], path: Path) -> None:
    """All names of lines have one colour in all panels; they stand on the right."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    across = (WIDE + APART) * len(panels)
    figure = new_figure(across + 1.8, HIGH + 1.0)
    for at, panel in enumerate(panels):
        axes = figure.add_axes(inches(figure, 0.6 + at * (WIDE + APART), 0.5, WIDE, HIGH))
        for name, points in panel.lines.items():
            found = [(x, float("nan") if y is None else y) for x, y in sorted(dict(points).items())]
            axes.plot(*zip(*found, strict=True), linewidth=1.6, marker="o", markersize=3, **style(names.index(name)))
        if panel.log_x:
            axes.set_xscale("log", base=2)
        if panel.log_y:
            axes.set_yscale("log")
        if panel.high is not None and axes.get_ylim()[1] > panel.high:
            lowest = min(y for points in panel.lines.values() for _, y in points if y is not None)
            axes.set_ylim(lowest - 0.05 * (panel.high - lowest), panel.high)
        if panel.ticks:
            axes.set_xticks(list(panel.ticks), [f"{tick:,g}" for tick in panel.ticks])
        axes.minorticks_off()
        axes.tick_params(labelsize=7, colors=INK)
        axes.grid(color=HAIRLINE, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_xlabel(panel.along, fontsize=8, color=QUIET, loc="right")
        label(axes, 0.0, 1.04, panel.title, 9, transform=axes.transAxes)
    place = inches(figure, across, 0.5, 1.8, HIGH)
    legend(figure, names, [style(number) for number in range(len(names))], 8, loc="upper left", bbox_to_anchor=place)
    save(figure, path)
