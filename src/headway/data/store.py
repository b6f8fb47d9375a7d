"""Sentence pairs as ids on disk, mapped into memory: encoded once, of any size, found again by content.

folder/<fingerprint>/
    source.ids.bin, source.offsets.npy      sentence by sentence (`headway.data.mapped` has the format)
    target.ids.bin, target.offsets.npy
    store.json                              what it was made of, and what was left out
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from headway.data.mapped import FORMAT, IdsWriter, MappedIds, build, content_hash, in_order, whole
from headway.data.readers import form, read_pairs
from headway.errors import InputError
from headway.text.tokenizer import END, TextOptions, Tokenizer

Files = Sequence[str | Path]
Pairs = Iterator[tuple[str, str]]
Tokenizers = tuple[Tokenizer, Tokenizer]
Progress = Callable[[int], None]

SIDES = ("source", "target")
PAIRS_AT_ONCE = 4_096
NUMBERS_KEPT = 20
TOKENIZER_PAIRS = 5_000_000


@final
class PairStore:
    """Read-only pairs of id arrays.

    skipped: how many pairs were left out, by reason.
    too_long: the numbers of the first pairs that were too long, counted from 1 through all files.
    reused: whether it was there already.
    """

    def __init__(self, folder: str | Path, reused: bool = True):
        self.folder = Path(folder)
        self.reused = reused
        meta = whole(self.folder, SIDES)
        if meta is None:
            raise InputError(f"{folder} is not a complete store of sentence pairs: delete it, then it is built again")
        self.skipped: dict[str, int] = meta["skipped"]
        self.too_long: list[int] = meta["too_long"]
        self._sides = {side: MappedIds(self.folder, side, meta[side]["dtype"]) for side in SIDES}

    def __len__(self) -> int:
        return len(self._sides["source"])

    def __reduce__(self) -> tuple[object, tuple[Path, bool]]:
        # A worker maps the files itself; pickled as they are, maps would travel as copies.
        return PairStore, (self.folder, self.reused)

    def source(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        return self._sides["source"][i]

    def target(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        return self._sides["target"][i]

    def rows(self, side: str, examples: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """The ids of these pairs' sides as one matrix, padded on the right."""
        return self._sides[side].rows(examples, width)

    def target_counts(self, end: int = END, most: int = 10_000_000) -> npt.NDArray[np.int64]:
        """How often each id, the end of each included, is among the first so many of the target."""
        target = self._sides["target"]
        counts = np.bincount(target.ids[:most])
        counts = np.pad(counts, (0, max(0, end + 1 - len(counts))))
        counts[end] += np.searchsorted(target.offsets[1:], most, side="right")
        return counts

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        return self._sides["source"].lengths

    @property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        return self._sides["target"].lengths


def prepare(
    files: Files,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    folder: str | Path,
    *,
    max_length: int,
    source: str = "source",
    target: str = "target",
    progress: Progress | None = None,
) -> PairStore:
    """Encode the pairs in the files into a store below `folder`, or find the one made of the same before.

    A pair with a side of more than max_length ids (specials not counted), or with an empty side, is left out
    and counted, never cut. progress is called with the number of pairs read so far.
    """
    tokenizers = (source_tokenizer, target_tokenizer)
    place = Path(folder) / _fingerprint(files, [*tokenizers], [max_length, source, target])
    if whole(place, SIDES):
        return PairStore(place)
    pairs = read_pairs(files, source, target)
    build(place, SIDES, lambda building: _write(building, pairs, tokenizers, max_length, progress))
    return PairStore(place, reused=False)


