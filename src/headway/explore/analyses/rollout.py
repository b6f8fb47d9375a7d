"""Attention through all layers, and how far it reaches.

    Ã = ½ (mean over heads of A) + ½ I,   R₀ = Ã₀,   Rₙ = Ãₙ Rₙ₋₁        (Abnar and Zuidema 2020, eq. 1)

Row t of Rₙ says from which places the vector after layer n comes, as far as attention and the residual path show.
The reach of a place is the smallest distance within which it has a stated share of its row.

L layers, T places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import InputError, refuse
from headway.explore.analyses.analysis import Analysis, Cell, Table, Traced
from headway.explore.analyses.heads import entropy
from headway.explore.analyses.sites import sites
from headway.explore.analyses.texts import read_texts
from headway.explore.picture import alignment_picture
from headway.explore.plots import lines_picture
from headway.traces import Array

SHOWN = 32  # places that a picture has room for
ROUNDING = 1e-6


@dataclass(frozen=True)
class RolloutOptions:
    """residual: the share of a layer's output that comes past its attention."""

    residual: float = 0.5


@dataclass(frozen=True)
class ReachOptions:
    """share: of a row's attention, which lies within the reach. residual: as for the rollout."""

    share: float = 0.9
    residual: float = 0.5


def rolled_out(weights_LHTT: Array, residual: float = 0.5) -> Array:
    """R_LTT of one stack of self-attention."""
    refuse(not 0 <= residual <= 1, f"residual={residual:g}: it is a share, from 0 to 1")
    mean_LTT = weights_LHTT.mean(1, dtype=np.float64)
    mixed_LTT = (1 - residual) * mean_LTT + residual * np.eye(mean_LTT.shape[-1])
    layers = [mixed_LTT[0]]
    for mixed_TT in mixed_LTT[1:]:
        layers.append(mixed_TT @ layers[-1])
    return np.stack(layers)


def reach(weights_TT: Array, share: float) -> Array:
    """For each place t the smallest d with Σ over |t − s| ≤ d of its row ≥ share of the row."""
    size = len(weights_TT)
    found = np.zeros(size, dtype=np.int64)
    for t, row in enumerate(weights_TT):
        within = np.bincount(np.abs(np.arange(size) - t), row).cumsum()
        found[t] = int(np.argmax(within >= share * within[-1] - ROUNDING))
    return found


def by_layer(
    traced: Traced, files: Sequence[str], residual: float, measure: Callable[[Array, Array], list[Array]]
) -> tuple[list[tuple[Cell, ...]], int, dict[str, Any]]:
    """Rows of means by stack and layer, over how many places, and the last rollout of a text for a picture: the first
    that is short enough to be read. measure: values (T) of a layer's mean attention and its rollout."""
    sums: dict[tuple[Cell, ...], Array] = {}
    shown: dict[str, Any] = {}
    for _, trace in traced.over(read_texts(files)):
        for site in filter(lambda site: site.own, sites(trace)):
            weights_LHTT, rows = site.weights_LHTS, site.looks.ordinary
            rolled_LTT = rolled_out(weights_LHTT, residual)
            for layer, weights_HTT, rolled_TT in zip(site.layers, weights_LHTT, rolled_LTT, strict=True):
                values = measure(weights_HTT.mean(0, dtype=np.float64), rolled_TT)
                summed = np.array([len(rows), *(value_T[rows].sum() for value_T in values)])
                sums[site.stack, layer] = sums.get((site.stack, layer), 0) + summed
            if not shown or (len(site.looks) < len(shown["labels"]) and len(shown["labels"]) > SHOWN):
                last_TT = [[round(float(one), 5) for one in row] for row in rolled_LTT[-1]]
                labels = list(site.looks.labels)
                shown = {"stack": site.stack, "layer": site.layers[-1], "labels": labels, "rollout": last_TT}
    means = [(*key, *(float(one) for one in total[1:] / total[0])) for key, total in sums.items()]
    return means, sum({stack: int(total[0]) for (stack, _), total in sums.items()}.values()), shown


def rollout(traced: Traced, files: Sequence[str], options: RolloutOptions) -> Table:
    """Attention followed through all layers (rollout), by layer."""

    def measure(mean_TT: Array, rolled_TT: Array) -> list[Array]:
        distance_TT = np.abs(np.subtract.outer(np.arange(len(rolled_TT)), np.arange(len(rolled_TT))))
        return [np.diagonal(rolled_TT), rolled_TT[:, 0], entropy(rolled_TT), (rolled_TT * distance_TT).sum(-1)]

    rows, places, shown = by_layer(traced, files, options.residual, measure)
    return Table(
        ("stack", "layer", "self", "first", "entropy", "distance"),
        rows,
        (f"means over {places:,} places; self and first: what is left there of a row of the rollout; entropy in nats",
         "cross-attention is no part of a decoder's rollout"),
        {"shown": shown},
    )  # fmt: skip


def draw_rollout(table: Table, path: Path) -> Path:
    """The last layer's rollout of one text."""
    shown = table.more["shown"]
    title = f"Rollout through layer {shown['layer']} of the {shown['stack']}: what each place is made of"
    return alignment_picture(np.array(shown["rollout"]), shown["labels"], shown["labels"], path, title=title)


def reaches(traced: Traced, files: Sequence[str], options: ReachOptions) -> Table:
    """How far back one must go to hold a share of the attention, by layer: the receptive field."""
    if not 0 < options.share <= 1:
        raise InputError(f"share={options.share:g}: it is a share of the attention, above 0 and at most 1")

    def measure(mean_TT: Array, rolled_TT: Array) -> list[Array]:
        seen_TT = (mean_TT > 0).astype(np.float64)
        return [reach(mean_TT, options.share), reach(rolled_TT, options.share), reach(seen_TT, 1.0)]

    rows, places, _ = by_layer(traced, files, options.residual, measure)
    return Table(
        ("stack", "layer", "of the layer", "through all layers", "visible"),
        rows,
        (f"distance in tokens within which a place has {options.share:.0%} of its attention, over {places:,} places",
         "of the layer: of it alone (mean of its heads); through all layers: of the rollout up to it; visible: the "
         "farthest place with any weight"),
        {"share": options.share},
    )  # fmt: skip


def draw_reach(table: Table, path: Path) -> Path:
    curves = {
        f"{stack}, {column}": [(row[1], row[at]) for row in table.rows if row[0] == stack]
        for stack in table.distinct("stack")
        for at, column in enumerate(table.columns[2:], 2)
    }
    value = f"tokens within which a place has {table.more['share']:.0%} of its attention"
    return lines_picture(curves, path, heading="How far a place sees", value=value)  # type: ignore[arg-type]


ROLLOUT = Analysis("rollout", "lines", ("weights",), rollout, draw_rollout, RolloutOptions)
REACH = Analysis("reach", "lines", ("weights",), reaches, draw_reach, ReachOptions)
