"""Data sets by name: a folder of yours, the cache, or, only when asked, their public address with a checksum.

A name is a relative path such as `multi30k/train.en.gz`, looked for below `$HEADWAY_DATA`, then below `data/`
of the cache folder (`$HEADWAY_CACHE`, or `~/.cache/headway`); a file and its `.gz` stand for each other. To `find_all`
it may be that of a folder, such as `novels/core`.
"""

import hashlib
import os
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path, PurePosixPath

from headway.atomic import replaced
from headway.errors import InputError, nearest, refuse

Progress = Callable[[int, int | None], None]

CHUNK = 1 << 16
SILENCE_S = 60


@dataclass(frozen=True)
class File:
    """One file of a data set: its name here, its pinned address, the SHA-256 of what that address gives."""

    name: str
    url: str
    sha256: str


def _known() -> Iterator[File]:
    """The files that `catalog.toml` lists."""
    for source in tomllib.loads(files(__package__).joinpath("catalog.toml").read_text(encoding="utf-8"))["sources"]:
        root = f"https://raw.githubusercontent.com/{source['repository']}/{source['commit']}"
        for word, sha256 in source["sha256"].items():
            yield File(source["name"].format(word), f"{root}/{source['path'].format(word)}", sha256)


FILES = {file.name: file for file in _known()}


def cache_folder() -> Path:
    """Where headway keeps what it can make or fetch again."""
    chosen = os.environ.get("HEADWAY_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "headway"


def find(name: str, *, download: bool = False, progress: Progress | None = None) -> Path:
    """The path of a data set's file; the network is contacted only with `download=True`."""
    names = _spellings(name)
    for place in (root / spelling for root in _roots() for spelling in names):
        if place.is_file():
            return place
    entry = next((FILES[spelling] for spelling in names if spelling in FILES), None)
    missing = f"no file {name}: set HEADWAY_DATA to a folder that has it"
    if entry is None:
        close = nearest(name, FILES)
        sets = ", ".join(sorted({known.partition("/")[0] for known in FILES}))
        raise InputError(missing + (close if "did you mean" in close else f"; --download knows files of {sets}"))
    refuse(not download, f"{missing}, or pass --download to fetch it from {entry.url}")
    return fetch(entry, cache_folder() / "data", progress)


def find_all(name: str, *, download: bool = False, progress: Progress | None = None) -> list[Path]:
    """The files that a name stands for: one, or, for a folder such as `novels/core`, all that are in it.

    A folder below `$HEADWAY_DATA` is taken as it is; otherwise every file that is known to belong there is found.
    """
    _spellings(name)
    chosen = os.environ.get("HEADWAY_DATA")
    if chosen and (place := Path(chosen).expanduser() / name).is_dir():
        return [place]
    inside = [known for known in FILES if known.startswith(f"{name.rstrip('/')}/")]
    return [find(known, download=download, progress=progress) for known in sorted(inside) or [name]]


def fetch(file: File, root: Path, progress: Progress | None = None) -> Path:
    """Download to root/name. The file appears there only when it is whole and its checksum is right."""
    path = root / file.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as part:
            found = _stream(file.url, part, progress)
            if found != file.sha256:
                raise InputError(
                    f"{file.url} is not what it was: SHA-256 {found}, expected {file.sha256}; "
                    f"get {file.name} elsewhere and put it below HEADWAY_DATA"
                )
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InputError(
            f"could not fetch {file.url} to {path}: {reason}; try again, or put the file below HEADWAY_DATA"
        ) from error
    return path


def _stream(url: str, part: Path, progress: Progress | None) -> str:
    """Write what the address gives to a file; returns its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    with urllib.request.urlopen(url, timeout=SILENCE_S) as answer, part.open("wb") as out:
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        while chunk := answer.read(CHUNK):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if progress:
                progress(done, total)
    # A connection that ends early looks like the end of the file.
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")
    return digest.hexdigest()


def _spellings(name: str) -> list[str]:
    parts = PurePosixPath(name)
    if not name or parts.is_absolute() or ".." in parts.parts:
        raise InputError(f"{name!r} is no name of a data set's file: expected a relative path below HEADWAY_DATA")
    return [name, name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"]


def _roots() -> list[Path]:
    cached = cache_folder() / "data"
    chosen = os.environ.get("HEADWAY_DATA")
    if not chosen:
        return [cached]
    root = Path(chosen).expanduser()
    refuse(not root.is_dir(), f"HEADWAY_DATA is {chosen}, which is not a folder: set it to the one that holds the data")
    return [root, cached]
