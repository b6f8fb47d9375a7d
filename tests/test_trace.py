"""A trace as a value and as a file: what is asked of it, and what comes back from a disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as from_torch

from headway.errors import InputError
from headway.traces import FORMAT, HEADER, Trace, Track

TEXT = "the animal did not cross"


def made(places: int = 5, layers: int = 3, heads: int = 4) -> Trace:
    draw = np.random.default_rng(0)
    words = TEXT.split()[:places]
    labels = tuple(words) + tuple(f"w{n}" for n in range(places - len(words)))
    track = Track("tokens", "tokens", labels, tuple(range(places)), tuple(range(places)), labels, (0,), None, TEXT)
    tensors, axes = {}, {}
    for n in range(layers):
        scores = draw.normal(0, 3, (heads, places, places))
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        for what, values, along in (
            ("attention.weights", weights, ("head", "tokens", "tokens")),
            ("attention.mask", np.tri(places, dtype=bool), ("tokens", "tokens")),
            ("hidden", draw.normal(0, 30, (places, 6)), ("tokens", "unit")),
        ):
            tensors[f"decoder.{n}.{what}"] = values if values.dtype == bool else values.astype(np.float32)
            axes[f"decoder.{n}.{what}"] = along
    tensors["logits"], axes["logits"] = draw.normal(0, 9, (places, 11)).astype(np.float32), ("tokens", "vocabulary")
    return Trace({"tokens": track}, tensors, axes, {"family": "gpt", "heads": None, "next": {"ids": [[1, 2]]}})


def test_it_knows_its_layers_its_sites_and_its_attention():
    trace = made()
    assert trace.sites() == [("decoder", "attention")] and trace.layers("decoder", "hidden") == [0, 1, 2]
    assert trace.attention().shape == (3, 4, 5, 5) and trace.stacked("decoder", "hidden").shape == (3, 5, 6)
    np.testing.assert_array_equal(trace.attention("decoder", "attention")[1], trace["decoder.1.attention.weights"])
    assert "logits" in trace and list(trace)[0] == "decoder.0.attention.weights" and len(trace) == 10


def test_a_smaller_one_keeps_the_models_own_numbers():
    trace = made()
    small = trace.only(layers=[2, 0], heads=[3, 1], tensors=["weights", "hidden"])
    assert set(small) == {f"decoder.{n}.{what}" for n in (0, 2) for what in ("attention.weights", "hidden")}
    assert small.about["heads"] == [3, 1] and trace.about["heads"] is None
    np.testing.assert_array_equal(small.attention()[1], trace["decoder.2.attention.weights"][[3, 1]])
    smaller = small.only(heads=[1], tensors="weights")
    np.testing.assert_array_equal(smaller.attention()[0, 0], trace["decoder.0.attention.weights"][1])
    with pytest.raises(InputError, match="no head 0; there is: 3, 1"):
        small.only(heads=[0])


@pytest.mark.parametrize(
    ("precision", "step"),  # of weights: half a step of the last digit
    [("float32", 0.0), ("float16", 2.0**-12), ("uint8", 0.5 / 255 + 1e-7)],
)
def test_what_is_read_back_is_equal_at_its_stored_precision(tmp_path: Path, precision, step):
    trace = made()
    trace.save(tmp_path / "a.safetensors", precision)
    back = Trace.load(tmp_path / "a.safetensors")
    assert back.tracks == trace.tracks and back.axes == trace.axes and list(back) == list(trace)
    assert back.about == trace.about | {"stored": precision}
    half = np.float32 if precision == "float32" else np.float16
    for name in trace:
        if name.endswith("weights"):
            np.testing.assert_allclose(back[name], trace[name], rtol=0, atol=step)
        elif name.endswith("mask"):
            assert back[name].dtype == bool and (back[name] == trace[name]).all()
        else:
            np.testing.assert_array_equal(back[name], trace[name].astype(half).astype(np.float32))
        assert back[name].dtype in (np.float32, bool)
    # And once more: what was rounded stays as it is.
    back.save(tmp_path / "b.safetensors", precision)
    again = Trace.load(tmp_path / "b.safetensors")
    for name in trace:
        np.testing.assert_allclose(again[name], back[name], rtol=1e-6, atol=0)


def test_the_header_says_how_numbers_come_back(tmp_path: Path):
    """Read as somebody would who has safetensors and JSON alone."""
    trace = made()
    path = trace.save(tmp_path / "a.safetensors", "uint8")
    raw = load_file(path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"][HEADER])
    name = "decoder.1.attention.weights"
    assert raw[name].dtype == np.uint8 and raw["logits"].dtype == np.float16
    np.testing.assert_allclose(raw[name] * raw[header["scales"][name]][..., None], trace[name], atol=0.5 / 255 + 1e-7)
    assert trace.to_bytes("uint8") == path.read_bytes()
    assert header["format"] == FORMAT and header["axes"][name] == ["head", "tokens", "tokens"]
    assert header["tracks"][0]["labels"] == TEXT.split()


def test_even_rows_of_a_long_text_keep_their_digits_in_eight_bits(tmp_path):
    weights_HTS = np.tril(np.ones((1, 900, 900), np.float32)) / np.arange(1, 901, dtype=np.float32)[:, None]
    places_HTS = np.arange(900 * 900, dtype=np.int32).reshape(1, 900, 900)
    names = ("decoder.0.attention.weights", "decoder.0.attention.places")
    axes = dict.fromkeys(names, ("head", "tokens", "tokens"))
    tensors = dict(zip(axes, (weights_HTS, places_HTS), strict=True))
    track = Track("tokens", "tokens", tuple("a" * 900))
    back = Trace.load(Trace({"tokens": track}, tensors, axes, {}).save(tmp_path / "long.safetensors", "uint8"))
    np.testing.assert_allclose(back["decoder.0.attention.weights"], weights_HTS, rtol=1e-6)
    np.testing.assert_array_equal(back["decoder.0.attention.places"], places_HTS)
    assert list(back) == list(axes)


def test_a_number_too_large_for_half_precision_is_kept(tmp_path: Path):
    trace = made()
    trace.tensors["logits"][0, 0] = 1e6
    back = Trace.load(trace.save(tmp_path / "a.safetensors", "float16"))
    assert back["logits"][0, 0] == 1e6


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path):
    path = made().save(tmp_path / "a.safetensors")
    whole = path.read_bytes()
    header = {"format": FORMAT + 1, "from": "the future"}
    save_file({"x": np.zeros(2)}, tmp_path / "later", {HEADER: json.dumps(header)})
    save_file({"x": np.zeros(2)}, tmp_path / "foreign")
    save_file({"x": np.zeros(2)}, tmp_path / "odd", {HEADER: "[1]"})
    save_file({"x": np.zeros(2)}, tmp_path / "bare", {HEADER: json.dumps({"format": 1})})
    stretched = {"format": 1, "precision": "uint8", "tracks": [], "axes": {}, "scales": {"a": "s"}, "about": {}}
    tensors = {"a": np.zeros((1, 1, 600), np.uint8), "s": np.zeros((600, 600), np.float32)}
    save_file(tensors, tmp_path / "stretched", {HEADER: json.dumps(stretched)})
    save_file({"x": np.zeros(2)}, tmp_path / "deep", {HEADER: "[" * 20_000 + "]" * 20_000})
    without = {"format": 1, "tracks": [], "scales": {}, "axes": {"y": []}, "about": {}, "precision": "float32"}
    save_file({"x": np.zeros(2)}, tmp_path / "without", {HEADER: json.dumps(without)})
    save_file({"x": np.zeros(2)}, tmp_path / "half", {HEADER: json.dumps(without | {"about": {"model": "\ud800"}})})
    from_torch({"x": torch.zeros(2, dtype=torch.bfloat16)}, tmp_path / "other", {HEADER: json.dumps(without)})
    (tmp_path / "short").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text").write_text("not at all")
    for name, said in {
        "later": f"has trace format {FORMAT + 1}, this headway reads up to {FORMAT}: upgrade headway",
        "foreign": "is no trace: a safetensors file without headway's header",
        "odd": "must hold an object with keys, not a list",
        "deep": "is nested too deeply",
        "stretched": "has no scale for each row",
        "bare": "is broken: its header does not fit",
        "without": "is broken: its header does not fit .it lacks 'y'",
        "half": "has half a character",
        "other": "is broken.*(bfloat16|it lacks)",  # the former where numpy has no such type
        "short": "is broken",
        "text": "is no trace: those are safetensors files",
        "missing": "there is no file",
    }.items():
        with pytest.raises(InputError, match=said) as caught:
            Trace.load(tmp_path / name)
        assert "\n" not in str(caught.value) and name in str(caught.value)


def test_a_head_that_is_named_a_thousand_times_is_kept_once():
    trace = made()
    (name,) = [name for name in trace if "head" in trace.axes[name]][:1]
    some = trace.only(heads=[1] * 1000)
    assert some[name].shape[trace.axes[name].index("head")] == 1 and some.about["heads"] == [1]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch):
    path = made().save(tmp_path / "a.safetensors")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="cannot write .*a.safetensors: no room left on the disk"):
        made(4).save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_what_does_not_fit_and_what_is_not_there_is_said():
    trace = made()
    with pytest.raises(ValueError, match="does not fit its axes"):
        Trace(trace.tracks, {"x": np.zeros((3, 6))}, {"x": ("tokens", "unit")})
    with pytest.raises(InputError, match="no tensor 'logit'; did you mean 'logits'"):
        trace["logit"]
    with pytest.raises(InputError, match=r"no attention weights at decoder\.cross; there is: decoder\.attention"):
        trace.attention("decoder", "cross")
    with pytest.raises(InputError, match="no precision 'int4'"):
        trace.save("x", "int4")  # type: ignore[arg-type]
