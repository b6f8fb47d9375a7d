"""The logit lens: what a model would answer if it stopped at each layer (nostalgebraist 2020).

logits_l = head(final(h_l)): what stands behind the last layer, its norm and its head, sees the sum of the first l
layers alone. What is followed is the answer that the whole model gives.

L layers and the input before them, T places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import InputError
from headway.explore import plots
from headway.explore.analyses.analysis import Analysis, Cell, NoOptions, Table, Text, Traced, second_text
from headway.explore.analyses.silence import ended, last_stack
from headway.explore.analyses.texts import read_texts
from headway.explore.plots import DARK, INK, QUIET, write
from headway.traces import Array, Trace, Track, log_softmax

SHOWN = 16  # places of the first text that the picture has
CELL, TALL, BELOW, LONGEST = 0.74, 0.27, 0.42, 9  # inches of the picture, and letters that fit a cell


def by_layer(traced: Traced, text: Text, trace: Trace) -> list[Trace]:
    """The traces of one text as read by the first 0, 1, … layers; the last is the whole model's."""
    name, stack = last_stack(traced.loaded.model)
    found = []
    for layers in range(len(trace.layers(name, "hidden")) + 1):
        with ended(stack, layers):
            found.append(traced.trace(text.first, second_text(text, trace), tensors=("logits",), top=1))
    return found


def followed(logits_LTV: Sequence[Array]) -> tuple[Array, Array]:
    """Of the last layer's likeliest entry at each place: its rank at each layer, from 1, and its log p: (L, T)."""
    answer_T = logits_LTV[-1].argmax(-1)
    ranks, logps = [], []
    for logits_TV in logits_LTV:
        logp_TV = log_softmax(logits_TV.astype(np.float64))
        own_T1 = np.take_along_axis(logp_TV, answer_T[:, None], -1)
        ranks.append((logp_TV > own_T1).sum(-1) + 1)
        logps.append(own_T1[:, 0])
    return np.array(ranks), np.array(logps)


def lens(traced: Traced, files: Sequence[str], options: NoOptions) -> Table:
    """What the model would answer if it stopped at each layer."""
    ranks, logps, taken, shown = [], [], [], {}  # type: list[Array], list[Array], list[Array], dict[str, Any]
    fills_gaps = traced.loaded.takes == "pair"
    for text, trace in traced.over(read_texts(files)):
        if fills_gaps and "next" not in trace.about:
            raise InputError("this model predicts no words: there is no head to look at its layers with")
        traces = by_layer(traced, text, trace)
        track = traces[-1].tracks[traces[-1].axes["logits"][0]]
        # At a special nothing is predicted, unless the model continues from there.
        kept = track.ordinary if fills_gaps else list(range(len(track)))
        rank_LT, logp_LT = followed([one["logits"][kept] for one in traces])
        ranks.append(rank_LT)
        logps.append(logp_LT)
        # log p of the token that comes, by layer and place.
        comes = [[p for p in one.about["next"]["taken"] if p is not None] if not fills_gaps else [] for one in traces]
        taken.append(np.array(comes, dtype=np.float64))
        shown = shown or _shown(traces, track, kept[:SHOWN], logp_LT)
    rank_LT, logp_LT, taken_LT = (np.concatenate(some, 1) for some in (ranks, logps, taken))
    rows: list[tuple[Cell, ...]] = []
    for layer, (rank_T, logp_T, taken_T) in enumerate(zip(rank_LT, logp_LT, taken_LT, strict=True), -1):
        text_logp = float(taken_T.mean()) if taken_T.size else None
        rows.append((layer, float((rank_T == 1).mean()), float(np.median(rank_T)), float(logp_T.mean()), text_logp))
    notes = (
        f"{rank_LT.shape[1]:,} places of {len(ranks):,} texts; layer -1 is the input of layer 0, without any layer",
        "first: share of places where the last layer's answer already leads; rank (median) and log p of that answer",
    )
    return Table(("layer", "first", "rank", "log p", "log p of the text"), rows, notes, shown)


def _shown(traces: list[Trace], track: Track, places: list[int], logp_LT: Array) -> dict[str, Any]:
    """Of the first text what a picture needs: at each layer and place the likeliest entry, and p of the answer."""
    return {
        "places": [track.labels[t] for t in places],
        "answers": [[one.about["next"]["labels"][t][0] for t in places] for one in traces],
        "p": [[round(float(np.exp(logp)), 5) for logp in logp_T[: len(places)]] for logp_T in logp_LT],
    }


def draw(table: Table, path: Path) -> Path:
    """Places from left to right, layers from the input at the bottom upward, in each cell the layer's own answer."""
    # From the last layer down.
    answers, p_LT = table.more["answers"][::-1], np.array(table.more["p"], dtype=np.float64)[::-1]
    layers, length = p_LT.shape
    figure = plots.new_figure(length * CELL, layers * TALL + BELOW)
    axes = plots.panel(figure, 0, BELOW, length * CELL, layers * TALL)
    plots.heat(axes, p_LT, high=1.0, line=0.8)
    centred = {"ha": "center", "va": "center_baseline"}
    for (row, t), p in np.ndenumerate(p_LT):
        colour = "white" if p > DARK else INK if answers[row][t] == answers[0][t] else QUIET
        write(axes, t + 0.5, row + 0.5, plots.cut(answers[row][t], LONGEST), 7.5, colour, **centred)
    for t, word in enumerate(table.more["places"]):
        write(axes, t + 0.5, layers + 0.75, plots.cut(word, LONGEST), 8.5, **centred)
    names = [*(f"layer {layer}" for layer in reversed(range(layers - 1))), "input"]
    for y, name in [*((row + 0.5, name) for row, name in enumerate(names)), (layers + 0.75, "reads")]:
        write(axes, -0.1, y, name, 8, QUIET, ha="right", va="center_baseline")
    title = "What each layer would answer; the darker, the more probable the last layer's answer is there"
    write(axes, 0, -0.35, title, 9, va="bottom")
    return plots.save(figure, path)


LENS = Analysis("lens", "lines", ("hidden",), lens, draw)
