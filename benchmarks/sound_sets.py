"""Spoken digits, packed as headway reads them (.npz), for machines without libsndfile too.

    python benchmarks/sound_sets.py --data data --out data

FSDD (`fsdd/recordings_0-14.tar.gz`: a name is digit_speaker_take.wav): takes 0 to 4 are the official test, 5 to 14 are
learned from. AudioMNIST (`audiomnist/…npz.xz`, 8-bit µ-law): five folds of twelve speakers each, in the order of their
numbers; `fold-K-test.npz` has those of fold K, `fold-K-train.npz` all others.
"""

from __future__ import annotations

import argparse
import io
import lzma
import tarfile
import wave
from pathlib import Path
from typing import Any

import numpy as np

FOLDS = 5


def write(path: Path, sounds: list[Any], labels: list[int], rate: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths = np.array([len(one) for one in sounds])
    np.savez_compressed(
        path, sounds=np.concatenate(sounds), lengths=lengths, rate=np.array(rate), labels=np.array(labels)
    )
    print(f"{path}: {len(labels):,} recordings, {lengths.sum() / rate:.0f} s, {path.stat().st_size / 1e6:.1f} MB")


def fsdd(archive: Path, out: Path) -> None:
    parts: dict[str, tuple[list[Any], list[int]]] = {"train": ([], []), "test": ([], [])}
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            if not member.name.endswith(".wav"):
                continue
            digit, _, take = Path(member.name).stem.split("_")
            with wave.open(files.extractfile(member)) as recording:
                assert (recording.getframerate(), recording.getsampwidth(), recording.getnchannels()) == (8000, 2, 1)
                samples = np.frombuffer(recording.readframes(recording.getnframes()), np.int16)
            sounds, labels = parts["test" if int(take) <= 4 else "train"]
            sounds.append(samples)
            labels.append(int(digit))
    for part, (sounds, labels) in parts.items():
        write(out / f"fsdd/{part}.npz", sounds, labels, 8000)


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
    audiomnist(options.data / "audiomnist/audiomnist_8khz_mulaw_2takes.npz.xz", options.out)


if __name__ == "__main__":
    main()
