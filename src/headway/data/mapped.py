"""Sequences of ids on disk, mapped into memory, in folders that are complete or absent.

    folder/
        <name>.ids.bin      all ids, one sequence after the other (uint16 or, for many entries, uint32)
        <name>.offsets.npy  int64; sequence i is ids[offsets[i]:offsets[i + 1]]
        store.json          what it was made of, and what was left out

A folder is built beside its place and renamed when it is complete, so an incomplete one is never used. B rows, T
length.
"""

import hashlib
import json
import mmap
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast, final

import numpy as np
import numpy.typing as npt

from headway import checksums
from headway.atomic import flush
from headway.errors import InputError, is_full, refuse
from headway.outside import read_object
from headway.text.tokenizer import PAD

Batch = TypeVar("Batch")
Made = TypeVar("Made")
Progress = Callable[[int], None]  # is called with how much was read so far

FORMAT = 1
BATCHES_AHEAD = 2
BUILDING = ".building-"
DEAD_AFTER_S = 24 * 3600


@final
class MappedIds:
    """Read-only sequences of ids."""

    def __init__(self, folder: Path, name: str, dtype: str):
        self.ids = np.memmap(folder / f"{name}.ids.bin", dtype=dtype, mode="r")
        self.offsets = np.load(folder / f"{name}.offsets.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        if not 0 <= i < len(self):
            raise IndexError(f"sequence {i} of a store of {len(self)}")
        return np.asarray(self.ids[self.offsets[i] : self.offsets[i + 1]])

    def rows(self, examples: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """These sequences as one matrix, padded on the right."""
        starts_B1, ends_B1 = self.offsets[examples][:, None], self.offsets[examples + 1][:, None]
        at_BT = starts_B1 + np.arange(width)
        ids_BT = np.where(at_BT < ends_B1, self.ids[np.minimum(at_BT, len(self.ids) - 1)], PAD).astype(np.int64)
        self.let_go()
        return ids_BT

    def windows(self, starts: Sequence[int], width: int) -> npt.NDArray[np.int64]:
        """The `width` ids from each start on, whatever sequence they belong to."""
        ids_BT = np.stack([self.ids[start : start + width] for start in starts]).astype(np.int64)
        self.let_go()
        return ids_BT

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        lengths = np.empty(len(self), np.int32)
        np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="same_kind")
        self.let_go()
        return lengths

    def let_go(self) -> None:
        """Unmap the pages that were read: they stay in the system's cache, but no longer count as ours.

        Each row brings its neighbours along, so that an epoch would end with all of the store resident.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in (self.ids.base, self.offsets.base):
                cast(mmap.mmap, mapped).madvise(mmap.MADV_DONTNEED)


@final
class IdsWriter:
    """The files of `MappedIds`, written from front to back; ids are below `vocabulary`."""

    def __init__(self, folder: Path, name: str, vocabulary: int):
        self.dtype = np.dtype("<u2" if vocabulary < 1 << 16 else "<u4")
        self.sequences = self.end = 0
        self.paths = folder / f"{name}.ids.bin", folder / f"{name}.offsets.npy"
        self.ids, self.offsets = (path.open("wb") for path in self.paths)
        self._write_header()
        self.offsets.write(np.zeros(1, "<i8").tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for stream in (self.ids, self.offsets):
            # What is still buffered may not fit on a full disk; the error that matters is already on its way.
            try:
                stream.close()
            except OSError:
                if error[0] is None:
                    raise

    def append(self, batch: list[list[int]], whole: Sequence[bool] | None = None) -> npt.NDArray[np.unsignedinteger]:
        """Write ids; each list ends a sequence, or only those that are `whole`. Returns them in one row."""
        lengths = np.fromiter(map(len, batch), np.int64, len(batch))
        ends = self.end + np.cumsum(lengths)
        flat = np.fromiter(chain.from_iterable(batch), self.dtype, int(lengths.sum()))
        closed = ends if whole is None else ends[np.asarray(whole, bool)]
        self.ids.write(flat.tobytes())
        self.offsets.write(closed.astype("<i8").tobytes())
        self.sequences += len(closed)
        self.end = int(ends[-1]) if len(batch) else self.end
        return flat

    def close(self) -> dict[str, Any]:
        """Finish the files."""
        self._write_header()
        self.__exit__(None)
        sizes = {path.name: path.stat().st_size for path in self.paths}
        return {"dtype": self.dtype.str, "ids": self.end, "bytes": sizes}

    def _write_header(self) -> None:
        """An .npy begins with its length, which is known at the end; NumPy's header is as long for any length."""
        self.offsets.seek(0)
        facts = {"descr": "<i8", "fortran_order": False, "shape": (self.sequences + 1,)}
        np.lib.format.write_array_header_1_0(self.offsets, facts)


def in_order(batches: Iterable[Batch], encoders: Sequence[Callable[[Batch], Made]]) -> Iterator[list[Made]]:
    """What each encoder makes of each batch, batch after batch.

    The library encodes in threads of its own; meanwhile this one reads what comes next and writes what is done.
    """
    waiting: deque[list[Future[Made]]] = deque()
    with ThreadPoolExecutor(len(encoders)) as pool:
        for batch in batches:
            waiting.append([pool.submit(encode, batch) for encode in encoders])
            if len(waiting) > BATCHES_AHEAD:
                yield [made.result() for made in waiting.popleft()]
        while waiting:
            yield [made.result() for made in waiting.popleft()]


def whole(folder: Path, names: Sequence[str], by_sum: bool = False) -> dict[str, Any] | None:
    """store.json's content if the store is there and none of its files was cut short or, `by_sum`, changed."""
    try:
        meta = read_object(folder / "store.json")
        sizes = {file: size for name in names for file, size in meta[name]["bytes"].items()}
        kept = meta["format"] == FORMAT and all((folder / file).stat().st_size == sizes[file] for file in sizes)
        if kept and by_sum:
            checksums.verify(folder, large=True)
        return meta if kept else None
    except (OSError, KeyError, TypeError, AttributeError, InputError):
        return None


class Store:
    """Abstract. A folder with `MappedIds` of these names, each an attribute. reused: whether it was there already."""

    names: ClassVar[tuple[str, ...]]
    holds: ClassVar[str]

    def __init__(self, folder: str | Path, reused: bool = True):
        meta = whole(Path(folder), self.names)
        if meta is None:
            raise InputError(f"{folder} is not a complete store of {self.holds}: delete it, then it is built again")
        self.folder, self.reused, self.meta = Path(folder), reused, meta
        vars(self).update({name: MappedIds(self.folder, name, meta[name]["dtype"]) for name in self.names})

    @classmethod
    def made(cls, place: Path, write: Callable[[Path], dict[str, Any]]) -> Self:
        """The one that is there, or else the one that `write` makes."""
        reused = whole(place, cls.names, by_sum=True) is not None
        if not reused:
            build(place, cls.names, write)
        return cls(place, reused)

    def __len__(self) -> int:
        return len(getattr(self, self.names[0]))

    def __reduce__(self) -> tuple[object, tuple[Path, bool]]:
        # A worker maps the files itself; pickled as they are, maps would travel as copies.
        return type(self), (self.folder, self.reused)


def build(place: Path, names: Sequence[str], write: Callable[[Path], dict[str, Any]]) -> None:
    """Let `write` fill a folder beside the place, then rename it; on any failure it is removed."""
    root = place.parent
    building = root / f"{BUILDING}{uuid.uuid4().hex}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _clean_dead_builds(root)
        building.mkdir()
        (building / "store.json").write_text(json.dumps(write(building), indent=1), encoding="utf-8")
        checksums.write(building, sorted(path.name for path in building.iterdir()))
        for path in (*building.iterdir(), building):
            flush(path)
        # A store of another process that was faster is kept; a broken one is replaced.
        if place.exists() and not whole(place, names, by_sum=True):
            shutil.rmtree(place)
        try:
            building.rename(place)
        except OSError:
            if not whole(place, names):
                raise
    except OSError as error:
        what = "no room left on the disk for the encoded text" if is_full(error) else f"cannot write ({error.strerror})"
        raise InputError(f"{what} in {root}: make room there, or set HEADWAY_CACHE to another folder") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def content_hash(path: Path) -> str:
    """A hash of what is in a file."""
    refuse(not path.is_file(), f"{path} is not a regular file: it is read more than once, so save it to one first")
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "blake2b").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _clean_dead_builds(root: Path) -> None:
    """Remove what a killed process left: a build in progress has a recently changed file."""
    for left in root.glob(f"{BUILDING}*"):
        try:
            newest = max(path.stat().st_mtime for path in (left, *left.iterdir()))
        except OSError:  # another process finished or removed it just now
            continue
        if time.time() - newest > DEAD_AFTER_S:
            shutil.rmtree(left, ignore_errors=True)
