"""Log-mel spectrograms against transformers' Whisper, and a computation by the definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import ASTFeatureExtractor, WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from headway.processors.mel import log_mel, mel_bands, power
from headway.processors.sound import SoundConfig

RNG = np.random.default_rng(3)


def speech(seconds: float = 2.0, rate: int = 16000) -> np.ndarray:
    """Something with loud and silent parts, many pitches, and a hum."""
    time = np.arange(int(seconds * rate)) / rate
    voice = sum(np.sin(2 * np.pi * pitch * time + phase) / n for n, (pitch, phase) in
                enumerate([(140, 0.1), (280, 1.0), (430, 2.0), (1900, 0.3), (3300, 0.9)], 1))  # fmt: skip
    loud = np.clip(np.sin(2 * np.pi * 1.5 * time), 0, None) ** 2
    return (0.3 * loud * voice + 1e-4 * RNG.standard_normal(len(time))).astype(np.float32)


@pytest.mark.parametrize(("rate", "window", "bands"), [(16000, 400, 80), (16000, 400, 128), (8000, 256, 40)])
def test_bands_are_those_of_whisper(rate: int, window: int, bands: int) -> None:
    wanted = mel_filter_bank(window // 2 + 1, bands, 0.0, rate / 2, rate, norm="slaney", mel_scale="slaney")
    np.testing.assert_allclose(mel_bands(rate, window, bands), wanted.T, atol=1e-12)


@pytest.mark.parametrize("bands", [80, 128])
def test_a_spectrogram_is_that_of_whisper(bands: int) -> None:
    samples = speech()
    theirs = WhisperFeatureExtractor(feature_size=bands)
    wanted = theirs(samples, sampling_rate=16000, padding=False, return_tensors="np")["input_features"][0]
    found = log_mel(samples, 16000, 400, 160, bands)
    assert found.shape == wanted.shape == (bands, 200)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_it_is_that_of_the_definition_in_float64() -> None:
    samples, window, hop = speech(0.3), 400, 160
    wave = np.pad(samples.astype(np.float64), 200, mode="reflect")
    hann = torch.hann_window(window, dtype=torch.float64).numpy()
    turns = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(window)) / window)
    starts = range(0, len(samples) - len(samples) % hop, hop)
    wanted = np.stack([np.abs(turns @ (wave[start : start + window] * hann)) ** 2 for start in starts], 1)
    np.testing.assert_allclose(power(samples, window, hop)[:, :-1], wanted, atol=1e-9)
    mel = np.log10(np.maximum(mel_bands(16000, window, 80) @ wanted, 1e-10))
    whole = (np.maximum(mel, mel.max() - 8) + 4) / 4
    np.testing.assert_allclose(log_mel(samples, 16000, window, hop, 80), whole, atol=1e-5)


@pytest.mark.parametrize("samples", [np.zeros(3200, np.float32), np.full(50, 0.1, np.float32)])
def test_silence_and_a_click_are_finite(samples: np.ndarray) -> None:
    found = log_mel(samples, 16000, 400, 160, 80)
    assert np.isfinite(found).all() and found.shape[0] == 80


@pytest.mark.parametrize("seconds", [0.9, 2.0])
def test_kaldis_spectrogram_is_that_of_transformers(seconds: float) -> None:
    """In float32 theirs has a few digits less where there is no sound."""
    samples = speech(seconds)
    theirs = ASTFeatureExtractor(num_mel_bins=64, max_length=100, do_normalize=False)
    wanted = theirs(samples, sampling_rate=16000, return_tensors="np")["input_values"][0]
    found = SoundConfig(1, 16000, 64, 100, kind="kaldi").open(Path()).read(samples)
    assert found.shape == (1, 64, 100)
    np.testing.assert_allclose(found[0].T, wanted, atol=1e-3)
