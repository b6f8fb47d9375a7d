"""How alike the vectors of different places become from layer to layer: over-smoothing.

    mean over pairs s ≠ t of cos(h_s, h_t), within a text, and between places of different texts

The second is what any two places have in common (anisotropy: Ethayarajh 2019); only what the first has above it is due
to standing in one text. From sums alone: Σ over pairs of uₛ·uₜ = ½ (‖Σ u‖² − n) for unit vectors u.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import refuse
from headway.explore.analyses.analysis import Analysis, NoOptions, Table, Traced
from headway.explore.analyses.texts import read_texts
from headway.explore.plots import lines_picture
from headway.traces import Array

STATES = re.compile(r"^(?P<stack>[a-z_]+?)(\.(?P<layer>\d+))?\.hidden$")
EMBEDDING, NORMED = "embedding", "norm"


class Alike:
    """Sums over texts of one layer."""

    def __init__(self) -> None:
        self.total: Array | float = 0.0
        self.texts: list[tuple[int, float]] = []  # of each its places, and ‖Σ u‖²

    def add(self, hidden_TD: Array) -> None:
        hidden_TD = hidden_TD.astype(np.float64)
        length_T1 = np.linalg.norm(hidden_TD, axis=1, keepdims=True)
        sum_D = (hidden_TD / np.where(length_T1 > 0, length_T1, 1.0)).sum(0)
        self.total = self.total + sum_D
        self.texts.append((len(hidden_TD), float(sum_D @ sum_D)))

    def means(self) -> tuple[float | None, float | None]:
        """Within a text (the mean over texts), and between texts; None where there are no such pairs."""
        within = [(square - n) / (n * (n - 1)) for n, square in self.texts if n > 1]
        pairs = sum(n for n, _ in self.texts) ** 2 - sum(n**2 for n, _ in self.texts)
        between = float(np.sum(np.square(self.total))) - sum(square for _, square in self.texts)
        return sum(within) / len(within) if within else None, between / pairs if pairs else None


def layer_of(name: str) -> tuple[str, str | int] | None:
    """`decoder.3.hidden` is (decoder, 3); what goes into a stack counts as its first layer, what its last norm gives as
    its last."""
    found = STATES.match(name)
    if found is None:
        return None
    if found["layer"] is not None:
        return found["stack"], int(found["layer"])
    return (found["stack"], EMBEDDING if found["stack"].startswith("embed") else NORMED)


def smoothing(traced: Traced, files: Sequence[str], options: NoOptions) -> Table:
    """Mean cosine between the vectors of different places, by layer: over-smoothing."""
    sums: dict[tuple[str, str | int], Alike] = {}
    for _, trace in traced.over(read_texts(files)):
        for name in trace:
            place = layer_of(name)
            if place is not None:
                track = trace.tracks[trace.axes[name][0]]
                sums.setdefault(place, Alike()).add(trace[name][track.ordinary])
    refuse(not sums, "this model gives no hidden states by layer: there is nothing to compare")
    means = {place: alike.means() for place, alike in sums.items()}
    # Where no norm stands behind the last layer, what comes out of the stack is that layer once more.
    for stack in dict.fromkeys(stack for stack, _ in means):
        last = max((layer for of, layer in means if of == stack and isinstance(layer, int)), default=None)
        if last is not None and means.get((stack, NORMED)) == means[stack, last]:
            del means[stack, NORMED]
    return Table(
        ("stack", "layer", "within a text", "between texts"),
        [(*place, *values) for place, values in means.items()],
        (f"mean cosine between the vectors of two places, specials left out, over {traced.seen:,} texts",),
    )


def draw(table: Table, path: Path) -> Path:
    """Lines over the layers, the embedding in front of them; each stack with its own embedding."""
    order = table.distinct("stack")
    stacks = [stack for stack in order if not stack.startswith("embed")]
    embeddings = [stack for stack in order if stack.startswith("embed")]
    last = max((layer for layer in table.column("layer") if isinstance(layer, int)), default=-1)
    at: dict[Any, int] = {EMBEDDING: -1, NORMED: last + 1}
    curves: dict[str, list[tuple[Any, Any]]] = {}
    for number, stack in enumerate(stacks):
        own = embeddings[number : number + 1] if len(embeddings) == len(stacks) else embeddings[:1]
        rows = [row for row in table.rows if row[0] in (*own, stack)]
        for column, name in enumerate(table.columns[2:], 2):
            curves[f"{stack}, {name}"] = [(at.get(row[1], row[1]), row[column]) for row in rows]
    return lines_picture(
        curves, path, heading="How alike the places become", value="mean cosine between the vectors of two places",
        names_of_x={place: name for name, place in at.items()}, from_zero=False,
    )  # fmt: skip


SMOOTHING = Analysis("smoothing", "lines", ("hidden",), smoothing, draw)
