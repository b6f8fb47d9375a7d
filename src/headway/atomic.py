"""Files and folders that appear whole: written beside their place, flushed to the disk, then renamed. After an error
nothing is left, and what was there before stays."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from headway.errors import InputError, is_full


def flush(path: Path) -> None:
    """Bring a file, or the renames in a folder, to the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # a folder, on a system that cannot
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A name for a new file, which takes the place of `path` when all of it is written."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        flush(part)
        os.replace(part, path)
        flush(path.parent)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """`replaced`; an error says in one line that the file cannot be written."""
    try:
        with replaced(path) as part:
            yield part
    except OSError as error:
        reason = "no room left on the disk" if is_full(error) else error.strerror or error
        raise InputError(f"cannot write {path}: {reason}") from error


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A new folder, which takes the place of `folder` when it is filled."""
    new, old = (folder.with_name(f".{folder.name}.{name}-{uuid.uuid4().hex[:8]}") for name in ("new", "old"))
    try:
        new.mkdir(parents=True)
        yield new
        for path in new.iterdir():
            path.chmod(0o644)  # safetensors writes for the owner alone
            flush(path)
        flush(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        flush(folder.parent)
    except (OSError, SafetensorError) as error:
        if is_full(error):
            raise InputError(f"no room left on the disk for {folder}: make room there") from error
        raise InputError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        # After an interrupt too: between the two renames the old folder is the only one.
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
