"""Traces written by hand, word by word, of one text or of two, and a model that hands them over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from headway.explore.analyses.analysis import Traced
from headway.traces import Trace, Track


def words_of(name: str, text: str, *, opening: int = 0, closing: int = 0) -> Track:
    """A place a word, with specials around them."""
    spans = [found.span() for found in re.finditer(r"\S+", text)]
    labels = ("<s>",) * opening + tuple(text[a:b] for a, b in spans) + ("</s>",) * closing
    places = ((0, 0),) * opening + tuple(spans) + ((0, 0),) * closing
    specials = (*range(opening), *range(len(labels) - closing, len(labels)))
    return Track(name, "tokens", labels, specials=specials, spans=places, text=text)


def of_one_text(text: str, tensors: dict[str, Any], **around: int) -> Trace:
    """`tensors` by name: attention is (heads, places, places), what else there is (places, units)."""
    axes = {name: ("head", "tokens", "tokens") if name.endswith("weights") else ("tokens", "unit") for name in tensors}
    arrays = {name: np.asarray(one, dtype=np.float64) for name, one in tensors.items()}
    return Trace({"tokens": words_of("tokens", text, **around)}, arrays, axes, {"family": "by hand"})


def of_two_texts(source: str, target: str, cross_LHTS: Any, more: dict[str, Any] | None = None) -> Trace:
    """As a translator's: the source with its end, what the decoder reads with its start."""
    tracks = {
        "source": words_of("source", source, closing=1),
        "target": words_of("target", target, opening=1),
    }
    tensors = {f"decoder.{n}.cross.weights": np.asarray(one, np.float64) for n, one in enumerate(cross_LHTS)}
    axes: dict[str, tuple[str, ...]] = dict.fromkeys(tensors, ("head", "target", "source"))
    for name, one in (more or {}).items():
        side = "source" if name.startswith("encoder") else "target"
        tensors[name], axes[name] = np.asarray(one, np.float64), ("head", side, side)
    return Trace(tracks, tensors, axes, {"family": "by hand"})


class ByHand:
    """What `headway.load` would give."""

    takes = "target"

    def __init__(self, make: Callable[..., Trace]) -> None:
        self.make = make

    def trace(self, *texts: str, **how: Any) -> Trace:
        return self.make(*texts)


def traced(make: Callable[..., Trace], **how: Any) -> Traced:
    return Traced(ByHand(make), ("weights",), **how)


def column(table: Any, name: str, **where: Any) -> list[Any]:
    """A column of the rows that are so."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return [row[name] for row in rows if all(row[key] == value for key, value in where.items())]