def train_tokenizers(
    files: Files, options: TextOptions, *, source: str = "source", target: str = "target", limit: int = TOKENIZER_PAIRS
) -> Tokenizers:
    """The tokenizers of the two sides, learned from the pairs in the files; one and the same if joint.

    Of a corpus with more than `limit` pairs every k-th is taken, k the smallest that gives at most `limit`:
    all parts of the corpus are in the sample, nothing is random, and memory holds only the counts of words.
    """
    count = sum(1 for _ in read_pairs(files, source, target))
    stride = -(-count // limit)

    def sample() -> Pairs:
        return islice(read_pairs(files, source, target), 0, None, stride)

    sides = [(0, 1)] if options.joint else [(0,), (1,)]
    found = [Tokenizer.train((pair[side] for pair in sample() for side in some), options) for some in sides]
    return found[0], found[-1]


def _write(
    folder: Path, pairs: Pairs, tokenizers: Tokenizers, max_length: int, progress: Progress | None
) -> dict[str, Any]:
    """Append batch after batch to the files of both sides; memory holds one. Returns store.json's content."""
    sieve = _Sieve(max_length)
    with (
        IdsWriter(folder, "source", len(tokenizers[0])) as source,
        IdsWriter(folder, "target", len(tokenizers[1])) as target,
    ):
        for source_ids, target_ids in _encoded(pairs, tokenizers):
            kept = sieve.keeps(source_ids, target_ids)
            source.append(list(compress(source_ids, kept)))
            target.append(list(compress(target_ids, kept)))
            if progress:
                progress(sieve.read)
        if not source.sequences:
            empty, too_long = sieve.skipped["empty"], sieve.skipped["too_long"]
            raise InputError(
                f"none of {sieve.read} pairs is left: {empty} have an empty side, {too_long} are longer than "
                f"{max_length} tokens; {'raise the length allowed' if too_long else 'check the files'}"
            )
        sides = {"source": source.close(), "target": target.close()}
    skipped = {"skipped": sieve.skipped, "too_long": sieve.too_long}
    return {"format": FORMAT, "pairs": source.sequences, **skipped, **sides}


def _encoded(pairs: Pairs, tokenizers: Tokenizers) -> Iterator[list[list[list[int]]]]:
    """Ids of both sides, batch after batch, in order; white space alone counts as nothing."""

    def encode(batch: list[tuple[str, str]], side: int) -> list[list[int]]:
        texts = [pair[side] for pair in batch]
        return tokenizers[side].encode_batch([text if not text.isspace() else "" for text in texts])

    batches = iter(lambda: list(islice(pairs, PAIRS_AT_ONCE)), [])
    return in_order(batches, [lambda batch: encode(batch, 0), lambda batch: encode(batch, 1)])


class _Sieve:
    """Selects pairs by length, and counts those that are left out."""

    def __init__(self, max_length: int):
        self.max_length = max_length
        self.read = 0
        self.skipped = {"empty": 0, "too_long": 0}
        self.too_long: list[int] = []

    def keeps(self, source: list[list[int]], target: list[list[int]]) -> npt.NDArray[np.bool_]:
        lengths = np.array([list(map(len, source)), list(map(len, target))])
        empty, long = lengths.min(0) == 0, lengths.max(0) > self.max_length
        too_long = np.flatnonzero(long & ~empty)
        self.too_long += (self.read + 1 + too_long[: NUMBERS_KEPT - len(self.too_long)]).tolist()
        self.skipped["empty"] += int(empty.sum())
        self.skipped["too_long"] += len(too_long)
        self.read += len(source)
        return ~(empty | long)


def _fingerprint(files: Files, tokenizers: list[Tokenizer], options: list[object]) -> str:
    """A hash of all that decides what a store holds: what is in the files, not where; tokenizers; options."""
    digest = hashlib.blake2b(digest_size=16)
    read_pairs(files)  # checks the list of files before any is hashed
    for path in map(Path, [files] if isinstance(files, str | Path) else files):
        digest.update(f"{form(path)} {content_hash(path)}\n".encode())
    parts = [FORMAT, [tokenizer.fingerprint for tokenizer in tokenizers], options]
    digest.update(json.dumps(parts).encode())
    return digest.hexdigest()
