"""A trace as the bytes that the page reads, reduced as far as necessary.

H heads, T places that look, S places that are looked at, K the strongest weights of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headway.errors import InputError
from headway.explore.telling import telling_heads
from headway.traces import Array, Precision, Trace

MOST = 44_000_000  # bytes; as text in a page a third more, which stays under 60 MB
KEPT = 32  # weights of a row
ENTRY = 4_000_000  # bytes of all logits that are included
STEPS = ("scores", "queries", "keys", "values", "mixed", "output", "mask", "logits", "logp")
STATES = ("hidden", "tokens", "input", "forget", "candidate", "cell", "reset", "update")


def payload(trace: Trace, most: int = MOST) -> bytes:
    """As much of a trace as fits into so many bytes; notes in it name what was left out, and `first` the head of each
    kind of attention that the page opens on."""
    trace = replace(trace, about=trace.about | {"first": telling_heads(trace)})
    size = 0
    for smaller, precision in _sizes(trace):
        size = sum(_bytes(name, tensor, precision) for name, tensor in smaller.tensors.items())
        if size <= most:
            return smaller.to_bytes(precision)
    raise InputError(
        f"the trace has {size / 1e6:,.0f} MB where {most / 1e6:,.0f} can be shown: choose layers or heads "
        "(--layers, --heads), or shorten the text"
    )


def _sizes(trace: Trace) -> Iterator[tuple[Trace, Precision]]:
    """From all of it to the least that is worth showing."""
    yield trace, "float16"
    lean = _without(trace, STEPS)
    yield with_note(lean, "The vectors behind “Step by step” are left out: the text is long."), "float16"
    lean = _without(lean, STATES)
    note = "Only attention weights are shown, each to 1/255 of the largest of its row: the text is long."
    yield with_note(lean, note), "uint8"
    thin = strongest(lean)
    yield with_note(thin, f"Of each row only the {KEPT} strongest weights are shown: the text is long."), "uint8"


def _without(trace: Trace, ends: tuple[str, ...]) -> Trace:
    kept = {name: tensor for name, tensor in trace.tensors.items() if name.rpartition(".")[2] not in ends}
    return replace(trace, tensors=kept, axes={name: trace.axes[name] for name in kept})


def with_note(trace: Trace, line: str) -> Trace:
    """The trace with one more note for its reader."""
    return replace(trace, about=trace.about | {"told": [*trace.about.get("told", ()), line]})


def _bytes(name: str, tensor: Array, precision: Precision) -> int:
    if tensor.dtype.kind in "biu":
        return int(tensor.nbytes)
    return tensor.size * (1 if precision == "uint8" and name.endswith("weights") else 2)


def strongest(trace: Trace, kept: int = KEPT) -> Trace:
    """Of each row of weights the largest, with the places that they are at: `weights` and `places` (H, T, K)."""
    tensors, axes, about = {}, {}, dict(trace.about)
    looked_at = dict(about.get("looked_at", {}))
    for name, tensor in trace.tensors.items():
        tensors[name], axes[name] = tensor, trace.axes[name]
        if not name.endswith(".weights") or tensor.shape[-1] <= kept or axes[name][-1] == "kept":
            continue
        at_HTK = np.argpartition(tensor, -kept, axis=-1)[..., -kept:]
        at_HTK.sort(axis=-1)
        looked_at[name] = axes[name][-1]
        places = name.removesuffix("weights") + "places"
        tensors[name] = np.take_along_axis(tensor, at_HTK, axis=-1)
        tensors[places] = at_HTK.astype(np.uint16 if tensor.shape[-1] <= 1 << 16 else np.int32)
        axes[name] = axes[places] = (*axes[name][:-1], "kept")
    return Trace(trace.tracks, tensors, axes, about | {"looked_at": looked_at})
