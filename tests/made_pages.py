"""Pages for the tests: traces of random attention, and the file that a trace becomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headway.explore.pages import page_html
from headway.traces import Trace, Track


def written(path: Path, *traces: bytes) -> Path:
    path.write_text(page_html(traces), encoding="utf-8")
    return path


def made_trace(labels: list[str], layers: int = 1, heads: int = 2, spread: float = 1.5) -> Trace:
    """Causal attention of random scores."""
    rng, n = np.random.default_rng(0), len(labels)
    hidden = ~np.tril(np.ones((n, n), bool))
    tensors = {}
    for layer in range(layers):
        scores = rng.standard_normal((heads, n, n), dtype=np.float32) * np.float32(spread)
        scores[:, hidden] = -np.inf
        e = np.exp(scores - scores.max(-1, keepdims=True))
        tensors[f"decoder.{layer}.attention.weights"] = e / e.sum(-1, keepdims=True)
    track = Track("tokens", "tokens", tuple(labels), tuple(range(n)), text=" ".join(labels))
    axes = dict.fromkeys(tensors, ("head", "tokens", "tokens"))
    return Trace({"tokens": track}, tensors, axes, {"family": "made", "model": "made", "heads": None})
