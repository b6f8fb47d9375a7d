"""Sentence pairs as ids on disk, mapped into memory: encoded once, of any size, found again by content.

folder/<fingerprint>/
    source.ids.bin, source.offsets.npy      sentence by sentence (`headway.data.mapped` has the format)
    target.ids.bin, target.offsets.npy
    store.json                              what it was made of, and what was left out
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import compress, islice
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from headway.data.mapped import FORMAT, IdsWriter, MappedIds, Progress, Store, content_hash, in_order
from headway.data.readers import form, read_pairs
from headway.errors import InputError
from headway.text.codec import hashed
from headway.text.tokenizer import END, TextOptions, Tokenizer

Files = Sequence[str | Path]
Pairs = Iterator[tuple[str, str]]
Tokenizers = tuple[Tokenizer, Tokenizer]

SIDES = ("source", "target")
PAIRS_AT_ONCE = 4_096
NUMBERS_KEPT = 20
TOKENIZER_PAIRS = 5_000_000


@final
class PairStore(Store):
    """Read-only pairs of id arrays.

    skipped: how many pairs were left out, by reason.
    too_long: the numbers of the first pairs that were too long, counted from 1 through all files.
    """

    names = SIDES
    holds = "sentence pairs"
    source: MappedIds
    target: MappedIds

    def __init__(self, folder: str | Path, reused: bool = True):
        super().__init__(folder, reused)
        self.skipped: dict[str, int] = self.meta["skipped"]
        self.too_long: list[int] = self.meta["too_long"]

    def target_counts(self, end: int = END, most: int = 10_000_000) -> npt.NDArray[np.int64]:
        """How often each id, the end of each included, is among the first so many of the target."""
        counts = np.bincount(self.target.ids[:most], minlength=end + 1)
        counts[end] += np.searchsorted(self.target.offsets[1:], most, side="right")
        return counts


def prepare(
    files: Files, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, folder: str | Path, *, max_length: int,
    source: str = "source", target: str = "target", progress: Progress | None = None,
) -> PairStore:  # fmt: skip
    """Encode the pairs in the files into a store below `folder`, or find the one made of the same before.

    A pair with a side of more than max_length ids (specials not counted), or with an empty side, is left out
    and counted, never cut. progress is called with the number of pairs read so far.
    """
    tokenizers = (source_tokenizer, target_tokenizer)
    place = Path(folder) / _fingerprint(files, [*tokenizers], [max_length, source, target])
    pairs = read_pairs(files, source, target)
    return PairStore.made(place, lambda building: _write(building, pairs, tokenizers, max_length, progress))


def train_tokenizers(
    files: Files, options: TextOptions, *, source: str = "source", target: str = "target", limit: int = TOKENIZER_PAIRS,
    target_options: TextOptions | None = None,
) -> Tokenizers:  # fmt: skip
    """The tokenizers of the two sides, learned from the pairs in the files; one and the same if joint.
    `target_options`: those of the target, where they differ.

    Of a corpus with more than `limit` pairs every k-th is taken, k the smallest that gives at most `limit`:
    all parts of the corpus are in the sample, nothing is random, and memory holds only the counts of words.
    """
    stride = -(-sum(1 for _ in read_pairs(files, source, target)) // limit)

    def sample() -> Pairs:
        return islice(read_pairs(files, source, target), 0, None, stride)

    sides = [(0, 1)] if options.joint else [(0,), (1,)]
    of_sides = (options, target_options or options)
    found = [Tokenizer.train((pair[side] for pair in sample() for side in some), of_sides[some[0]]) for some in sides]
    return found[0], found[-1]


def _write(
    folder: Path, pairs: Pairs, tokenizers: Tokenizers, max_length: int, progress: Progress | None
) -> dict[str, Any]:
    """Append batch after batch to the files of both sides; memory holds one. Returns store.json's content."""
    read, skipped, too_long = 0, {"empty": 0, "too_long": 0}, list[int]()
    with ExitStack() as stack:
        named = zip(SIDES, map(len, tokenizers), strict=True)
        writers = [stack.enter_context(IdsWriter(folder, side, size)) for side, size in named]
        for sides in _encoded(pairs, tokenizers):
            lengths = np.array([[len(ids) for ids in side] for side in sides])
            empty, long = lengths.min(0) == 0, lengths.max(0) > max_length
            found = np.flatnonzero(long & ~empty)
            too_long += (read + 1 + found[: NUMBERS_KEPT - len(too_long)]).tolist()
            skipped["empty"] += int(empty.sum())
            skipped["too_long"] += len(found)
            read += len(empty)
            for writer, side in zip(writers, sides, strict=True):
                writer.append(list(compress(side, ~(empty | long))))
            if progress:
                progress(read)
        kept = writers[0].sequences
        if not kept:
            raise InputError(
                f"none of {read} pairs is left: {skipped['empty']} have an empty side, {skipped['too_long']} are "
                f"longer than {max_length} tokens; "
                f"{'raise the length allowed' if skipped['too_long'] else 'check the files'}"
            )
        written = {side: writer.close() for side, writer in zip(SIDES, writers, strict=True)}
    return {"format": FORMAT, "pairs": kept, "skipped": skipped, "too_long": too_long, **written}


def _encoded(pairs: Pairs, tokenizers: Tokenizers) -> Iterator[list[list[list[int]]]]:
    """Ids of both sides, batch after batch, in order; white space alone counts as nothing."""

    def encode(side: int, batch: list[tuple[str, str]]) -> list[list[int]]:
        return tokenizers[side].encode_batch(["" if pair[side].isspace() else pair[side] for pair in batch])

    batches = iter(lambda: list(islice(pairs, PAIRS_AT_ONCE)), [])
    return in_order(batches, [partial(encode, 0), partial(encode, 1)])


def _fingerprint(files: Files, tokenizers: list[Tokenizer], options: list[object]) -> str:
    """A hash of all that decides what a store holds: what is in the files, not where; tokenizers; options."""
    read_pairs(files)  # checks the list of files before any is hashed
    paths = map(Path, [files] if isinstance(files, str | Path) else files)
    contents = "".join(f"{form(path)} {content_hash(path)}\n" for path in paths)
    return hashed(contents + json.dumps([FORMAT, [tokenizer.fingerprint for tokenizer in tokenizers], options]))
