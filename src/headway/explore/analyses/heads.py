"""Where heads look, whatever they look at: next, previous, first, separator, self; how widely, and how far.

After Clark et al. 2019, "What does BERT look at?", section 3. Every place of a text that is no special looks; means are
over all of them.

L layers, H heads, T places that look, S places that are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.explore.analyses.analysis import Analysis, Cell, NoOptions, Table, Traced
from headway.explore.analyses.sites import Site, sites
from headway.explore.analyses.texts import read_texts
from headway.explore.plots import HeatMap, heat_maps
from headway.traces import Array, Track

MEASURES = ("next", "previous", "first", "separator", "self", "entropy", "distance")
SHARES = MEASURES[:5]  # of a row's attention, from 0 to 1
BESIDE = 4  # grids in a row of the picture, at most


def measured(site: Site) -> Iterator[tuple[str, Array, int]]:
    """What one text adds to each measure at one site: sums (L, H) over the places that have such a thing to look at,
    and how many there are. Layer by layer, since the weights of all may be large."""
    names = (f"{site.stack}.{layer}.{site.kind}.weights" for layer in site.layers)
    by_layer = [list(_of_layer(site.trace[name], site.looks, site.seen)) for name in names]
    for same in zip(*by_layer, strict=True):
        measure, _, count = same[0]
        yield measure, np.stack([sum_H for _, sum_H, _ in same]), count


def _of_layer(weights_HTS: Array, looks: Track, seen: Track) -> Iterator[tuple[str, Array, int]]:
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
            yield name, beside_HT.sum(-1, dtype=np.float64), len(there)
        distance_TS = np.abs(np.subtract.outer(rows, np.arange(len(seen))))
        yield "distance", (text_HTS * distance_TS).sum((-2, -1)), len(rows)
    others = [at for at, t in enumerate(rows) if t > 0 or not one_text]  # the first place itself looks at no other
    yield "first", text_HTS[:, others, 0].sum(-1), len(others)
    if separators:
        yield "separator", text_HTS[..., separators].sum((-2, -1)), len(rows)
    yield "entropy", entropy(text_HTS).sum(-1), len(rows)


def entropy(weights: Array) -> Array:
    """−Σ w ln w along the last axis; what has no weight adds nothing."""
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(-1)


def heads(traced: Traced, files: Sequence[str], options: NoOptions) -> Table:
    """Attention to next, previous, first, separator, self; entropy, distance: by layer and head."""
    layers: dict[str, list[int]] = {}
    sums: dict[tuple[str, str], Array] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for _, trace in traced.over(read_texts(files)):
        for site in sites(trace):
            layers[site.name] = site.layers
            for name, sum_LH, count in measured(site):
                key = (site.name, name)
                sums[key] = sums.get(key, 0) + sum_LH
                counts[key] += count
    rows: list[tuple[Cell, ...]] = []
    for name, numbers in layers.items():
        keys = [(name, measure) for measure in MEASURES]
        rows += head_rows(name, numbers, *(sums[key] / counts[key] if counts[key] else None for key in keys))
    places = ", ".join(f"{counts[name, 'entropy']:,} places at {name}" for name in layers)
    return Table(
        ("site", "layer", "head", *MEASURES),
        rows,
        (f"means over {traced.seen:,} texts ({places}); entropy in nats, distance in tokens",
         "first: the first place of the text, whatever stands there; separator: any other special"),
    )  # fmt: skip


def draw(table: Table, path: Path) -> Path:
    """A heat map a measure, site after site; shares are all on one scale, and measures that are 0 are left out."""
    shares = [cell for name in SHARES for cell in table.column(name) if cell is not None]
    rows: list[list[HeatMap]] = []
    for site in table.distinct("site"):
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
    columns = (table.column(column) for column in ("site", "layer", "head", name))
    rows = [row[1:] for row in zip(*columns, strict=True) if row[0] == site and row[1] is not None]
    found = {(layer, head): value for layer, head, value in rows}
    layers, heads = (sorted({key[axis] for key in found}) for axis in (0, 1))
    values_LH = np.array([[found.get((layer, head)) for head in heads] for layer in layers], dtype=np.float64)
    if best:
        more["best"] = tuple(map(int, np.unravel_index(np.nanargmax(values_LH), values_LH.shape)))
    return HeatMap(title or site, values_LH, rows=layers, **more)


HEADS = Analysis("heads", "lines", ("weights",), heads, draw)
