"""Sealed folders: tensors and JSON with a manifest of checksums, written beside their place and renamed into it.

manifest.json       names, sizes and SHA-256 of every other file, and of its own content
*.safetensors, *.json

A folder is complete or absent; later changes by a user, a disk or a crash are found before it is used. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.atomic import flush
from headway.errors import refuse
from headway.train.writer import Stage, Writer

FORMAT = 1
MANIFEST = "manifest.json"
WRITING = ".writing"

# safetensors' names of the types that a checkpoint may hold.
TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16",
    torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip

Say = Callable[[str], None]
Seal = dict[str, Any]  # of one file: {"bytes": …, "sha256": …}


class Broken(Exception):
    """A sealed folder that was changed; the message says how."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Seal:
    """A safetensors file, flushed to the disk, and its seal. Tensors are contiguous and on the CPU.

    The library's own writer keeps Python's lock while it writes, which would stop the training beside it. Like it,
    this puts wide types first: each tensor then begins where its type may begin.
    """
    header: dict[str, Any] = {}
    at = 0
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    for name, tensor in tensors.items():
        end = at + tensor.nbytes
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return _write(path, chain([struct.pack("<Q", len(text)) + text], _chunks(tensors.values())))


def _chunks(tensors: Iterable[Tensor], size: int = 1 << 24) -> Iterator[memoryview]:
    """The bytes of tensors, some at a time: each is hashed while it is still in the processor's cache."""
    for tensor in tensors:
        data: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        for at in range(0, len(data), size):
            yield memoryview(data[at : at + size])


def write_json(path: Path, value: Any) -> Seal:
    return _write(path, [_text(value)])


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> Seal:
    """A file, flushed to the disk, and its seal. It is hashed while it is written: it need not be read again."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as stream:
        for chunk in chunks:
            stream.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        stream.flush()
        os.fsync(stream.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def beside(folder: Path) -> Path:
    """Where a folder is written before it is renamed."""
    return folder.with_name(f".{folder.name}{WRITING}")


Files = Mapping[str, Mapping[str, Tensor]]  # tensors by file name (without suffix) and by their own


def write_parts(folder: Path, files: Files, facts: Mapping[str, Any]) -> dict[str, Seal]:
    """Files of tensors and of facts into a folder that has no seal yet; large ones side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(4) as pool:
        seals = pool.map(lambda name: write_tensors(folder / f"{name}.safetensors", files[name]), files)
        found = {f"{name}.safetensors": seal for name, seal in zip(files, seals, strict=True)}
    return found | {f"{name}.json": write_json(folder / f"{name}.json", value) for name, value in facts.items()}


def seal(folder: Path, goal: Path, seals: Mapping[str, Seal]) -> None:
    """Write the manifest and rename the folder; an existing one of that name is deleted."""
    write_json(folder / MANIFEST, _signed({"format": FORMAT, "files": dict(sorted(seals.items()))}))
    flush(folder)
    if goal.exists():
        remove(goal)
    folder.rename(goal)
    flush(goal.parent)


def write_sealed(goal: Path, files: Files, facts: Mapping[str, Any]) -> None:
    place = beside(goal)
    shutil.rmtree(place, ignore_errors=True)
    try:
        seal(place, goal, write_parts(place, files, facts))
    finally:  # after an error; otherwise it was renamed
        shutil.rmtree(place, ignore_errors=True)


def remove(folder: Path) -> None:
    """Delete a sealed folder; a half-deleted one is never taken for a whole one."""
    place = folder.with_name(f".{folder.name}.deleting")
    shutil.rmtree(place, ignore_errors=True)
    folder.rename(place)
    shutil.rmtree(place, ignore_errors=True)


def clean(parent: Path) -> None:
    """Remove what a killed process left half-written or half-deleted."""
    for left in (*parent.glob(f".*{WRITING}"), *parent.glob(".*.deleting")):
        shutil.rmtree(left, ignore_errors=True)


def verify(folder: Path) -> None:
    """Check every byte against the manifest; `Broken` says what differs."""
    try:
        data = (folder / MANIFEST).read_bytes()
        content = json.loads(data)
        files = dict(content["files"])
        version, as_written = int(content["format"]), _text(_signed(content))
    except FileNotFoundError:
        raise Broken(f"{MANIFEST} is missing") from None
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Broken(f"{MANIFEST} cannot be read ({error})") from error
    # The digest finds changed content; comparing bytes finds changes that JSON ignores.
    if data != as_written:
        raise Broken(f"{MANIFEST} was changed")
    refuse(version > FORMAT, f"{folder} has format {version}, this headway reads up to {FORMAT}: upgrade headway")
    for name, expected in files.items():
        _verify_file(folder / name, expected)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors") and path.name not in (MANIFEST, *files):
            raise Broken(f"{path.name} does not belong to it")


def _verify_file(path: Path, expected: Seal) -> None:
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise Broken(f"{path.name} has {size:,} bytes instead of {expected['bytes']:,}")
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise Broken(f"{path.name} cannot be read ({error.strerror or error})") from error
    if found != expected["sha256"]:
        raise Broken(f"{path.name} was changed")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _signed(content: dict[str, Any]) -> dict[str, Any]:
    """With the digest of its own content, at the end."""
    content = {key: value for key, value in content.items() if key != "sha256"}
    return content | {"sha256": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def sealed_steps(parent: Path) -> list[int]:
    """The steps that have a folder, oldest first; only their names are looked at."""
    names = (path.name.removeprefix("step-") for path in parent.glob("step-*"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


class SealedSteps:
    """Abstract. A sealed folder `step-N` for some steps of a run, written in the background; the newest `last` stay."""

    def __init__(self, folder: Path, last: int, writer: Writer, say: Say) -> None:
        self.folder, self.last, self.writer, self.say = folder, max(last, 1), writer, say
        self.stage = Stage()

    def place(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def steps(self) -> list[int]:
        return sealed_steps(self.folder)

    def remove_all_but(self, stays: Callable[[int], bool]) -> None:
        for step in self.steps():
            if not stays(step):
                remove(self.place(step))
