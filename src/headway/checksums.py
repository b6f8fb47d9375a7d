"""Checksums of a model folder's files: what was changed since it was written is found before it is used.

checksums.json      {"format": 1, "files": {name: {"bytes": …, "sum": …}}}

They are against disks, copies and careless hands, not against an attacker, who would change them too. A file's sum is
the hash of its 64-bit words added up chunk by chunk, and of the bytes behind the last whole chunk: small files are
hashed byte by byte, large ones are read at the speed of memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch

from headway.atomic import replaced
from headway.errors import InputError
from headway.outside import read_object

NAME = "checksums.json"
CHUNK = 1 << 16  # words
SMALL = 1 << 20  # bytes: such files are verified always
enabled = True  # `--no-verify` leaves large files out


def summed(path: Path) -> str:
    size = path.stat().st_size
    chunks = size // (8 * CHUNK)
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    if chunks:
        words = torch.from_file(str(path), shared=False, size=chunks * CHUNK, dtype=torch.int64)
        digest.update(words.view(chunks, CHUNK).sum(1).numpy().tobytes())
    with path.open("rb") as file:
        file.seek(chunks * 8 * CHUNK)
        digest.update(file.read())
    return digest.hexdigest()


def write(folder: Path, names: Iterable[str]) -> None:
    """Checksums of these files, in a file beside them."""
    files = {name: {"bytes": (folder / name).stat().st_size, "sum": summed(folder / name)} for name in names}
    text = json.dumps({"format": 1, "files": files}, indent=1) + "\n"
    with replaced(folder / NAME) as part:
        part.write_text(text, encoding="utf-8")


def verify(folder: Path, large: bool | None = None) -> int:
    """Compare the files with their checksums; returns how many were. A folder without them has nothing to compare."""
    count = 0
    for path, facts in _listed(folder):
        try:
            size = path.stat().st_size
            if size <= SMALL or (enabled if large is None else large):
                count += 1
                if size != facts["bytes"] or summed(path) != facts["sum"]:
                    raise InputError(
                        f"{path} was changed after it was written ({size:,} bytes, {facts['bytes']:,} then): copy it "
                        f"again, or delete {folder / NAME} if the change was yours"
                    )
        except FileNotFoundError:
            raise InputError(f"{path} is missing: the folder is incomplete") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    return count


@contextmanager
def verifying(folder: Path) -> Iterator[None]:
    """Compare small files first and large ones beside what is done inside; what differs is reported at its end, in
    place of whatever error it has led to."""
    verify(folder, large=False)
    with ThreadPoolExecutor(1) as thread:
        large = thread.submit(verify, folder)
        try:
            yield
        finally:
            large.result()


def _listed(folder: Path) -> Iterator[tuple[Path, dict[str, object]]]:
    if not (folder / NAME).exists():
        return
    files = read_object(folder / NAME).get("files")
    if not isinstance(files, dict):
        raise InputError(f"{folder / NAME}: 'files' must be an object with keys")
    for name, facts in files.items():
        if not isinstance(facts, dict) or not {"bytes", "sum"} <= facts.keys() or not isinstance(facts["bytes"], int):
            raise InputError(f"{folder / NAME}: '{name}' must have bytes and a sum")
        yield folder / Path(name).name, facts


@contextmanager
def unverified() -> Iterator[None]:
    """Large files are taken as they are."""
    global enabled
    before, enabled = enabled, False
    try:
        yield
    finally:
        enabled = before
