"""A model whose attention is written by hand, for analyses that read traces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from headway.traces import Trace, Track

FRAME = ("[CLS]", "[SEP]")


class HandMade:
    """Words and signs are pieces, long words are two; a frame around them. `attention(labels)` gives (L, H, T, T);
    a causal one hides what comes later, whatever it gives."""

    takes = "pair"

    def __init__(self, attention: Callable[[list[str]], Any], causal: bool = False, longest: int = 100) -> None:
        self.attention, self.causal, self.longest = attention, causal, longest

    def trace(self, text: str, second: str | None = None, **how: Any) -> Trace:
        spans = []
        for hit in re.finditer(r"\w+|[^\w\s]", text):
            middle = hit.start() + self.longest
            spans += [(hit.start(), min(middle, hit.end())), *([(middle, hit.end())] if middle < hit.end() else [])]
        spans = [(0, 0), *spans, (0, 0)]
        labels = [FRAME[0], *(text[start:end] for start, end in spans[1:-1]), FRAME[1]]
        track = Track(
            "tokens", "tokens", tuple(labels), specials=(0, len(labels) - 1), spans=tuple(spans), text=text
        )  # fmt: skip
        visible = np.tri(len(labels), dtype=bool) if self.causal else np.ones((len(labels),) * 2, bool)
        weights = np.asarray(self.attention(labels), dtype=np.float32) * visible
        tensors: dict[str, Any] = {}
        for layer, heads in enumerate(weights):
            tensors[f"encoder.{layer}.attention.weights"] = heads
            tensors[f"encoder.{layer}.attention.mask"] = visible
        axes = {name: ("head", "tokens", "tokens")[-value.ndim :] for name, value in tensors.items()}
        return Trace({"tokens": track}, tensors, axes, {"family": "made by hand"})


def pointing(length: int, where: Callable[[int], int]) -> np.ndarray:
    """One head: all weight of each place on another, as far as there is one."""
    weights = np.zeros((length, length))
    for t in range(length):
        weights[t, min(max(where(t), 0), length - 1)] = 1
    return weights
