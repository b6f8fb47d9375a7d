"""A Whisper from recordings to transcripts: training, resuming, predicting, evaluating."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file

import headway
from headway.errors import InputError
from headway.evaluate.strings import StringErrors
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.transcription import Transcription
from small_runs import told, train_quietly
from speech_world import write_whisper

RATE = 8000
PITCH = {"low": 250, "middle": 800, "high": 2400}
SMALL = (
    "engine.device=cpu", "engine.steps=260", "engine.batch=24", "engine.log=60", "data.rate=8000", "data.window=256",
    "data.hop=160", "model.bands=16", "model.places=26", "model.encoder_layers=1", "model.decoder_layers=1",
    "model.width=32", "model.inner=64", "model.heads=2", "model.dropout=0.0", "model.max_length=12",
    "schedule.peak=0.005", "schedule.warmup=20", "validation.every=130", "validation.score_every=130",
    "data.text.kind=word", "data.text.size=16", "data.text.min_count=1", "data.augment.bands=1", "data.augment.times=1",
    "data.augment.pitch=0", "data.augment.masks=1",
)  # fmt: skip


def said(words: list[str], rng: np.random.Generator) -> np.ndarray:
    """A tone for each word, a pause behind each."""
    parts = []
    for word in words:
        time = np.arange(int(RATE * rng.uniform(0.12, 0.18))) / RATE
        parts += [0.3 * np.sin(2 * np.pi * PITCH[word] * rng.uniform(0.95, 1.05) * time), np.zeros(int(RATE * 0.06))]
    samples = np.concatenate(parts)
    return (samples + 0.005 * rng.standard_normal(len(samples))).astype(np.float32)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("speech"), np.random.default_rng(1)
    lines = ["path,text"]
    for number in range(160):
        words = [str(word) for word in rng.choice(list(PITCH), rng.integers(1, 5))]
        soundfile.write(place / f"{number:03}.wav", said(words, rng), RATE)
        lines.append(f"{number:03}.wav,{' '.join(words)}")
    (place / "all.csv").write_text("\n".join(lines))
    return place / "all.csv"


def train(table: Path, out: Path, *settings: str, resume: bool = False) -> dict[str, Any]:
    run = change(RECIPES["transcribe"].make(), [f"data.train={table}", *SMALL, *settings])
    return train_quietly(run, out, resume).scores


@pytest.fixture(scope="module")
def trained(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    scores = train(table, out)
    assert scores["validation word error rate"] < 20, scores
    return out


def test_a_resumed_run_ends_with_the_same_bits(table: Path, tmp_path: Path) -> None:
    steady = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0")
    settings = (*steady, "model.dropout=0.2", "engine.checkpoint=4", "validation.every=4", "validation.score_every=4")
    train(table, tmp_path / "whole", "engine.steps=12", *settings)
    train(table, tmp_path / "parts", "engine.steps=4", *settings)
    train(table, tmp_path / "parts", "engine.steps=12", *settings, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_figure_is_that_of_jiwer() -> None:
    wanted = ["one two three", "a b", "x y z w"]
    written = ["one too three four", "a b", "y z w"]
    assert StringErrors.of(written, wanted).token_error == pytest.approx(100 * jiwer.wer(wanted, written))


def test_predict_tells_texts_words_and_subtitles(
    table: Path, trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    samples = said(["low", "high", "middle"], np.random.default_rng(9))
    soundfile.write(tmp_path / "talk.wav", samples, RATE)
    soundfile.write(tmp_path / "fast.flac", np.repeat(samples, 2), 2 * RATE)

    talk = tmp_path / "talk.wav"

    def asked(*words: object) -> str:
        return told("predict", trained, talk, *words, capsys=capsys)

    assert asked() == "low high middle\n"
    assert asked(tmp_path / "fast.flac").splitlines()[1].count(" ") == 2
    lines = [line.split("\t") for line in asked("--words").splitlines()]
    assert [word for _, _, word in lines] == ["low", "high", "middle"]
    assert asked("--srt").startswith("1\n00:00:00,000 --> 00:00:00,") and asked("--vtt").startswith(
        "WEBVTT\n\n00:00:00.000"
    )
    found = json.loads(asked("--json"))
    assert found["text"] == "low high middle" and found["segments"][0]["start"] == 0.0
    model = headway.load(trained, "cpu")
    with pytest.raises(InputError, match="choose one of --srt and --vtt"):
        next(Transcription.answer(model, [talk], {"srt": True, "vtt": True}))
    with pytest.raises(InputError, match="--conll has no meaning"):
        next(Transcription.answer(model, [talk], {"conll": True}))


def test_evaluate_gives_the_word_error_rate(table: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told("evaluate", trained, table, "--json", capsys=capsys))
    assert found["recordings"] == 160 and found["word_error_rate"] < 20
    model = headway.load(trained, "cpu")
    rows = [line.split(",") for line in table.read_text().splitlines()[1:41]]
    texts = [one.text for one in model.transcribe([table.parent / name for name, _ in rows])]
    expected = 100 * jiwer.wer([text for _, text in rows], texts)
    assert StringErrors.of(texts, [text for _, text in rows]).token_error == pytest.approx(expected)


def test_words_are_timed_in_order(trained: Path) -> None:
    """How near they are to the truth needs a model that has learned more: benchmarks/speech.py."""
    model = headway.load(trained, "cpu")
    parts = [0.3 * np.sin(2 * np.pi * PITCH[word] * np.arange(1200) / RATE) for word in ("low", "high", "middle")]
    samples = np.concatenate([np.concatenate([part, np.zeros(480)]) for part in parts])
    samples = (samples + 0.005 * np.random.default_rng(3).standard_normal(len(samples))).astype(np.float32)
    words = model.transcribe(samples, words=True).segments[0].words
    assert [word.text for word in words] == ["low", "high", "middle"]
    edges = np.array([(word.start, word.end) for word in words])
    assert (np.diff(edges.T) >= 0).all() and (edges[:, 0] <= edges[:, 1]).all() and edges.max() <= len(samples) / RATE


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["data.augment.mixup=0.5"], "mixup must be 0"),
        (["data.rate=0"], "data.rate must be at least 1"),
        (["model.max_length=3"], "its text has"),
    ],
)
def test_wrong_runs_are_one_line(table: Path, tmp_path: Path, settings: list[str], line: str) -> None:
    with pytest.raises(InputError, match=line):
        train(table, tmp_path / "run", "engine.steps=1", *settings)


def test_an_imported_model_learns_on(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of several languages, with the special tokens before the text; it then writes as it was taught."""
    write_whisper(tmp_path / "whisper")
    small = ("engine.steps=30", "engine.batch=16", "schedule.peak=0.003", "schedule.warmup=5", "engine.average=0")
    how = ("--out", tmp_path / "run", "--device", "cpu", "--set", *small, "validation.sentences=2")
    told(
        "train", "transcribe", "--data", table, "--init", tmp_path / "whisper", *how, "data.language=en", capsys=capsys
    )
    model = headway.load(tmp_path / "run", "cpu")
    assert model.speaking.language == "en" and not model.speaking.timestamps and model.speaking.suppress
    assert told("predict", tmp_path / "run", table.parent / "000.wav", "--device", "cpu", capsys=capsys)
