"""One word in many contexts: is its vector always the same, or does each layer adapt it to the sentence?

After Ethayarajh 2019, "How contextual are contextualized word representations?": the mean cosine between occurrences of
a word, here of the same sense and of different senses, by layer, beside that of any two tokens of different texts
(where all vectors point in one direction, a high cosine means little).

L layers with the input before them, N occurrences, T places, D width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headway.data.readers import lines
from headway.errors import InputError, refuse
from headway.explore import plots
from headway.explore.analyses.analysis import Analysis, Cell, Table, Text, Traced
from headway.explore.analyses.sites import Span, owners
from headway.explore.analyses.smoothing import Alike
from headway.explore.plots import COLOURS, DASHES, HAIRLINE, INK, QUIET, write
from headway.traces import LAYERED, Array, Trace

MARKED = re.compile(r"\*(\w[^*]*)\*")
AROUND = 18  # letters of a sentence that a label shows on each side of the word
PANELS, PANEL, BETWEEN, PLOT, ABOVE = 4, 2.3, 0.18, 1.7, 0.55  # scatter plots of the picture, and inches
CURVES = {"within": ("one sense", INK), "across": ("different senses", INK), "any two": ("any two tokens", QUIET)}


@dataclass(frozen=True)
class Options:
    """word: which word to look at, where the lines do not mark it."""

    word: str = ""


class Occurrence(NamedTuple):
    where: str
    sense: str
    text: str
    span: Span


def occurrences(file: str, word: str) -> Iterator[Occurrence]:
    """`sense TAB text` or a text a line. The word is marked: He *broke* the vase; or it is `word`, wherever that
    stands first in a line, in capitals or not."""
    number, found = 0, False
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) if word else MARKED
    for number, line in enumerate(lines(file), 1):
        sense, tab, text = line.partition("\t")
        if not tab:
            sense, text = "", line
        hit = pattern.search(text)
        if hit is None:
            continue
        found = True
        start, length = hit.start(), len(hit[0])
        if not word:
            text, length = text[:start] + hit[1] + text[hit.end() :], len(hit[1])
        yield Occurrence(f"{file}, line {number}", sense.strip(), text, (start, start + length))
    if not found:
        refuse(word, f"'{word}' stands in none of the {number} lines of {file}")
        raise InputError(f"{file}: no word is marked in its {number} lines: write *word*, or --set word=…")


def vectors(trace: Trace, at: Occurrence) -> tuple[list[int], Array, Array] | None:
    """The numbers of the layers (−1: the input), (L, D) the word's vectors, a mean over its tokens, and (L, T, D) those
    of all tokens of the text; None where the word is not found among them."""
    track = next((track for track in trace.tracks.values() if track.text == at.text), None)
    found = owners(track, [at.span]) if track else None
    if track is None or found is None or 0 not in found:
        return None
    names = [name for name, axes in trace.axes.items() if axes[0] == track.name and name.endswith(".hidden")]
    stack = next(hit[1] for name in names if (hit := LAYERED.match(name)))
    inputs = [trace[name] for name in names if name.startswith("embed")]
    hidden_LTD = np.stack([*inputs, *trace.stacked(stack, "hidden")])
    numbers = [*[-1] * len(inputs), *trace.layers(stack, "hidden")]
    return numbers, hidden_LTD[:, [t for t, one in enumerate(found) if one == 0]].mean(1), hidden_LTD[:, track.ordinary]


def similarities(vectors_ND: Array, senses: Sequence[str]) -> tuple[float | None, float | None, float | None]:
    """Mean cosine of two occurrences of one sense, and of different senses; and how often the nearest occurrence is of
    the same sense, of those which have another of theirs. None: there is no such pair."""
    unit_ND = vectors_ND / np.linalg.norm(vectors_ND, axis=-1, keepdims=True)
    cosine_NN = unit_ND @ unit_ND.T
    same_NN = np.array([[one == other for other in senses] for one in senses])
    apart_NN = ~np.eye(len(senses), dtype=bool)
    within, across = cosine_NN[same_NN & apart_NN], cosine_NN[~same_NN]
    nearest_N = np.where(apart_NN, cosine_NN, -np.inf).argmax(-1)
    judged = [n for n in range(len(senses)) if (same_NN & apart_NN)[n].any()]
    agree = [bool(same_NN[n, nearest_N[n]]) for n in judged] if across.size else []
    return _mean(within), _mean(across), _mean(agree)


def _mean(some: Any) -> float | None:
    return float(np.mean(some)) if len(some) else None


def any_two(texts: Sequence[Array]) -> float:
    """Mean cosine between tokens of different texts."""
    alike = Alike()
    for vectors_TD in texts:
        alike.add(vectors_TD)
    return float(alike.means()[1] or 0.0)


def plane(vectors_ND: Array) -> Array:
    """(N, 2): the two directions in which they differ most (principal components)."""
    centred_ND = np.asarray(vectors_ND, dtype=np.float64) - vectors_ND.mean(0)
    left_NK, size_K, _ = np.linalg.svd(centred_ND, full_matrices=False)
    points_NK = (left_NK * size_K)[:, :2]
    # A direction has no sign of its own: the occurrence that is furthest along it is on the positive side.
    points_NK = points_NK * np.sign(points_NK[np.abs(points_NK).argmax(0), range(points_NK.shape[1])])
    return np.pad(points_NK, ((0, 0), (0, 2 - points_NK.shape[1])))


def contexts(traced: Traced, files: Sequence[str], options: Options) -> Table:
    """One word in many sentences: how alike its vectors are by layer, within and across its senses."""
    refuse(len(files) != 1, f"{len(files)} files: give one, a text with the word in each line")
    texts = (Text(one.where, one.text, item=one) for one in occurrences(files[0], options.word))
    seen = [(text.item, vectors(trace, text.item)) for text, trace in traced.over(texts, copied=True)]
    read = [(one, *found) for one, found in seen if found is not None]
    refuse(len(read) < 2, f"{files[0]}: {len(read)} occurrences that this model reads; there must be two to compare")
    kept, (layers, *_), words, tokens = zip(*read, strict=True)
    senses = [one.sense for one in kept]
    words_LND = np.stack(words, 1)
    rows: list[tuple[Cell, ...]] = [
        (layer, *similarities(vectors_ND, senses), any_two([one_LTD[at] for one_LTD in tokens]))
        for at, (layer, vectors_ND) in enumerate(zip(layers, words_LND, strict=True))
    ]
    notes = [
        f"{len(kept)} occurrences of {len(set(senses))} senses; layer -1 is the input of layer 0",
        "within, across: mean cosine of one sense, of different senses; nearest: share whose nearest neighbour is of "
        "its own sense; any two: mean cosine of tokens of different texts",
    ]
    if left := traced.read - traced.skipped - len(kept):
        notes.append(f"{left} left out: the word is not found among the model's tokens")
    more = {
        "senses": senses, "labels": [_label(one) for one in kept],
        "points": [plane(vectors_ND).round(4).tolist() for vectors_ND in words_LND],
    }  # fmt: skip
    return Table(("layer", "within", "across", "nearest", "any two"), rows, tuple(notes), more)


def _label(one: Occurrence) -> str:
    """The word with a little of what stands around it."""
    start, end = max(0, one.span[0] - AROUND), one.span[1] + AROUND
    return ("…" if start else "") + one.text[start:end].strip() + ("…" if end < len(one.text) else "")


def draw(table: Table, path: Path) -> Path:
    """The occurrences in the plane at the first layer, the last and some between, a colour a sense; and how alike they
    are at every layer."""
    points_LN2, senses = np.array(table.more["points"]), table.more["senses"]
    colour_of = {sense: COLOURS[at % len(COLOURS)] for at, sense in enumerate(dict.fromkeys(senses))}
    layers = table.column("layer")
    shown = sorted({round(at) for at in np.linspace(0, len(layers) - 1, PANELS)})
    width = len(shown) * (PANEL + BETWEEN) - BETWEEN
    figure = plots.new_figure(width, PANEL + ABOVE + PLOT)
    for column, at in enumerate(shown):
        axes = plots.panel(figure, column * (PANEL + BETWEEN), PLOT + ABOVE, PANEL, PANEL)
        colours = [colour_of[sense] for sense in senses]
        x_N, y_N = points_LN2[at].T
        axes.scatter(x_N, y_N, s=26, c=colours, alpha=0.8, linewidths=0)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=HAIRLINE, linewidth=0.8)
        axes.margins(0.12)
        write(axes, 0, 1.02, "input" if layers[at] < 0 else f"layer {layers[at]}", 9, QUIET, transform=axes.transAxes)
    dots = [{"color": colour, "marker": "o", "linestyle": "none", "markersize": 5} for colour in colour_of.values()]
    names = [sense or "all" for sense in colour_of]
    plots.legend(figure, names, dots, 9, loc="lower left", bbox_to_anchor=(0, 1.08), ncols=len(names), handletextpad=0)
    drawn = [column for column in CURVES if any(y is not None for y in table.column(column))]
    curves = {column: [*zip(layers, table.column(column), strict=True)] for column in drawn}
    axes = plots.panel(figure, 0.35, 0, width - 1.6, PLOT)
    styles = [{"color": CURVES[column][1], "linestyle": DASHES[[*CURVES].index(column)]} for column in curves]
    plots.lines(axes, curves, {-1: "input"}, styles)
    plots.quiet(axes, "y", below="layer")
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.02)
    plots.name_ends(axes, [CURVES[column][0] for column in curves], PLOT)
    write(axes, 0, 1.04, "mean cosine", 9, QUIET, transform=axes.transAxes)
    return plots.save(figure, path)


CONTEXTS = Analysis("contexts", "marked", ("hidden",), contexts, draw, Options)
