"""Text that is held out of a corpus which has none: the same for all models, and never trained on.

Pairs by a hash of the source text, documents by a hash of their text, one long text by its last characters.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from headway.data.documents import CHUNK, Chunk, Documents, cut_up
from headway.data.readers import read_pairs
from headway.errors import InputError, refuse

PARTS = ("train", "valid", "test")
Value = TypeVar("Value")


def split_corpus(
    files: Sequence[str | Path], folder: Path, hold_out: int, source: str, target: str, swapped: bool = False
) -> dict[str, tuple[Path, Path]]:
    """Write `train`, `valid` and `test` files below `folder`, about `hold_out` pairs each in the last two. `swapped`:
    what stands second is the source.

    Which part a pair belongs to is a hash of its source text: the same on every machine, and for all
    translations of one source alike.
    """
    count = sum(1 for _ in read_pairs(files, source, target))
    share = min(hold_out, count // 10) / max(count, 1)
    refuse(share == 0, f"{count} pairs are too few to hold some out: give --valid files, or more data")
    folder.mkdir(parents=True, exist_ok=True)
    paths = held_out(folder)
    filled, blank = set(), True
    with ExitStack() as stack:
        streams = {
            part: [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths[part]]
            for part in PARTS
        }
        for pair in read_pairs(files, source, target):
            pair = pair[::-1] if swapped else pair
            part = _part(pair[0], share)
            filled.add(part)
            blank = blank and not all(text.strip() for text in pair)
            for stream, text in zip(streams[part], pair, strict=True):
                # A JSON string may hold a line break, which would shift every pair after it.
                stream.write(text.replace("\n", " ") + "\n")
    refuse(blank, f"each of {count} pairs has an empty side: look into {', '.join(map(str, files))}")
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


def hold_out_by_hash(
    values: Sequence[Value], contents: Sequence[str | bytes], share: float, kind: str = "texts"
) -> tuple[list[Value], list[Value]]:
    """The values to train on and those to hold out, chosen by a hash of their contents, of a text white space and case
    apart: the same on every machine, and equal ones stay together."""
    plain = ["".join(one.split()).casefold().encode() if isinstance(one, str) else one for one in contents]
    hashes = [hashlib.blake2b(one, digest_size=8).digest() for one in plain]
    held = set(sorted(set(hashes))[: round(share * len(set(hashes)))])
    train = [value for value, at in zip(values, hashes, strict=True) if at not in held]
    out = [value for value, at in zip(values, hashes, strict=True) if at in held]
    refuse(not train or not out, f"{len(values)} {kind} are too few, or too similar, to hold some out: give --valid")
    return train, out


@final
@dataclass(frozen=True)
class HeldOut:
    """Which documents of a corpus are held out, the share `valid` of them for validation, `test` for a last test.

    Of several those with the smallest hashes of their text, white space and case apart (at least one for each purpose,
    and all copies of one text alike): the same whatever their order. Of a single one the last characters: all but the
    first int(n · (1 − valid − test)), as nanoGPT cuts Shakespeare; the test's come last.
    """

    documents: Documents
    valid: float
    test: float

    @cached_property
    def plan(self) -> tuple[list[int], NDArray[np.int64]]:
        """Where validation and test start in a single document (nothing if there are several), and the part that each
        document is in."""
        hashes, characters = array("Q"), 0
        for text in self.documents.texts():
            digest, characters = hashlib.blake2b(digest_size=8), 0
            for some in text:
                characters += len(some)
                digest.update("".join(some.split()).casefold().encode())
            # What is empty is never held out: it could be all that is.
            hashes.append(int.from_bytes(digest.digest()) if characters else 2**64 - 1)
        if len(hashes) == 1:
            cuts = [int(characters * (1 - self.valid - self.test)), int(characters * (1 - self.test))]
            if not 0 < cuts[0] < cuts[1] <= characters - bool(self.test):
                raise InputError(f"{characters} characters are too few to hold some out: give --valid, or more text")
            return cuts, np.zeros(1, np.int64)
        places = np.frombuffer(hashes, np.uint64)
        distinct = np.unique(places)
        held = [max(1, round(share * len(distinct))) if share else 0 for share in (self.valid, self.test)]
        if sum(held) >= len(distinct):
            raise InputError(
                f"{len(hashes)} documents are too few, or too much alike, to hold some out: give --valid, or more text"
            )
        return [], np.searchsorted(np.cumsum(held), np.searchsorted(distinct, places), side="right")


HELD = ("valid", "test", "train")  # in the order of their documents' hashes


@final
@dataclass(frozen=True)
class DocumentPart:
    """What a corpus has for one purpose."""

    split: HeldOut
    part: Literal["train", "valid", "test"]

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        cuts, parts = self.split.plan
        for text, part in zip(self.split.documents.texts(), parts, strict=True):
            if cuts:
                start, end = {"train": (0, cuts[0]), "valid": (cuts[0], cuts[1]), "test": (cuts[1], None)}[self.part]
                yield from cut_up(_between(text, start, end), size)
            elif HELD[part] == self.part:
                yield from cut_up(text, size)

    def identity(self) -> list[object]:
        return [*self.split.documents.identity(), self.part, self.split.valid, self.split.test]


def hold_out(documents: Documents, share: float = 0.1, test: float = 0.0) -> dict[str, DocumentPart]:
    """The parts of a corpus, `test` among them if it has a share; nothing is read before it is needed."""
    refuse(not 0 < share < 1, f"the share to hold out is {share}: it must be above 0 and below 1")
    refuse(not 0 <= test < 1, f"the share to hold out for a test is {test}: it must be at least 0 and below 1")
    refuse(share + test >= 1, f"the shares to hold out are {share} and {test}: that leaves nothing to learn from")
    split = HeldOut(documents, share, test)
    parts: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test") if test else ("train", "valid")
    return {part: DocumentPart(split, part) for part in parts}


def _between(text: Iterator[str], start: int, end: int | None) -> Iterator[str]:
    at = 0
    for some in text:
        if end is not None and at >= end:
            return
        yield some[max(0, start - at) : None if end is None else end - at]
        at += len(some)
