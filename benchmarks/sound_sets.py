"""Spoken digits, packed as headway reads them (.npz), for machines without libsndfile too.

    python benchmarks/sound_sets.py --data data --out data

FSDD (`fsdd/recordings_0-14.tar.gz`: a name is digit_speaker_take.wav): takes 0 to 4 are the official test, 5 to 14 are
learned from; `sequences-train.npz` and `sequences-test.npz` join several. AudioMNIST (`audiomnist/…npz.xz`, 8-bit
µ-law): five folds of twelve speakers each, in the order of their numbers; `fold-K-test.npz` has those of fold K,
`fold-K-train.npz` all others.
"""

from __future__ import annotations

import argparse
import io
import lzma
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FOLDS = 5


def write(path: Path, sounds: list[Any], labels: list[Any], rate: int, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths = np.array([len(one) for one in sounds])
    np.savez_compressed(
        path, sounds=np.concatenate(sounds), lengths=lengths, rate=np.array(rate), labels=np.array(labels), **more
    )
    print(f"{path}: {len(labels):,} recordings, {lengths.sum() / rate:.0f} s, {path.stat().st_size / 1e6:.1f} MB")


def fsdd_clips(archive: Path) -> Iterator[tuple[int, str, int, Any]]:
    """Digit, speaker, take and samples of each."""
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            if not member.name.endswith(".wav"):
                continue
            digit, speaker, take = Path(member.name).stem.split("_")
            with wave.open(files.extractfile(member)) as recording:
                assert (recording.getframerate(), recording.getsampwidth(), recording.getnchannels()) == (8000, 2, 1)
                samples = np.frombuffer(recording.readframes(recording.getnframes()), np.int16)
            yield int(digit), speaker, int(take), samples


def fsdd(archive: Path, out: Path) -> None:
    parts: dict[str, tuple[list[Any], list[int]]] = {"train": ([], []), "test": ([], [])}
    for digit, _, take, samples in fsdd_clips(archive):
        sounds, labels = parts["test" if take <= 4 else "train"]
        sounds.append(samples)
        labels.append(digit)
    for part, (sounds, labels) in parts.items():
        write(out / f"fsdd/{part}.npz", sounds, labels, 8000)


NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SEQUENCES = {"train": 4000, "test": 300}
DIGITS, PAUSE, ROOM = (2, 6), (0.12, 0.45), 4.9  # digits of a sequence, seconds between two, the longest sequence


def loud(samples: Any, rate: int = 8000) -> tuple[int, int]:
    """The samples from which to which a clip is not silent: frames of 10 ms within 30 dB of its loudest."""
    size = rate // 100
    frames = samples[: len(samples) // size * size].astype(np.float64).reshape(-1, size)
    power = (frames**2).mean(1)
    there = np.flatnonzero(power > power.max() * 1e-3)
    return int(there[0]) * size, int(there[-1] + 1) * size


def sequences(archive: Path, out: Path) -> None:
    """Digits of one speaker, one after the other with pauses of faint noise; `starts` and `ends` say when, in seconds,
    each is said, `counts` how many a sequence has. The test has the takes of the official test alone."""
    clips: dict[tuple[str, str], list[tuple[int, Any]]] = {}
    for digit, speaker, take, samples in fsdd_clips(archive):
        clips.setdefault(("test" if take <= 4 else "train", speaker), []).append((digit, samples))
    speakers = sorted({speaker for _, speaker in clips})
    for part, count in SEQUENCES.items():
        rng = np.random.default_rng(0 if part == "train" else 1)
        sounds, texts, starts, ends, counts = [], [], [], [], []
        while len(sounds) < count:
            known = clips[part, speakers[len(sounds) % len(speakers)]]
            parts, said, at = [], [], 0
            for number in rng.choice(len(known), rng.integers(DIGITS[0], DIGITS[1] + 1), replace=False):
                digit, samples = known[number]
                pause = rng.normal(0, 3, int(8000 * rng.uniform(*PAUSE))).round()
                first, last = loud(samples)
                at += len(pause)
                said.append((digit, (at + first) / 8000, (at + last) / 8000))
                parts += [pause, samples]
                at += len(samples)
            if at / 8000 > ROOM:
                continue
            sounds.append(np.concatenate(parts).astype(np.int16))
            texts.append(" ".join(NAMES[digit] for digit, _, _ in said))
            counts.append(len(said))
            starts += [start for _, start, _ in said]
            ends += [end for _, _, end in said]
        more = {"starts": np.array(starts), "ends": np.array(ends), "counts": np.array(counts)}
        write(out / f"fsdd/sequences-{part}.npz", sounds, texts, 8000, **more)


def expanded(codes: Any) -> Any:
    """µ-law codes of 8 bits as 16-bit samples (ITU-T G.711, µ = 255)."""
    scaled = 2 * (codes.astype(np.float64) / 255) - 1
    return (np.sign(scaled) * (256 ** np.abs(scaled) - 1) / 255 * 32767).round().astype(np.int16)


def audiomnist(file: Path, out: Path) -> None:
    with np.load(io.BytesIO(lzma.decompress(file.read_bytes())), allow_pickle=False) as arrays:
        codes, offsets, speakers, digits = (arrays[name] for name in ("codes", "offsets", "speaker", "digit"))
    sounds = [expanded(codes[start:end]) for start, end in zip(offsets[:-1], offsets[1:], strict=True)]
    there = sorted(set(speakers.tolist()))
    fold_of = {speaker: number * FOLDS // len(there) for number, speaker in enumerate(there)}
    for fold in range(FOLDS):
        held = [fold_of[speaker] == fold for speaker in speakers.tolist()]
        for part, wanted in (("train", False), ("test", True)):
            at = [number for number, one in enumerate(held) if one == wanted]
            write(out / f"audiomnist/fold-{fold}-{part}.npz", [sounds[i] for i in at], digits[at].tolist(), 8000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    fsdd(options.data / "fsdd/recordings_0-14.tar.gz", options.out)
    sequences(options.data / "fsdd/recordings_0-14.tar.gz", options.out)
    audiomnist(options.data / "audiomnist/audiomnist_8khz_mulaw_2takes.npz.xz", options.out)


if __name__ == "__main__":
    main()
