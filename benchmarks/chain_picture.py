"""A Markov chain as a graph: words from left to right, an arrow for each step that was counted, its share on it.

V words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.errors import InputError
from headway.explore.plots import ACCENT, INK, QUIET, check_path, inches, new_figure, save, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Inches between columns and between the words of one, and around all.
ACROSS, DOWN, MARGIN, TITLE = 1.35, 0.62, 0.5, 0.35
BEND = 0.45  # of an arrow that leaps over a column, so that it passes by what stands there


def chain_picture(chains: Mapping[str, tuple[np.ndarray, Sequence[str]]], path: str | Path) -> Path:
    """Draw chains one below the other, each a matrix of p(next word | word) under its title."""
    path = check_path(path)
    places = [_places(*_checked(table_VV, words)) for table_VV, words in chains.values()]
    wide = max(max(x for x, _ in xy) for xy in places) * ACROSS + 2 * MARGIN
    heights = [max(1.0, 2 * max(abs(y) for _, y in xy)) * DOWN + 2 * MARGIN + TITLE for xy in places]
    figure = new_figure(wide, sum(heights))
    top = sum(heights)
    for (title, (table_VV, words)), xy, height in zip(chains.items(), places, heights, strict=True):
        axes = figure.add_axes(inches(figure, 0, top - height, wide, height - TITLE))
        axes.set(xlim=(-MARGIN, wide - MARGIN), ylim=(-(height - TITLE) / 2, (height - TITLE) / 2))
        axes.axis("off")
        _draw(axes, np.asarray(table_VV), words, [(x * ACROSS, y * DOWN) for x, y in xy])
        write(figure, 0, (top - 0.05) / sum(heights), title, 10, va="top")
        top -= height
    return save(figure, path)


def _checked(table_VV: np.ndarray, words: Sequence[str]) -> tuple[np.ndarray, Sequence[str]]:
    if np.shape(table_VV) != (len(words), len(words)):
        raise InputError(f"a matrix of shape {np.shape(table_VV)} is no chain of {len(words)} words")
    return np.asarray(table_VV), words


def _places(table_VV: np.ndarray, words: Sequence[str]) -> list[tuple[int, float]]:
    """A column behind every word that leads here (as far as there is no circle), the words of one spread around 0."""
    column = np.zeros(len(words), int)
    for _ in words:  # each round moves words one further; a circle would go on for ever
        for word in range(len(words)):
            before = column[(table_VV[:, word] > 0) & (np.arange(len(words)) != word)]
            column[word] = min(max([column[word], *(before + 1)]), len(words) - 1)
    mates = [np.flatnonzero(column == c) for c in column]
    return [
        (int(c), (len(mate) - 1) / 2 - int(np.flatnonzero(mate == word)[0]))
        for word, (c, mate) in enumerate(zip(column, mates, strict=True))
    ]


def _draw(axes: Axes, table_VV: np.ndarray, words: Sequence[str], xy: list[tuple[float, float]]) -> None:
    for start, end in np.argwhere(table_VV > 0):
        (x0, y0), (x1, y1) = xy[start], xy[end]
        bend = 0.0 if x1 - x0 < 1.5 * ACROSS else BEND
        doubtful = table_VV[start, end] < 1
        colour = ACCENT if doubtful else QUIET
        line = {
            "arrowstyle": "-|>", "color": colour, "linewidth": 0.8 + 1.6 * float(table_VV[start, end]),
            "shrinkA": 24, "shrinkB": 24, "connectionstyle": f"arc3,rad={bend}",
        }  # fmt: skip
        axes.annotate("", (x1, y1), (x0, y0), arrowprops=line)
        if doubtful:
            # The middle of the curve lies half of its bend beside the straight line.
            x, y = (x0 + x1) / 2 + bend / 2 * (y1 - y0), (y0 + y1) / 2 - bend / 2 * (x1 - x0)
            write(axes, x, y + 0.06, f"{table_VV[start, end]:g}", 8, colour, ha="center", va="bottom")
    for (x, y), word in zip(xy, words, strict=True):
        write(axes, x, y, word, 9, INK, ha="center", va="center")
