"""Log-mel spectrograms: how loud a sound is at each pitch, moment by moment. Computed in float64: at the floor, eight
powers of ten below the loudest, float32 would leave three digits.

N samples, F frequencies, M mel bands, T frames.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LINEAR, STEP = 1000.0, 200 / 3  # up to so many hertz the scale is linear, so many of them a mel
LOG_STEP = np.log(6.4) / 27  # above that it is logarithmic


def hertz_to_mel(hertz: Floats) -> Floats:
    """Slaney's scale, as librosa and Whisper have it."""
    linear = hertz / STEP
    return np.where(hertz < LINEAR, linear, LINEAR / STEP + np.log(np.maximum(hertz, LINEAR) / LINEAR) / LOG_STEP)


def mel_to_hertz(mel: Floats) -> Floats:
    edge = LINEAR / STEP
    return np.where(mel < edge, mel * STEP, LINEAR * np.exp(LOG_STEP * (mel - edge)))


@cache
def mel_bands(rate: int, window: int, bands: int) -> Floats:
    """(M, F): triangles on the mel scale from 0 to half the rate, each of area 1."""
    edges = mel_to_hertz(np.linspace(0.0, hertz_to_mel(np.array(rate / 2)), bands + 2))
    hertz_F = np.linspace(0.0, rate / 2, window // 2 + 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (hertz_F - low) / (middle - low), (high - hertz_F) / (high - middle)
    triangles: Floats = np.maximum(0.0, np.minimum(rising, falling)) * (2 / (high - low))
    return triangles


def power(samples_N: NDArray[np.float32], window: int, hop: int) -> Floats:
    """(F, T): |Fourier transform|² of every `hop`-th frame of `window` samples under a Hann window, centred, the ends
    mirrored."""
    half = window // 2
    padded = np.pad(samples_N.astype(np.float64), half, mode="reflect" if len(samples_N) > half else "constant")
    frames_TN = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop]
    hann_N = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    spectrum_TF = np.fft.rfft(frames_TN * hann_N, axis=-1)
    found: Floats = (spectrum_TF.real**2 + spectrum_TF.imag**2).T
    return found


def log_mel(samples_N: NDArray[np.float32], rate: int, window: int, hop: int, bands: int) -> NDArray[np.float32]:
    """(M, T): log₁₀ of the power in each band, not less than 8 below the largest, (x + 4) / 4 of it (Radford et al.
    2023, 2.2); the last frame is left out, as theirs is."""
    power_FT = power(samples_N, window, hop)[:, :-1]
    found = np.log10(np.maximum(mel_bands(rate, window, bands) @ power_FT, 1e-10))
    found = np.maximum(found, found.max(initial=-10.0) - 8.0)
    return ((found + 4.0) / 4.0).astype(np.float32)


KALDI_LOWEST, KALDI_FLOOR, PRE_EMPHASIS = 20.0, 1.192092955078125e-07, 0.97


@cache
def kaldi_bands(rate: int, points: int, bands: int) -> Floats:
    """(M, F): triangles on Kaldi's mel scale, 1127 ln(1 + f/700), from 20 Hz to half the rate, each of height 1."""
    first, last = (1127 * math.log1p(hertz / 700) for hertz in (KALDI_LOWEST, rate / 2))
    edges = np.linspace(first, last, bands + 2)
    mel_F = 1127 * np.log1p(np.arange(points // 2 + 1) * rate / points / 700)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    found: Floats = np.maximum(0.0, np.minimum((mel_F - low) / (middle - low), (high - mel_F) / (high - middle)))
    return found


def kaldi_log_mel(samples_N: NDArray[np.float32], rate: int, window: int, hop: int, bands: int) -> NDArray[np.float32]:
    """(M, T): the natural logarithm of the power in each band, as Kaldi computes it (Povey et al. 2011): only whole
    frames, each without its mean, with pre-emphasis, under a symmetric Hann window."""
    if len(samples_N) < window:
        return np.zeros((bands, 0), np.float32)
    frames_TN = np.lib.stride_tricks.sliding_window_view(samples_N.astype(np.float64), window)[::hop]
    frames_TN = frames_TN - frames_TN.mean(-1, keepdims=True)
    before_TN = np.concatenate([frames_TN[:, :1], frames_TN[:, :-1]], -1)
    hann_N = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / (window - 1))
    points = 1 << (window - 1).bit_length()
    spectrum_TF = np.fft.rfft((frames_TN - PRE_EMPHASIS * before_TN) * hann_N, points, axis=-1)
    power_FT = (spectrum_TF.real**2 + spectrum_TF.imag**2).T
    found: NDArray[np.float32] = np.log(np.maximum(kaldi_bands(rate, points, bands) @ power_FT, KALDI_FLOOR))
    return found.astype(np.float32)
