"""Attention over words as a picture and as text: target words down the side, source words along the top.

Shapes: T target words, S source words, L layers, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.errors import InputError, refuse
from headway.explore import plots
from headway.explore.plots import ACCENT, HAIRLINE, note, one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headway.evaluate.alignment import Links

# Inches. A cell shrinks as the sentence grows, but never so far that its word cannot be read.
LARGEST_CELL, SMALLEST_CELL, LONGEST_SIDE = 0.42, 0.2, 11.0
LARGEST_PANEL_CELL, SMALLEST_PANEL_CELL, PANEL_SIDE = 0.3, 0.025, 1.8
SMALLEST_LABELLED_CELL = 0.11

BAR_LENGTH = 10
EIGHTHS = " ▏▎▍▌▋▊▉"


def alignment_picture(
    weights_TS: np.ndarray, source_words: Sequence[str], target_words: Sequence[str], path: str | Path, *,
    title: str | None = None, gold: Links | None = None, possible: Links | None = None,
) -> Path:  # fmt: skip
    """A heat map of attention over words, written to `path` as PNG, SVG or PDF, by its suffix.

    `gold` are the sure links (source, target), drawn as squares; `possible` the less certain ones, as rings.
    """
    weights_TS = _check_weights(weights_TS, source_words, target_words, axes=2)
    sure = frozenset(gold or ())
    rings = frozenset(possible or ()) - sure
    for source, target in sorted(sure | rings):
        if not (0 <= source < len(source_words) and 0 <= target < len(target_words)):
            raise InputError(
                f"link {source}-{target} is outside of {len(source_words)} source and {len(target_words)} target "
                "words; links count from 0, source first"
            )
    cell = float(np.clip(LONGEST_SIDE / max(weights_TS.shape), SMALLEST_CELL, LARGEST_CELL))
    figure = plots.new_figure(len(source_words) * cell, len(target_words) * cell)
    axes = figure.add_axes((0, 0, 1, 1))
    strongest = float(weights_TS.max()) or 1.0
    plots.heat(axes, weights_TS, high=strongest, line=3 * cell)
    slant = 45 if cell > 0.3 else 60
    plots.label_words(axes, source_words, target_words, size=min(11.0, 42 * cell), gap=0.09 / cell, slant=slant)
    for is_sure, links in ((True, sure), (False, rings)):
        for source, target in sorted(links):
            axes.add_patch(_mark(source + 0.5, target + 0.5, 1.0, is_sure, line=min(1.5, 5 * cell)))
    _key(figure, strongest, squares="gold" * bool(sure), rings="possible" * bool(rings))
    plots.title(figure, title)
    return plots.save(figure, path)


def heads_picture(
    weights_LHTS: np.ndarray, source_words: Sequence[str], target_words: Sequence[str], path: str | Path, *,
    title: str | None = None, best: tuple[int, int] | None = None,
) -> Path:  # fmt: skip
    """Every head of every layer on one sentence, as small heat maps on one scale; layers run downward.

    `best` is the (layer, head) to outline. Layers and heads are counted from 0.
    """
    weights_LHTS = _check_weights(weights_LHTS, source_words, target_words, axes=4)
    layers, heads, target_size, source_size = weights_LHTS.shape
    if best is not None and not (0 <= best[0] < layers and 0 <= best[1] < heads):
        raise InputError(f"best head {best} is outside of {(layers, heads)} layers and heads; both count from 0")
    cell = float(np.clip(PANEL_SIDE / max(target_size, source_size), SMALLEST_PANEL_CELL, LARGEST_PANEL_CELL))
    width, height = source_size * cell, target_size * cell
    step_x, step_y = width + 0.14, height + 0.14
    figure = plots.new_figure(heads * step_x, layers * step_y)
    strongest = float(weights_LHTS.max()) or 1.0
    for layer, head in np.ndindex(layers, heads):
        left, bottom = head * step_x, (layers - layer) * step_y - height
        axes = plots.panel(figure, left, bottom, width, height)
        plots.heat(axes, weights_LHTS[layer, head], high=strongest, line=None)
        is_best = (layer, head) == best
        axes.spines[:].set(visible=True, color=ACCENT if is_best else HAIRLINE, linewidth=2.0 if is_best else 0.6)
        axes.set_zorder(is_best)
        if cell >= SMALLEST_LABELLED_CELL:
            above, beside = source_words if layer == 0 else (), target_words if head == 0 else ()
            plots.label_words(axes, above, beside, size=min(9.0, 43 * cell), gap=0.06 / cell)
        # Numbers on the right and at the bottom, where no word is in the way.
        if head == heads - 1:
            note(figure, left + width + 0.08, bottom + height / 2, f"layer {layer}", va="center_baseline")
        if layer == layers - 1:
            note(figure, left + width / 2, 0.06, f"head {head}", ha="center", va="top")
    _key(figure, strongest, squares="best head" * (best is not None))
    plots.title(figure, title)
    return plots.save(figure, path)


def alignment_text(weights_TS: np.ndarray, source_words: Sequence[str], target_words: Sequence[str]) -> str:
    """The same for a terminal, a line a target word: its strongest source word, a bar, and any close second.

    A second or third source word is shown when it has at least half the weight of the first.
    """
    from rich.cells import cell_len, set_cell_size

    weights_TS = _check_weights(weights_TS, source_words, target_words, axes=2)
    sources = [one_line(word) for word in source_words]
    targets = [one_line(word) for word in target_words]
    ranked_TS = np.argsort(-weights_TS, axis=1, kind="stable")
    target_width = max(cell_len(word) for word in targets)
    source_width = max(cell_len(sources[first]) for first in ranked_TS[:, 0])
    lines = []
    for word, weights_S, (first, *others) in zip(targets, weights_TS, ranked_TS, strict=True):
        left, strongest = set_cell_size(word, target_width), float(weights_S[first])
        if strongest <= 0:
            lines.append(f"{left} ← –")
            continue
        close = [index for index in others[:2] if weights_S[index] >= strongest / 2]
        further = "  ".join(f"{sources[index]} {weights_S[index]:.2f}" for index in close)
        source = set_cell_size(sources[first], source_width)
        lines.append(f"{left} ← {source} {strongest:.2f} {_bar(strongest)}  {further}".rstrip())
    return "\n".join(lines)


def _bar(weight: float) -> str:
    """A bar of eighths of a character, `BAR_LENGTH` characters for a weight of 1."""
    full, eighths = divmod(round(min(weight, 1.0) * BAR_LENGTH * 8), 8)
    return ("█" * full + EIGHTHS[eighths]).ljust(BAR_LENGTH)[:BAR_LENGTH]


def _mark(x: float, y: float, unit: float, is_sure: bool, line: float = 1.5) -> Any:
    """A gold link: a small outlined square where it is sure, a ring where it is only possible."""
    from matplotlib.patches import Ellipse, Rectangle

    style: dict[str, Any] = {"fill": False, "edgecolor": ACCENT, "linewidth": line}
    if is_sure:
        side = 0.54 * unit
        return Rectangle((x - side / 2, y - side / 2), side, side, **style)
    return Ellipse((x, y), 0.46 * unit, 0.46 * unit, **style)


def _key(figure: Figure, strongest: float, *, squares: str = "", rings: str = "") -> None:
    """One grey line under the picture: the scale of the shades, and what the marks mean."""
    tall, start, end = 0.11, 0.13, 0.93
    bottom = plots.extent(figure).y0 - 0.3
    middle = bottom + tall / 2
    plots.heat(plots.panel(figure, start, bottom, end - start, tall), np.linspace(0, 1, 64)[None], line=None)
    note(figure, start - 0.06, middle, "0", ha="right", va="center_baseline")
    note(figure, end + 0.06, middle, f"{strongest:.2f}", va="center_baseline")
    x = end + 0.62
    for is_sure, meaning in ((True, squares), (False, rings)):
        if meaning:
            mark = _mark(x, middle, 0.24, is_sure)
            mark.set_transform(plots.inch_scale(figure))
            figure.add_artist(mark)
            note(figure, x + 0.13, middle, meaning, va="center_baseline")
            x += 0.42 + 0.065 * len(meaning)


def _check_weights(
    weights: np.ndarray, source_words: Sequence[str], target_words: Sequence[str], axes: int
) -> np.ndarray:
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != axes or weights.shape[-2:] != (len(target_words), len(source_words)):
        expected = "target, source" if axes == 2 else "layers, heads, target, source"
        raise InputError(
            f"attention of shape {weights.shape} does not fit {len(target_words)} target "
            f"and {len(source_words)} source words; expected axes {expected}"
        )
    refuse(weights.size == 0, "nothing to show: the sentence or the model is empty")
    if not np.isfinite(weights).all():
        raise InputError("attention with NaN or infinite weights; look for a row with nothing visible")
    return weights
