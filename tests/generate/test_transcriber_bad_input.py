"""Recordings that are broken, silent, or very long: one clear line, or an answer in little memory."""

from __future__ import annotations

import io
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import headway
from headway.data.sound_files import blocks, pcm, sound
from headway.errors import InputError
from headway.generate.listening import Listening
from speech_world import write_whisper

QUICK = {"most": 2, "temperatures": (0.0,), "language": "en"}


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder)
    return headway.load(folder, "cpu")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("empty.wav", b"", "no recording that can be read"),
        ("text.wav", b"This is no sound at all, only a text.\n" * 9, "no recording that can be read"),
        ("none.wav", None, "there is no recording"),
        ("header.wav", b"RIFF\x24\x00\x00\x00WAVEfmt ", "no recording that can be read"),
    ],
)
def test_what_is_no_recording_is_one_line(mine: Any, tmp_path: Path, name: str, content: Any, line: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=line) as told:
        mine.transcribe(path)
    assert "\n" not in str(told.value) and name in str(told.value)


def test_a_recording_without_samples_is_refused(mine: Any, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "nothing.wav", np.zeros(0, np.float32), 16000)
    with pytest.raises(InputError, match="has no sound in it"):
        mine.transcribe(tmp_path / "nothing.wav")
    with pytest.raises(InputError, match="has no sound in it"):
        mine.transcribe(np.zeros(0, np.float32))
    with pytest.raises(InputError, match="no finite numbers"):
        mine.transcribe(np.full(100, np.nan, np.float32))


def test_a_wav_that_lies_about_its_length_gives_what_is_there(mine: Any, tmp_path: Path) -> None:
    """A header that promises four gigabytes, and one that promises less than there is."""
    samples = (0.1 * np.random.default_rng(1).standard_normal(20_000)).astype(np.float32)
    soundfile.write(tmp_path / "true.wav", samples, 16000, subtype="PCM_16")
    raw = bytearray((tmp_path / "true.wav").read_bytes())
    at = raw.index(b"data") + 4
    raw[at : at + 4] = (0xFFFFFF00).to_bytes(4, "little")
    (tmp_path / "long.wav").write_bytes(raw)
    raw[at : at + 4] = (8000).to_bytes(4, "little")
    (tmp_path / "short.wav").write_bytes(raw)
    assert len(sound(tmp_path / "long.wav", 16000)) == 20_000
    assert sum(map(len, blocks(tmp_path / "long.wav", 16000))) == 20_000
    assert mine.transcribe(tmp_path / "long.wav", **QUICK).text == mine.transcribe(tmp_path / "true.wav", **QUICK).text
    assert sum(map(len, blocks(tmp_path / "short.wav", 16000))) == 4000
    mine.transcribe(tmp_path / "short.wav", **QUICK)


def test_silence_is_an_answer(mine: Any) -> None:
    mine.transcribe(np.zeros(16_000, np.float32), words=True, **QUICK)
    found = mine.transcribe(np.zeros(16_000, np.float32), no_speech=-1.0, logprob=0.0, **QUICK)
    assert found.text == "" and found.segments == []


def test_blocks_are_the_recording_resampled(tmp_path: Path) -> None:
    samples = np.sin(2 * np.pi * 300 * np.arange(44_100 * 3) / 44_100).astype(np.float32)
    soundfile.write(tmp_path / "tone.flac", np.stack([samples, samples], 1), 44_100)
    whole = sound(tmp_path / "tone.flac", 16000)
    found = np.concatenate(list(blocks(tmp_path / "tone.flac", 16000, seconds=0.7)))
    assert abs(len(found) - len(whole)) <= 2
    np.testing.assert_allclose(found[2000:-2000], whole[2000 : len(found) - 2000], atol=2e-3)


def test_windows_never_hold_more_than_they_need() -> None:
    """Ten hours, half a second at a time."""
    block, count = np.zeros(8000, np.float32), 0

    def coming() -> Iterator[np.ndarray]:
        nonlocal count
        for _ in range(72_000):
            count += 1
            yield block

    listening, at = Listening(coming(), 16000), 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while len(window_N := listening.window(at, 480_000)):
        assert len(listening._held_N) <= 480_000 + 8000
        at += len(window_N)
    assert at == 36_000 * 16_000 and count == 72_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # kilobytes


def test_raw_samples_come_as_they_come() -> None:
    samples = np.arange(-500, 500, dtype=np.int16)
    found = np.concatenate(list(pcm(io.BytesIO(samples.tobytes() + b"\x01"), block=333)))
    assert np.array_equal(found, samples)


def test_what_is_heard_live_is_told_before_its_window_is_full(mine: Any) -> None:
    """Looked at each quarter of a second: segments come in order, and all of the recording is heard."""
    samples = (0.1 * np.random.default_rng(4).standard_normal(50_000)).astype(np.float32)
    heard: list[int] = []

    def coming() -> Iterator[np.ndarray]:
        for start in range(0, len(samples), 2000):
            heard.append(start)
            yield samples[start : start + 2000]

    first, edges = None, []
    for segment in mine.stream(coming(), every=0.25, language="en", temperatures=(0.0,)):
        first = len(heard) if first is None else first
        edges.append((segment.start, segment.end))
    assert edges and edges == sorted(edges) and len(heard) == 25
    assert first is not None and first < 25
