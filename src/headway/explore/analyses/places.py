"""Which places of a track stand in given stretches of its text, and how these look at one another.

L layers, H heads, T and S places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headway.traces import Trace, Track

Span = tuple[int, int]


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

    weights_LHTS: NDArray[Any]
    visible_TS: NDArray[Any]
    owner_T: list[int]


def own_attention(trace: Trace, text: str, stretches: Sequence[Span]) -> OwnAttention | None:
    """None: the model does not read the text as it is written here, or it is not known where its places are."""
    for stack, site in trace.sites():
        first = trace.layers(stack, f"{site}.weights")[0]
        looks, seen = trace.axes[f"{stack}.{first}.{site}.weights"][-2:]
        track = trace.tracks[looks]
        if looks == seen and track.text == text:
            owner_T = owners(track, stretches)
            visible_TS = trace[f"{stack}.{first}.{site}.mask"]
            return None if owner_T is None else OwnAttention(trace.attention(stack, site), visible_TS, owner_T)
    return None
