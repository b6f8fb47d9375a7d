"""Sentence pairs as ids on disk, mapped into memory: encoded once, of any size, found again by content.

    folder/<fingerprint>/
        source.ids.bin      all source ids, one sentence after the other (uint16 or, for many entries, uint32)
        source.offsets.npy  int64; sentence i is ids[offsets[i]:offsets[i + 1]]
        target.ids.bin, target.offsets.npy
        store.json          what it was made of, and what was left out

A store is built beside its place and renamed when it is whole, so nothing half-made is ever taken for one.
"""

import errno
import hashlib
import json
import mmap
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, BinaryIO, cast, final

import numpy as np
import numpy.typing as npt

from headway.data.readers import form, read_pairs
from headway.errors import InputError
from headway.text.tokenizer import PAD, TextOptions, Tokenizer

Files = Sequence[str | Path]
Progress = Callable[[int], None]

FORMAT = 1
SIDES = ("source", "target")
PAIRS_AT_ONCE = 4_096
BATCHES_AHEAD = 2
NUMBERS_KEPT = 20
BUILDING = ".building-"
DEAD_AFTER_S = 24 * 3600
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
        meta = _whole(self.folder)
        if meta is None:
            raise InputError(f"{folder} is no whole store of sentence pairs: delete it, it is made again")
        self.skipped: dict[str, int] = meta["skipped"]
        self.too_long: list[int] = meta["too_long"]
        self._source = _Side(self.folder, "source", meta["source"]["dtype"])
        self._target = _Side(self.folder, "target", meta["target"]["dtype"])

    def __len__(self) -> int:
        return len(self._source)

    def __reduce__(self) -> tuple[object, tuple[Path, bool]]:
        # A worker maps the files itself; pickled as they are, maps would travel as copies.
        return PairStore, (self.folder, self.reused)

    def source(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        return self._source[i]

    def target(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        return self._target[i]

    def rows(self, side: str, examples: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """The ids of these pairs' sides as one matrix, padded on the right."""
        return (self._source if side == "source" else self._target).rows(examples, width)

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        return self._source.lengths

    @property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        return self._target.lengths


class _Side:
    def __init__(self, folder: Path, side: str, dtype: str):
        self.ids = np.memmap(folder / f"{side}.ids.bin", dtype=dtype, mode="r")
        self.offsets = np.load(folder / f"{side}.offsets.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        if not 0 <= i < len(self):
            raise IndexError(f"pair {i} of a store of {len(self)}")
        return np.asarray(self.ids[self.offsets[i] : self.offsets[i + 1]])

    def rows(self, examples: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        starts_B1, ends_B1 = self.offsets[examples][:, None], self.offsets[examples + 1][:, None]
        at_BT = starts_B1 + np.arange(width)
        inside_BT = at_BT < ends_B1
        ids_BT = np.where(inside_BT, self.ids[np.minimum(at_BT, len(self.ids) - 1)], PAD).astype(np.int64)
        self._let_go()
        return ids_BT

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        lengths = np.empty(len(self), np.int32)
        np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="same_kind")
        self._let_go()
        return lengths

    def _let_go(self) -> None:
        """Unmap the pages that were read: they stay in the system's cache, but no longer count as ours.

        Each row brings its neighbours along, so that an epoch would end with all of the store resident.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in (self.ids.base, self.offsets.base):
                cast(mmap.mmap, mapped).madvise(mmap.MADV_DONTNEED)


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
    root = Path(folder)
    place = root / _fingerprint(files, [source_tokenizer, target_tokenizer], [max_length, source, target])
    if _whole(place):
        return PairStore(place)
    try:
        root.mkdir(parents=True, exist_ok=True)
        _clean_dead_builds(root)
        _build(
            place,
            read_pairs(files, source, target),
            (source_tokenizer, target_tokenizer),
            max_length,
            progress,
        )
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "no room left on the disk for the encoded text" if full else f"cannot write ({error.strerror})"
        raise InputError(f"{what} in {root}: make room there, or set HEADWAY_CACHE to another folder") from error
    return PairStore(place, reused=False)


def train_tokenizers(
    files: Files,
    options: TextOptions,
    *,
    source: str = "source",
    target: str = "target",
    limit: int = TOKENIZER_PAIRS,
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of the two sides, learned from the pairs in the files; one and the same if joint.

    Of a corpus with more than `limit` pairs every k-th is taken, k the smallest that gives at most `limit`:
    all parts of the corpus are in the sample, chance is not, and memory holds only the counts of words.
    """
    count = sum(1 for _ in read_pairs(files, source, target))
    stride = -(-count // limit)

    def sample() -> Iterator[tuple[str, str]]:
        return islice(read_pairs(files, source, target), 0, None, stride)

    if options.joint:
        both = Tokenizer.train((text for pair in sample() for text in pair), options)
        return both, both
    return (
        Tokenizer.train((text for text, _ in sample()), options),
        Tokenizer.train((text for _, text in sample()), options),
    )


def _build(
    place: Path,
    pairs: Iterator[tuple[str, str]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    max_length: int,
    progress: Progress | None,
) -> None:
    """Encode into a folder beside the place and rename it there; whatever goes wrong, it is removed."""
    building = place.with_name(f"{BUILDING}{uuid.uuid4().hex}")
    building.mkdir()
    try:
        meta = _write(building, pairs, tokenizers, max_length, progress)
        (building / "store.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        _move(building, place)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write(
    folder: Path,
    pairs: Iterator[tuple[str, str]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    max_length: int,
    progress: Progress | None,
) -> dict[str, Any]:
    """Append batch after batch to the files of both sides; memory holds one. Returns store.json's content."""
    sieve = _Sieve(max_length)
    with (
        _Writer(folder, "source", tokenizers[0]) as source,
        _Writer(folder, "target", tokenizers[1]) as target,
    ):
        for source_ids, target_ids in _encoded(pairs, source, target):
            kept = sieve.keeps(source_ids, target_ids)
            source.append(list(compress(source_ids, kept)))
            target.append(list(compress(target_ids, kept)))
            if progress:
                progress(sieve.read)
        if not source.sentences:
            raise InputError(
                f"none of {sieve.read} pairs is left: {sieve.skipped['empty']} have an empty side, "
                f"{sieve.skipped['too_long']} are longer than {max_length} pieces; raise the length allowed"
            )
        sides = {"source": source.close(), "target": target.close()}
    return {
        "format": FORMAT,
        "pairs": source.sentences,
        "skipped": sieve.skipped,
        "too_long": sieve.too_long,
        **sides,
    }


def _encoded(pairs: Iterator[tuple[str, str]], source: "_Writer", target: "_Writer") -> Iterator[list[list[list[int]]]]:
    """Ids of both sides, batch after batch, in order.

    The library encodes in threads of its own; meanwhile this one reads what comes next and writes what is done.
    """
    waiting: deque[list[Future[list[list[int]]]]] = deque()
    with ThreadPoolExecutor(2) as pool:
        while batch := list(islice(pairs, PAIRS_AT_ONCE)):
            source_texts, target_texts = ([pair[side] for pair in batch] for side in (0, 1))
            waiting.append([pool.submit(source.encode, source_texts), pool.submit(target.encode, target_texts)])
            if len(waiting) > BATCHES_AHEAD:
                yield [side.result() for side in waiting.popleft()]
        while waiting:
            yield [side.result() for side in waiting.popleft()]


class _Sieve:
    """Which pairs stay, and a record of those that do not."""

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


class _Writer:
    """One side of a store, written from front to back."""

    def __init__(self, folder: Path, side: str, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.dtype = np.dtype("<u2" if len(tokenizer) < 1 << 16 else "<u4")
        self.sentences = 0
        self.end = 0
        self.ids_path = folder / f"{side}.ids.bin"
        self.offsets_path = folder / f"{side}.offsets.npy"
        self.ends_path = folder / f"{side}.ends"
        self.ids: BinaryIO = self.ids_path.open("wb")
        self.ends: BinaryIO = self.ends_path.open("wb")

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *error: object) -> None:
        for stream in (self.ids, self.ends):
            # What is still buffered may not fit on a full disk; the error that matters is already on its way.
            try:
                stream.close()
            except OSError:
                if error[0] is None:
                    raise

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text; white space alone counts as nothing."""
        return self.tokenizer.encode_batch([text if not text.isspace() else "" for text in texts])

    def append(self, batch: list[list[int]]) -> None:
        lengths = np.fromiter(map(len, batch), np.int64, len(batch))
        ends = self.end + np.cumsum(lengths)
        flat = np.fromiter(chain.from_iterable(batch), self.dtype, int(lengths.sum()))
        self.ids.write(flat.tobytes())
        self.ends.write(ends.astype("<i8").tobytes())
        self.sentences += len(batch)
        self.end = int(ends[-1]) if len(batch) else self.end

    def close(self) -> dict[str, Any]:
        """Finish the files; an .npy says its length first, so the offsets are copied behind a header now."""
        self.ids.close()
        self.ends.close()
        shape = (self.sentences + 1,)
        with self.offsets_path.open("wb") as out, self.ends_path.open("rb") as ends:
            np.lib.format.write_array_header_1_0(out, {"descr": "<i8", "fortran_order": False, "shape": shape})
            out.write(np.zeros(1, "<i8").tobytes())
            shutil.copyfileobj(ends, out)
        self.ends_path.unlink()
        sizes = {path.name: path.stat().st_size for path in (self.ids_path, self.offsets_path)}
        return {"dtype": self.dtype.str, "ids": self.end, "bytes": sizes}


def _whole(folder: Path) -> dict[str, Any] | None:
    """store.json's content if the store is there and none of its files was cut short."""
    try:
        meta: dict[str, Any] = json.loads((folder / "store.json").read_text(encoding="utf-8"))
        if meta["format"] != FORMAT:
            return None
        sizes = {name: size for side in SIDES for name, size in meta[side]["bytes"].items()}
        return meta if all((folder / name).stat().st_size == size for name, size in sizes.items()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _move(building: Path, place: Path) -> None:
    """Rename into place; when another process was faster its store is as good, a broken one makes room."""
    if place.exists() and not _whole(place):
        shutil.rmtree(place)
    try:
        building.rename(place)
    except OSError:
        if not _whole(place):
            raise


def _fingerprint(files: Files, tokenizers: list[Tokenizer], options: list[object]) -> str:
    """A hash of all that decides what a store holds: what is in the files, not where; tokenizers; options."""
    digest = hashlib.blake2b(digest_size=16)
    read_pairs(files)  # says what is wrong with the list before anything is read
    for path in map(Path, [files] if isinstance(files, str | Path) else files):
        if not path.is_file():
            raise InputError(f"{path} is not a regular file: it is read more than once, so save it to one first")
        digest.update(f"{form(path)} {_hash(path)}\n".encode())
    parts = [FORMAT, [tokenizer.fingerprint for tokenizer in tokenizers], options]
    digest.update(json.dumps(parts).encode())
    return digest.hexdigest()


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "blake2b").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _clean_dead_builds(root: Path) -> None:
    """Remove what a killed process left; a build that still writes has a file that is young."""
    for left in root.glob(f"{BUILDING}*"):
        try:
            newest = max(path.stat().st_mtime for path in (left, *left.iterdir()))
        except OSError:  # another process finished or removed it just now
            continue
        if time.time() - newest > DEAD_AFTER_S:
            shutil.rmtree(left, ignore_errors=True)
