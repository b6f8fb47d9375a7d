"""Text that is held out of a corpus which has none: the same for all models, and never trained on.

Pairs by a hash of the source text, documents by a hash of their text, one long text by its last characters.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from headway.data.documents import PIECE, Documents, Piece, cut_up
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
    paths = held_out(folder)
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


def held_out(folder: Path) -> dict[str, tuple[Path, Path]]:
    """The files of each part."""
    # Not by their languages: both sides may have the same one, and some names mean another form (`tsv`).
    return {part: (folder / f"{part}.source", folder / f"{part}.target") for part in PARTS}


def _part(text: str, share: float) -> str:
    digest = hashlib.blake2b(text.strip().lower().encode(), digest_size=8).digest()
    place = int.from_bytes(digest) / 2**64
    return "valid" if place < share else "test" if place < 2 * share else "train"


@final
@dataclass(frozen=True)
class HeldOut:
    """Which documents of a corpus are held out.

    Of several the `share` with the smallest hashes of their text, white space and case apart (at least one of them,
    and all copies of one text alike): the same whatever their order. Of a single one the last `share` of its
    characters: all but the first int(n · (1 − share)), as nanoGPT cuts Shakespeare.
    """

    documents: Documents
    share: float

    @cached_property
    def plan(self) -> tuple[int, NDArray[np.bool_]]:
        """How many characters of a single document are for training, and which of several documents are held out."""
        hashes, characters = array("Q"), 0
        for text in self.documents.texts():
            digest, characters = hashlib.blake2b(digest_size=8), 0
            for some in text:
                characters += len(some)
                digest.update("".join(some.split()).casefold().encode())
            # What is empty is never held out: it could be all that is.
            hashes.append(int.from_bytes(digest.digest()) if characters else 2**64 - 1)
        if len(hashes) == 1:
            cut = int(characters * (1 - self.share))
            if not 0 < cut < characters:
                raise InputError(f"{characters} characters are too few to hold some out: give --valid, or more text")
            return cut, np.zeros(1, bool)
        places = np.frombuffer(hashes, np.uint64)
        distinct = np.unique(places)
        held = max(1, round(self.share * len(distinct)))
        if held >= len(distinct):
            raise InputError(
                f"{len(hashes)} documents are too few, or too much alike, to hold some out: give --valid, or more text"
            )
        return 0, places <= distinct[held - 1]


@final
@dataclass(frozen=True)
class DocumentPart:
    """The training or the validation part of a corpus."""

    split: HeldOut
    part: Literal["train", "valid"]

    def pieces(self, size: int = PIECE) -> Iterator[Piece]:
        cut, held = self.split.plan
        first = self.part == "train"
        for text, out in zip(self.split.documents.texts(), held, strict=True):
            if cut:
                yield from cut_up(_first(text, cut) if first else _behind(text, cut), size)
            elif out != first:
                yield from cut_up(text, size)

    def identity(self) -> list[object]:
        return [*self.split.documents.identity(), self.part, self.split.share]


def hold_out(documents: Documents, share: float = 0.1) -> tuple[DocumentPart, DocumentPart]:
    """The training and the validation part of a corpus; nothing is read before it is needed."""
    if not 0 < share < 1:
        raise InputError(f"the share to hold out is {share}: it must be above 0 and below 1")
    split = HeldOut(documents, share)
    return DocumentPart(split, "train"), DocumentPart(split, "valid")


def _first(text: Iterator[str], count: int) -> Iterator[str]:
    for some in text:
        yield some[:count]
        count -= len(some)
        if count <= 0:
            return


def _behind(text: Iterator[str], count: int) -> Iterator[str]:
    for some in text:
        if len(some) > count:
            yield some[count:]
        count = max(0, count - len(some))
