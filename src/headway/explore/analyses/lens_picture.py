"""What each layer would say, as a picture: places from left to right, layers from the input at the bottom upward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headway.explore.canvas import INK, QUIET, check_path, inches, new_figure, save, write
from headway.explore.picture import shades

# Inches.
CELL, TALL, BELOW = 0.74, 0.27, 0.42
LONGEST = 9  # letters that fit a cell
DARK = 0.55  # of the shades, from which on letters are white


def lens_picture(
    places: Sequence[str], said: Sequence[Sequence[str]], p: Sequence[Sequence[float]], path: str | Path
) -> Path:
    """said, p: for each layer (the input first) and place the likeliest entry, and the probability of the answer that
    the whole model gives, which is the shade."""
    path = check_path(path)
    p_LT = np.array(p, dtype=np.float64)
    layers, length = p_LT.shape
    figure = new_figure(length * CELL, layers * TALL + BELOW)
    axes = figure.add_axes(inches(figure, 0, BELOW, length * CELL, layers * TALL))
    axes.pcolormesh(p_LT, cmap=shades(), vmin=0, vmax=1, edgecolors="white", linewidth=0.8)
    axes.set(xlim=(0, length), ylim=(0, layers))
    axes.axis("off")
    for layer, words in enumerate(said):
        name = f"layer {layer - 1}" if layer else "input"
        write(axes, -0.1, layer + 0.5, name, 8, QUIET, ha="right", va="center_baseline")
        for place, word in enumerate(words):
            colour = "white" if p_LT[layer, place] > DARK else INK if word == said[-1][place] else QUIET
            write(axes, place + 0.5, layer + 0.5, _cut(word), 7.5, colour, ha="center", va="center_baseline")
    for place, word in enumerate(places):
        write(axes, place + 0.5, -0.75, _cut(word), 8.5, INK, ha="center", va="center_baseline")
    write(axes, -0.1, -0.75, "reads", 8, QUIET, ha="right", va="center_baseline")
    title = "What each layer would say; the darker, the more probable the last layer's answer is there"
    write(axes, 0, layers + 0.35, title, 9, INK, va="bottom")
    return save(figure, path)


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
