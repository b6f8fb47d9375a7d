"""Held-out pairs from a corpus that has none: by the source text, so that no held-out source is ever trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from headway.data.readers import read_pairs
from headway.errors import InputError

PARTS = ("train", "valid", "test")


def split_corpus(
    files: Sequence[str | Path], folder: Path, hold_out: int, source: str, target: str
) -> dict[str, tuple[Path, Path]]:
    """Write `train`, `valid` and `test` files below `folder`, about `hold_out` pairs each in the last two.

    Which part a pair belongs to is a hash of its source text: the same on every machine, and for all
    translations of one source alike.
    """
    count = sum(1 for _ in read_pairs(files, source, target))
    share = min(hold_out, count // 10) / max(count, 1)
    if share == 0:
        raise InputError(f"{count} pairs are too few to hold some out: give --valid files, or more data")
    folder.mkdir(parents=True, exist_ok=True)
    # Not by their languages: both sides may have the same one, and some names mean another form (`tsv`).
    paths = {part: (folder / f"{part}.source", folder / f"{part}.target") for part in PARTS}
    streams = {part: tuple(path.open("w", encoding="utf-8", newline="\n") for path in paths[part]) for part in PARTS}
    filled = set()
    try:
        for pair in read_pairs(files, source, target):
            part = _part(pair[0], share)
            filled.add(part)
            for stream, text in zip(streams[part], pair, strict=True):
                # A JSON string may hold a line break, which would shift every pair after it.
                stream.write(text.replace("\n", " ") + "\n")
    finally:
        for pair_of_streams in streams.values():
            for stream in pair_of_streams:
                stream.close()
    if filled != set(PARTS):
        raise InputError(f"{count} pairs are too few, or too much alike, to hold some out: give --valid and --test")
    return paths


def _part(text: str, share: float) -> str:
    digest = hashlib.blake2b(text.strip().lower().encode(), digest_size=8).digest()
    place = int.from_bytes(digest) / 2**64
    return "valid" if place < share else "test" if place < 2 * share else "train"
