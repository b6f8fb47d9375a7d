"""Attention at the sites of a trace, and which places of a track stand in given stretches of its text.

L layers, H heads, T and S places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.errors import InputError
from headway.traces import Array, Trace, Track

Span = tuple[int, int]


class Site(NamedTuple):
    """Attention of one kind in all layers of a stack (`decoder`, `cross`): which places look, and which are seen."""

    trace: Trace
    stack: str
    kind: str
    layers: list[int]
    looks: Track
    seen: Track

    @property
    def name(self) -> str:
        return f"{self.stack}.{self.kind}"

    @property
    def own(self) -> bool:
        """Of a text to itself."""
        return self.looks.name == self.seen.name

    @property
    def weights_LHTS(self) -> Array:
        return self.trace.attention(self.stack, self.kind)


def sites(trace: Trace) -> list[Site]:
    """All attention of a model that has some."""
    found = []
    for stack, kind in trace.sites():
        layers = trace.layers(stack, f"{kind}.weights")
        looks, seen = (trace.tracks[axis] for axis in trace.axes[f"{stack}.{layers[0]}.{kind}.weights"][-2:])
        found.append(Site(trace, stack, kind, layers, looks, seen))
    if not found:
        family = trace.about.get("family", "")
        raise InputError(f"this model ({family}) has no attention to look at: its trace has no attention weights")
    return found


def owners(track: Track, stretches: Sequence[Span]) -> list[int] | None:
    """For each place the number of the stretch that holds most of it, −1 for none; None: it is not known where in
    the text the places are. Of equal stretches the first has all places."""
    if track.spans is None:
        return None
    found = []
    for at, (start, end) in enumerate(track.spans):
        shared = [min(end, last) - max(start, first) for first, last in stretches]
        most = max(shared, default=0)
        found.append(shared.index(most) if most > 0 and at not in track.specials else -1)
    return found


class OwnAttention(NamedTuple):
    """Of a text to itself: the weights, what may be seen from where, and the stretch that each place belongs to."""

    weights_LHTS: Array
    visible_TS: Array
    owner_T: list[int]


def own_attention(trace: Trace, text: str, stretches: Sequence[Span]) -> OwnAttention | None:
    """None: the model does not read the text as it is written here, or it is not known where its places are."""
    site = next((site for site in sites(trace) if site.own and site.looks.text == text), None)
    owner_T = owners(site.looks, stretches) if site else None
    if site is None or owner_T is None:
        return None
    return OwnAttention(site.weights_LHTS, trace[f"{site.stack}.{site.layers[0]}.{site.kind}.mask"], owner_T)
