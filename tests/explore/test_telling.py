"""The head that the page opens on: sharp, different for different words, and at one with the other heads."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

import headway.explore.telling as telling
from headway.explore.payload import payload, strongest
from headway.explore.telling import information, telling_heads
from headway.traces import Trace, Track


def spread(rows: int, columns: int, at: list[int], share: float = 0.9) -> np.ndarray:
    """Rows that look at one place each, and a little at all."""
    weights = np.full((rows, columns), (1 - share) / columns)
    weights[np.arange(rows), at] += share
    return weights


def test_the_measure_is_scikit_learns_mutual_information_where_all_weight_lies_on_words():
    counts_HWV = np.random.default_rng(0).multinomial(20, [0.6, 0.3, 0.1, 0], (3, 6))
    weights_HWV = counts_HWV / 20
    expected = [mutual_info_score(None, None, contingency=one) for one in counts_HWV]
    np.testing.assert_allclose(information(weights_HWV).sum((1, 2)), expected, atol=1e-12)
    np.testing.assert_allclose(information(0.5 * weights_HWV).sum((1, 2)), np.array(expected) / 2, atol=1e-12)
    assert not information(np.zeros((1, 2, 3))).any()


def translation(heads: list[np.ndarray], kept: list[int] | None = None) -> Trace:
    """Two layers of cross-attention; the heads are those of the second, the first looks everywhere alike."""
    source = Track("source", "tokens", ("the", "red", "c", "ar", "</s>"), (), (0, 1, 2, 2, -1), specials=(4,))
    target = Track("target", "tokens", ("<s>", "la", "voiture", "rouge"), (), (-1, 0, 1, 2), specials=(0,))
    even = np.full((len(heads), 4, 5), 0.2)
    tensors = {"decoder.0.cross.weights": even, "decoder.1.cross.weights": np.stack(heads)}
    axes = dict.fromkeys(tensors, ("head", "target", "source"))
    return Trace({"source": source, "target": target}, tensors, axes, {"heads": kept})


@pytest.mark.parametrize("kept", [None, [2, 5, 7]])
def test_the_head_that_aligns_is_found_and_not_one_that_is_only_sharp(kept):
    at_one_word, at_the_end = spread(4, 5, [0, 0, 0, 0], 0.99), spread(4, 5, [4, 4, 4, 4], 0.99)
    aligned = spread(4, 5, [0, 3, 1, 4])
    trace = translation([at_one_word, at_the_end, aligned], kept)
    assert telling_heads(trace) == {"decoder.cross": (1, kept[2] if kept else 2)}
    header = payload(trace)
    told = json.loads(json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])["__metadata__"]["headway.trace"])
    assert told["about"]["first"] == {"decoder.cross": [1, kept[2] if kept else 2]}


def test_a_sharp_head_that_is_a_word_late_is_not_the_one_that_aligns():
    """It looks at the source of the word that was just read: as sharp, but other heads do not agree."""
    late = spread(4, 5, [4, 0, 3, 1], 0.95)
    vague = [spread(4, 5, [0, 2, 1, 4], 0.5), spread(4, 5, [0, 3, 1, 4], 0.6)]
    assert telling_heads(translation([late, *vague])) == {"decoder.cross": (1, 2)}


def test_of_a_long_text_and_of_the_strongest_weights_it_is_the_same_head(monkeypatch):
    rng, n = np.random.default_rng(1), 70
    heads = np.stack([spread(n, n, [0] * n), spread(n, n, list(rng.permutation(n))), np.full((n, n), 1 / n)])
    track = Track.numbered("tokens", n)
    trace = Trace({"tokens": track}, {"encoder.0.attention.weights": heads},
                  {"encoder.0.attention.weights": ("head", "tokens", "tokens")})  # fmt: skip
    assert telling_heads(trace) == telling_heads(strongest(trace)) == {"encoder.attention": (0, 1)}
    monkeypatch.setattr(telling, "MOST", 40)
    assert telling_heads(trace) == telling_heads(strongest(trace)) == {"encoder.attention": (0, 1)}
