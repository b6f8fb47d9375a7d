"""Recordings from files and arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from headway.data.sound_files import resampled, sound
from headway.errors import InputError

RATE = 8000
TONE = (0.4 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".aiff"])
def test_every_format_is_read(tmp_path: Path, suffix: str) -> None:
    soundfile.write(tmp_path / f"a{suffix}", TONE, RATE)
    found = sound(tmp_path / f"a{suffix}", RATE)
    assert found.dtype == np.float32 and len(found) == RATE
    assert np.abs(found - TONE).max() < (0.1 if suffix == ".ogg" else 1e-4)


def test_channels_are_averaged_and_only_what_is_needed_is_read(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack([TONE, -TONE / 2], 1), RATE, subtype="FLOAT")
    np.testing.assert_allclose(sound(str(tmp_path / "a.wav"), RATE), TONE / 4, atol=1e-7)
    assert len(sound(tmp_path / "a.wav", RATE, seconds=0.25)) == RATE // 4
    assert len(sound(TONE, RATE, seconds=0.25)) == RATE // 4


def test_another_rate_is_the_same_tone() -> None:
    found = resampled(TONE, RATE, 16000)
    time = np.arange(16000) / 16000
    assert len(found) == 16000
    np.testing.assert_allclose(found[500:-500], 0.4 * np.sin(2 * np.pi * 440 * time)[500:-500], atol=2e-3)
    assert np.array_equal(sound((TONE, RATE), 16000), found)
    whole = (TONE * 32768).round().astype(np.int16)
    np.testing.assert_allclose(sound(whole, RATE), TONE, atol=1e-4)


def test_what_is_no_recording_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_text("no sound")
    soundfile.write(tmp_path / "empty.wav", TONE[:0], RATE)
    for value, line in (
        (tmp_path / "a.wav", "no recording that can be read"), (tmp_path / "b.wav", "there is no recording"),
        (tmp_path, "is a folder"), (tmp_path / "empty.wav", "no sound in it"), (np.zeros(0, np.float32), "no sound"),
        (np.zeros((2, 2, 2)), "a recording is an array"), (np.array([1.0, np.nan]), "no finite numbers"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=line) as told:
            sound(value, RATE)
        assert "\n" not in str(told.value)


def test_a_file_that_lies_about_its_length_gives_what_is_there(tmp_path: Path) -> None:
    """A header that promises two gigabytes, over a second of sound."""
    soundfile.write(tmp_path / "a.wav", TONE, RATE, subtype="PCM_16")
    raw = bytearray((tmp_path / "a.wav").read_bytes())
    at = raw.index(b"data") + 4
    raw[at : at + 4] = (2_000_000_000).to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(bytes(raw))
    try:
        assert len(sound(tmp_path / "a.wav", RATE)) <= RATE
    except InputError as error:
        assert "a.wav" in str(error)
