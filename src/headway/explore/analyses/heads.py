"""Where heads look, whatever they look at: next, previous, first, separator, self; how widely, and how far.

After Clark et al. 2019, "What does BERT look at?", section 3. Every place of a text that is no special looks; means are
over all of them.

L layers, H heads, T places that look, S places that are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import InputError
from headway.explore.analyses.analysis import Analysis, Cell, NoOptions, Table, Traced
from headway.explore.analyses.texts import read_texts
from headway.explore.plots import HeatMap, heat_maps
from headway.traces import Trace, Track

Array = NDArray[Any]
MEASURES = ("next", "previous", "first", "separator", "self", "entropy", "distance")
SHARES = MEASURES[:5]  # of a row's attention, from 0 to 1
BESIDE = 4  # grids in a row of the picture, at most


@dataclass(frozen=True)
class Measured:
    """Sums over the places that have such a thing to look at, and how many there are."""

    sum_LH: Array
    count: int

    def __add__(self, other: Measured) -> Measured:
        return Measured(self.sum_LH + other.sum_LH, self.count + other.count)


def attention_sites(trace: Trace) -> list[tuple[str, str]]:
    """(stack, site) of all attention of a model that has some."""
    if not trace.sites():
        family = trace.about.get("family", "")
        raise InputError(f"this model ({family}) has no attention to look at: its trace has no attention weights")
    return trace.sites()


def measured(trace: Trace, stack: str, site: str) -> Iterator[tuple[str, Measured]]:
    """What one text adds to each measure at one site; layer by layer, since the weights of all may be large."""
    names = [f"{stack}.{layer}.{site}.weights" for layer in trace.layers(stack, f"{site}.weights")]
    looks, seen = (trace.tracks[axis] for axis in trace.axes[names[0]][-2:])
    by_layer = [dict(_of_layer(trace[name], looks, seen)) for name in names]
    for measure, (_, count) in by_layer[0].items():
        yield measure, Measured(np.stack([found[measure][0] for found in by_layer]), count)


def _of_layer(weights_HTS: Array, looks: Track, seen: Track) -> Iterator[tuple[str, tuple[Array, int]]]:
    """Sums by head, and how many places they are over. Across two texts a place has no neighbours: there only first,
    separator and entropy are measured."""
    one_text = looks.name == seen.name
    # Across two texts a row belongs to the word that is written next: the start has one, the last row none.
    rows = looks.ordinary if one_text else list(range(len(looks) - 1))
    text_HTS = weights_HTS[:, rows].astype(np.float64)
    separators = [s for s in seen.specials if s > 0]
    if one_text:
        for name, offset in (("next", 1), ("previous", -1), ("self", 0)):
            there = [t for t in rows if 0 <= t + offset < len(seen)]
            beside_HT = weights_HTS[:, there, [t + offset for t in there]]
            yield name, (beside_HT.sum(-1, dtype=np.float64), len(there))
        distance_TS = np.abs(np.subtract.outer(rows, np.arange(len(seen))))
        yield "distance", ((text_HTS * distance_TS).sum((-2, -1)), len(rows))
    others = [at for at, t in enumerate(rows) if t > 0 or not one_text]  # the first place itself looks at no other
    yield "first", (text_HTS[:, others, 0].sum(-1), len(others))
    if separators:
        yield "separator", (text_HTS[..., separators].sum((-2, -1)), len(rows))
    yield "entropy", (entropy(text_HTS).sum(-1), len(rows))


def entropy(weights: Array) -> Array:
    """−Σ w ln w along the last axis; what has no weight adds nothing."""
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(-1)


def heads(traced: Traced, files: Sequence[str], options: NoOptions) -> Table:
    sums: dict[tuple[str, str], dict[str, Measured]] = defaultdict(dict)
    layers: dict[tuple[str, str], list[int]] = {}
    texts = 0
    for _, trace in traced.over(read_texts(files)):
        texts += 1
        for place in attention_sites(trace):
            layers[place] = trace.layers(place[0], f"{place[1]}.weights")
            for name, one in measured(trace, *place):
                sums[place][name] = sums[place][name] + one if name in sums[place] else one
    rows: list[tuple[Cell, ...]] = []
    for place, found in sums.items():
        means = [
            found[name].sum_LH / found[name].count if name in found and found[name].count else None for name in MEASURES
        ]
        rows += head_rows(".".join(place), layers[place], *means)
    counts = ", ".join(f"{found['entropy'].count:,} places at {'.'.join(place)}" for place, found in sums.items())
    return Table(
        ("site", "layer", "head", *MEASURES),
        rows,
        (f"means over {texts:,} texts ({counts}); entropy in nats, distance in tokens",
         "first: the first place of the text, whatever stands there; separator: any other special"),
    )  # fmt: skip


def draw(table: Table, path: Path) -> Path:
    """A heat map a measure, site after site; shares are all on one scale, and measures that are 0 are left out."""
    shares = [cell for name in SHARES for cell in table.column(name) if cell is not None]
    rows: list[list[HeatMap]] = []
    for site in dict.fromkeys(table.column("site")):
        maps: list[HeatMap] = []
        for name in MEASURES:
            high = max(shares) if name in SHARES else None
            one = head_map(table, name, site, name if maps else f"{site}: {name}", high=high)
            if np.nan_to_num(one.values_RC).max() > 0:
                maps.append(one)
        beside = -(-len(maps) // -(-len(maps) // BESIDE))  # rows of about the same length
        rows += [maps[at : at + beside] for at in range(0, len(maps), beside)]
    return heat_maps(rows, path, heading="Where the heads look")


def head_rows(site: str, layers: Sequence[int], *columns: Array | None) -> list[tuple[Cell, ...]]:
    """A row for each head of a site, its values from columns of shape (L, H); None: there is no such value."""
    shape = next(values_LH.shape for values_LH in columns if values_LH is not None)
    return [
        (site, layers[at], head, *(None if values_LH is None else float(values_LH[at, head]) for values_LH in columns))
        for at, head in np.ndindex(shape)
    ]


def head_map(table: Table, name: str, site: str, title: str = "", *, best: bool = False, **more: Any) -> HeatMap:
    """One column of a table of heads as a heat map (blank where there is no value). best: outline the highest."""
    at, layer_at = table.columns.index(name), table.columns.index("layer")
    found: dict[Any, Cell] = {
        (row[layer_at], row[layer_at + 1]): row[at]
        for row in table.rows
        if row[layer_at - 1] == site and row[layer_at] is not None
    }
    layers, heads = (sorted({key[axis] for key in found}) for axis in (0, 1))
    values_LH = np.array([[found.get((layer, head)) for head in heads] for layer in layers], dtype=np.float64)
    if best:
        more["best"] = tuple(map(int, np.unravel_index(np.nanargmax(values_LH), values_LH.shape)))
    return HeatMap(title or site, values_LH, rows=layers, **more)


HEADS = Analysis(
    "heads", "attention to next, previous, first, separator, self; entropy, distance: by layer and head",
    "lines", ("weights",), heads, draw,
)  # fmt: skip
