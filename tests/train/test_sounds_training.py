"""A Transformer over spectrograms from recordings to answers: training, resuming, predicting, evaluating, tracing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file

import headway
from headway.data.sounds import QUIET, SoundAugment, SoundDraws, read_sounds
from headway.errors import InputError
from headway.folder import read_model
from headway.plain import change
from headway.processors.sound import SoundConfig
from headway.recipes import RECIPES
from headway.tasks.loading import load
from small_runs import told, train_quietly

RATE = 8000
SMALL = (
    "engine.device=cpu", "engine.steps=120", "engine.batch=24", "engine.log=60", "data.rate=8000", "data.window=256",
    "data.hop=200", "model.image=16", "model.across=12", "model.patch=4", "model.stem=patches", "model.before=1",
    "head.pooling=mean", "model.layers=1", "model.width=16", "model.inner=32", "model.heads=2", "model.dropout=0.0",
    "schedule.peak=0.01", "schedule.warmup=10", "validation.every=60", "validation.score_every=60",
    "data.augment.shift=2", "data.augment.pitch=0", "data.augment.bands=2", "data.augment.times=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 recordings of a tone each, whose pitch is the label, with noise."""
    place, rng = tmp_path_factory.mktemp("sounds"), np.random.default_rng(1)
    for label, pitch in {"low": 200, "middle": 800, "high": 3000}.items():
        (place / label).mkdir()
        for number in range(30):
            time = np.arange(rng.integers(1500, 2600)) / RATE
            tone = 0.3 * np.sin(2 * np.pi * pitch * rng.uniform(0.9, 1.1) * time)
            samples = tone + 0.02 * rng.standard_normal(len(time))
            soundfile.write(place / label / f"{number:02}.{'flac' if number % 2 else 'wav'}", samples, RATE)
    return place


def train(folder: Path, out: Path, *settings: str, resume: bool = False) -> dict[str, Any]:
    run = change(RECIPES["classify-sounds"].make(), [f"data.train={folder}", *SMALL, *settings])
    return train_quietly(run, out, resume).scores


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert train(folder, out)["validation accuracy"] > 0.9
    return out


def test_a_resumed_run_ends_with_the_same_bits(folder: Path, tmp_path: Path) -> None:
    steady = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0", "data.augment.mixup=0.5")
    settings = (*steady, "model.dropout=0.2", "engine.checkpoint=4", "validation.every=4", "validation.score_every=4")
    train(folder, tmp_path / "whole", "engine.steps=12", *settings)
    train(folder, tmp_path / "parts", "engine.steps=4", *settings)
    train(folder, tmp_path / "parts", "engine.steps=12", *settings, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_recording_is_labelled_from_a_file_and_from_an_array(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(trained, "cpu")
    names = [folder / "low" / "02.wav", folder / "high" / "03.flac"]
    best = [guesses[0].text for guesses in model.classify(names)]
    assert best == ["low", "high"] and model.labels == ("high", "low", "middle")
    samples = [soundfile.read(name, dtype="float32")[0] for name in names]
    assert model.classify(samples) == model.classify([(one, RATE) for one in samples]) == model.classify(names)
    assert model.classify(names[0]) == model.classify(names[:1])[0]
    lines = told("predict", trained, *names, capsys=capsys).splitlines()
    assert [line.split("\t")[0] for line in lines] == best
    with pytest.raises(InputError, match=r"there is no recording a\.wav"):
        model.classify("a.wav")


def test_evaluate_counts_what_predict_gives(folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told("evaluate", trained, folder, "--json", capsys=capsys))
    paths = sorted(path for path in folder.glob("*/*"))
    guesses = load(trained, "cpu").classify(paths)
    right = [guess[0].text == path.parent.name for guess, path in zip(guesses, paths, strict=True)]
    assert found["recordings"] == 90 and found["accuracy"] == pytest.approx(np.mean(right))


def test_a_trace_lies_along_the_patches_and_the_page_is_written(
    folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(folder / "low" / "02.wav")
    trace = load(trained, "cpu").trace(path)
    assert trace.about["grid"] == [4, 3, 1] and trace["encoder.0.attention.weights"].shape == (2, 13, 13)
    assert trace.tensors["pixels"].shape == (16, 12, 1) and trace.about["labels"][0][0] == "low"
    told("explore", trained, "--text", path, "--html", tmp_path / "page.html", capsys=capsys)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert "recordings of 0.3 s at 8,000 Hz, 16 mel bands" in (trained / "model" / "README.md").read_text("utf-8")
    assert read_model(trained).card.task == "sound-classification"
    assert repr(headway.load(trained, "cpu"))


def test_arrays_and_tables_are_read_as_files_are(folder: Path, tmp_path: Path) -> None:
    read = SoundConfig(1, RATE, 16, 12, 256, 200).open(tmp_path).read
    files = [folder / "low" / "02.wav", folder / "high" / "04.wav"]
    wanted = np.stack([read(file) for file in files])
    sounds = [soundfile.read(file, dtype="int16")[0] for file in files]
    arrays = {"sounds": np.concatenate(sounds), "lengths": np.array([*map(len, sounds)]), "rate": np.array(RATE)}
    np.savez(tmp_path / "a.npz", labels=np.array([7, 3]), **arrays)
    found = read_sounds([tmp_path / "a.npz"], read)
    assert found.labels == ("7", "3")
    np.testing.assert_allclose(found.pixels_NCHW, wanted, atol=1e-6)
    (tmp_path / "a.csv").write_text("".join(f"{file},{file.parent.name}\n" for file in files))
    assert np.array_equal(read_sounds([tmp_path / "a.csv"], read).pixels_NCHW, wanted)
    np.savez(tmp_path / "b.npz", labels=np.array([7]), **arrays)
    np.savez(tmp_path / "c.npz", **arrays)
    for name, line in (("b", "lengths must add up"), ("c", "it lacks labels"), ("d", "d.npz")):
        with pytest.raises(InputError, match=line):
            read_sounds([tmp_path / f"{name}.npz"], read)


def test_masks_have_the_mean_and_a_shift_brings_silence() -> None:
    values = np.random.default_rng(3).uniform(-1, 1, (200, 1, 16, 12)).astype(np.float32)
    values[:, 0, 0, 0] = -2  # the silence of each
    zero, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    masked = SoundDraws(SoundAugment(bands=4, times=3), 16, 12).pictures(values, 1).pixels(zero, one)
    whole_rows, whole_columns = (masked == 0).all(3)[:, 0].sum(1), (masked == 0).all(2)[:, 0].sum(1)
    assert whole_rows.max() == 4 and whole_columns.max() == 3 and whole_rows.min() == 0
    drawn = SoundDraws(SoundAugment(shift=5), 16, 12).pictures(values, 2)
    moved, by = drawn.pixels(zero, one), drawn.from_B23[:, 0, 2].int().tolist()
    assert min(by) == -5 and max(by) == 5
    row = by.index(2)
    torch.testing.assert_close(moved[row, 0, :, :10], torch.from_numpy(values[row, 0, :, 2:]), atol=1e-5, rtol=0)
    assert torch.allclose(moved[row, 0, :, 10:], torch.tensor(-2.0))
    assert not QUIET.mixes


@pytest.mark.parametrize(
    ("setting", "line"),
    [("data.rate=0", "data.rate"), ("data.augment.bands=-1", "data.augment.bands"), ("model.across=-1", "model.across"),
     ("model.image=18", "model.image 18")],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(folder: Path, setting: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        change(RECIPES["classify-sounds"].make(), [f"data.train={folder}", *SMALL, setting])
