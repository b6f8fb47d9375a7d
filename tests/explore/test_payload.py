"""A trace as bytes for the page: whole, smaller, or the strongest weights alone; each row keeps its own digits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load

from headway.errors import InputError
from headway.explore.payload import KEPT, payload, strongest
from headway.traces import Trace, Track


def weights_of(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    e = np.exp(np.random.default_rng(seed).normal(size=shape)).astype(np.float32)
    return e / e.sum(-1, keepdims=True)


def trace_of(length: int, layers: int = 1, heads: int = 2, vectors: bool = True) -> Trace:
    tracks = {"tokens": Track.numbered("tokens", length)}
    tensors = {f"decoder.{n}.attention.weights": weights_of((heads, length, length), n) for n in range(layers)}
    axes = dict.fromkeys(tensors, ("head", "tokens", "tokens"))
    if vectors:
        for end, named in (("attention.queries", ("head", "tokens", "key_unit")), ("hidden", ("tokens", "unit"))):
            tensors[f"decoder.0.{end}"] = np.ones([heads, length, 4][3 - len(named) :], np.float32)
            axes[f"decoder.0.{end}"] = named
    return Trace(tracks, tensors, axes, {"family": "gpt", "heads": None})


def read(data: bytes) -> tuple[dict, dict[str, np.ndarray]]:
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["headway.trace"])
    return header, load(data)


def test_a_small_trace_is_what_save_writes(tmp_path):
    trace = trace_of(6)
    path = trace.save(tmp_path / "a.safetensors")
    ours, theirs = read(payload(trace)), read(path.read_bytes())
    assert ours[0]["about"].pop("first") == {"decoder.attention": [0, 1]}
    assert ours[0] == theirs[0]
    for name in trace:
        np.testing.assert_array_equal(ours[1][name], theirs[1][name])


def test_what_is_too_large_leaves_out_vectors_then_digits_then_weak_weights():
    trace = trace_of(100)
    seen = []
    for most in (200_000, 41_000, 20_500, 19_500):
        header, tensors = read(payload(trace, most))
        stored = tensors["decoder.0.attention.weights"]
        seen.append(
            ("decoder.0.attention.queries" in tensors, "decoder.0.hidden" in tensors, stored.dtype, stored.shape)
        )
        assert (len(header["about"].get("told", ())) > 0) == (most < 200_000)
        assert sum(tensor.nbytes for name, tensor in tensors.items() if not name.endswith("scale")) <= most
    half, byte = np.dtype(np.float16), np.dtype(np.uint8)
    assert seen == [
        (True, True, half, (2, 100, 100)), (False, True, half, (2, 100, 100)),
        (False, False, byte, (2, 100, 100)), (False, False, byte, (2, 100, KEPT)),
    ]  # fmt: skip
    with pytest.raises(InputError, match="MB where 0 can be shown: choose layers or heads"):
        payload(trace, 1000)


def test_an_even_row_of_a_long_text_keeps_its_digits():
    length = 600
    weights = np.tril(np.ones((1, length, length), np.float32))
    weights /= weights.sum(-1, keepdims=True)
    tracks, axes = {"tokens": Track.numbered("tokens", length)}, {"d.0.attention.weights": ("head", "tokens", "tokens")}
    header, tensors = read(Trace(tracks, {"d.0.attention.weights": weights}, axes).to_bytes("uint8"))
    scale = tensors[header["scales"]["d.0.attention.weights"]]
    again = tensors["d.0.attention.weights"] * scale[..., None]
    np.testing.assert_allclose(again, weights, rtol=1e-5)


def test_the_strongest_weights_are_the_largest_of_each_row_with_their_places():
    trace = trace_of(80, vectors=False)
    thin = strongest(trace, 5)
    weights = trace["decoder.0.attention.weights"]
    kept, places = thin["decoder.0.attention.weights"], thin.tensors["decoder.0.attention.places"]
    assert kept.shape == (2, 80, 5) and thin.about["looked_at"] == {"decoder.0.attention.weights": "tokens"}
    np.testing.assert_array_equal(np.sort(kept), np.sort(weights)[..., -5:])
    np.testing.assert_array_equal(np.take_along_axis(weights, places.astype(int), -1), kept)
