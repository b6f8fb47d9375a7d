"""Votes as a picture: which pairs know something, the masks that choose them, and what is left of the votes.

V words, R rows shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.errors import InputError
from headway.explore.plots import ACCENT, HAIRLINE, INK, QUIET, check_path, heat, inches, new_figure, save, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches.
CELL, LABEL, GAP, ABOVE, BAR = 0.27, 0.85, 0.5, 0.95, 0.85
SHORTEST = 0.02  # of a bar, so that none at all still shows a line


def votes_picture(
    table_RV: np.ndarray,
    mask_VV: np.ndarray,
    words: Sequence[str],
    current: str,
    votes: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]],
    path: str | Path,
) -> Path:
    """Three panels: the votes of each earlier word with `current` (values), the masks of all words stacked (keys) with
    the row that `current` pulls out (query), and under each beginning its votes before and after the mask."""
    path = check_path(path)
    if table_RV.shape != mask_VV.shape or table_RV.shape != (len(words), len(words)):
        raise InputError(f"votes of shape {table_RV.shape} and masks of shape {mask_VV.shape} for {len(words)} words")
    named = [column for column in range(len(words)) if table_RV[:, column].any()]
    tall, row = len(words) * CELL, words.index(current)
    wide_table, wide_mask, wide_bars = len(named) * 2 * CELL, len(words) * CELL, 2.6
    left_mask = LABEL + wide_table + GAP + LABEL
    left_bars = left_mask + wide_mask + 2 * GAP
    figure = new_figure(left_bars + wide_bars, tall + ABOVE)
    place = inches(figure, LABEL, 0, wide_table, tall)
    _table(figure, place, table_RV[:, named], [words[column] for column in named], words)
    _title(figure, 0, tall, f"votes of (word … {current})", "what each pair has seen come next")
    _masks(figure, inches(figure, left_mask, 0, wide_mask, tall), mask_VV, words, row)
    _title(
        figure, left_mask - LABEL, tall, "masks, stacked: keys", f"query: the one-hot of “{current}” pulls its row out"
    )
    each = tall / max(len(votes), 1)
    for number, (beginning, both) in enumerate(votes.items()):
        bottom = tall - (number + 1) * each
        _bars(figure, inches(figure, left_bars, bottom, wide_bars, each * BAR), beginning, both)
    _title(figure, left_bars, tall, "votes", "grey: of all words, orange: of those that the mask leaves")
    return save(figure, path)


def _grid(figure: Figure, place: tuple[float, float, float, float], cells: np.ndarray) -> Axes:
    axes = figure.add_axes(place)
    heat(axes, cells, high=1.0, line=1.2)
    return axes


def _labels(axes: Axes, beside: Sequence[str], above: Sequence[str], strong: int | None = None) -> None:
    for row, word in enumerate(beside):
        colour = ACCENT if row == strong else INK
        write(axes, -0.15, row + 0.5, word, 8, colour, ha="right", va="center_baseline")
    for column, word in enumerate(above):
        write(axes, column + 0.5, -0.2, word, 8, rotation=60, rotation_mode="anchor", ha="left", va="baseline")


def _table(
    figure: Figure, place: tuple[float, float, float, float], cells: np.ndarray, above: Sequence[str],
    words: Sequence[str],
) -> None:  # fmt: skip
    axes = _grid(figure, place, cells)
    _labels(axes, words, above)
    for (row, column), value in np.ndenumerate(cells):
        seen = cells[row].any()
        text = f"{value:g}" if seen else "–"
        write(
            axes, column + 0.5, row + 0.5, text, 8, "white" if value > 0.7 else INK, ha="center", va="center_baseline"
        )


def _masks(
    figure: Figure, place: tuple[float, float, float, float], cells: np.ndarray, words: Sequence[str], strong: int
) -> None:
    from matplotlib.patches import Rectangle

    axes = _grid(figure, place, cells)
    _labels(axes, words, words, strong)
    axes.add_patch(
        Rectangle((0, strong), len(words), 1, fill=False, edgecolor=ACCENT, linewidth=1.8, clip_on=False, zorder=3)
    )


def _bars(
    figure: Figure, place: tuple[float, float, float, float], beginning: str,
    both: tuple[Mapping[str, float], Mapping[str, float]],
) -> None:  # fmt: skip
    axes = figure.add_axes(place)
    candidates = sorted(both[0])
    most = max(both[0].values())
    for number, word in enumerate(candidates):
        before, after = (votes.get(word, 0.0) for votes in both)
        axes.barh(number - 0.18, max(before, SHORTEST), 0.3, color=HAIRLINE)
        axes.barh(number + 0.18, max(after, SHORTEST), 0.3, color=ACCENT)
        write(axes, before + 0.1, number - 0.18, f"{before:g}", 8, QUIET, va="center_baseline")
        write(axes, after + 0.1, number + 0.18, f"{after:g}", 8, ACCENT, va="center_baseline")
        write(axes, -0.15, number, word, 8, ha="right", va="center_baseline")
    axes.set(xlim=(0, most * 1.15), ylim=(len(candidates) - 0.4, -1.0), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    write(axes, 0, -0.75, f"{beginning} …", 7.5, QUIET, ha="left", va="center_baseline")


def _title(figure: Figure, left: float, tall: float, title: str, below: str) -> None:
    across, up = figure.get_size_inches()
    write(figure, left / across, (tall + ABOVE - 0.02) / up, title, 10, va="bottom")
    write(figure, left / across, (tall + ABOVE - 0.06) / up, below, 7.5, QUIET, va="top")
