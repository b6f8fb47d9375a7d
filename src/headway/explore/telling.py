"""Which head to show first: the one whose attention tells most.

L layers, H heads, T places that look, S places that are looked at, W and V their words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.generate.attention import merge_words
from headway.traces import Array, Trace, Track

MOST = 128  # places of a long text that are measured


def telling_heads(trace: Trace) -> dict[str, tuple[int, int]]:
    """(layer, head) of each kind of attention, by its name: `{"decoder.cross": (1, 3)}`.

    All heads together link each word to one that is looked at; the head that says most of these links is taken. Of a
    translator that is the head that aligns best, as far as one sentence without gold links can tell."""
    found = {}
    for stack, kind in trace.sites():
        layers = trace.layers(stack, f"{kind}.weights")
        said_LHWV = np.stack([information(_over_words(trace, f"{stack}.{layer}.{kind}")) for layer in layers])
        if said_LHWV.size:
            linked_W1 = said_LHWV.sum((0, 1)).argmax(-1)[:, None]
            said_LHWV = np.take_along_axis(said_LHWV, linked_W1[None, None], -1)
        said_LH = said_LHWV.sum((-2, -1))
        layer, head = np.unravel_index(int(said_LH.argmax()), said_LH.shape)
        known = trace.about.get("heads") or range(said_LH.shape[1])
        found[f"{stack}.{kind}"] = (layers[int(layer)], int(known[int(head)]))
    return found


def information(weights_HWV: Array) -> Array:
    """p(w, v) ln(p(w, v) / p(w) p(v)) times the share of the weight that lies on words. Its sum is the mutual
    information of the word that looks and the word that is looked at: none for a head that looks everywhere, or always
    at the same word."""
    total_H11 = weights_HWV.sum((-2, -1), keepdims=True)
    p_HWV = weights_HWV / np.where(total_H11 > 0, total_H11, 1)
    alone_HWV = p_HWV.sum(-1, keepdims=True) * p_HWV.sum(-2, keepdims=True)
    seen_HWV = p_HWV > 0
    ratio_HWV = np.where(seen_HWV, p_HWV, 1) / np.where(seen_HWV, alone_HWV, 1)
    return p_HWV * np.log(ratio_HWV) * total_H11 / max(1, weights_HWV.shape[-2])


def _over_words(trace: Trace, name: str) -> Array:
    """(H, W, V): of a long text the first places."""
    weights_HTS, axes = trace[f"{name}.weights"], trace.axes[f"{name}.weights"]
    if "head" not in axes:
        weights_HTS, axes = weights_HTS[None], ("head", *axes)
    looks, seen = axes[1], trace.about.get("looked_at", {}).get(f"{name}.weights", axes[2])
    if axes[2] == "kept":
        weights_HTS = _spread(weights_HTS[:, :MOST], trace[f"{name}.places"][..., :MOST, :], len(trace.tracks[seen]))
    rows = _owners(trace.tracks[looks])
    if looks != seen:  # a translator's row is of the word that is then written
        rows = [*rows[1:], -1]
    return merge_words(weights_HTS[:, :MOST, :MOST], rows[:MOST], _owners(trace.tracks[seen])[:MOST])


def _spread(weights_HTK: Array, places_HTK: Array, size: int) -> Array:
    """The strongest weights at their places, zeros at the others."""
    whole = np.zeros((*weights_HTK.shape[:-1], size), weights_HTK.dtype)
    np.put_along_axis(whole, places_HTK.reshape(weights_HTK.shape).astype(np.int64), weights_HTK, -1)
    return whole


def _owners(track: Track) -> Sequence[int]:
    """The word of each place, −1 for a special; places without words are their own."""
    if track.words is not None:
        return track.words
    return [-1 if at in track.specials else at for at in range(len(track))]
