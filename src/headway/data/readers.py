"""Text from files, a line or a pair at a time: plain, tab-separated, JSON lines or zipped, never all at once.

What a file means is decided by its name, and what is wrong with it is said with its name and line.
"""

import gzip
import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from headway.errors import InputError, nearest, refuse
from headway.outside import encodable

Form = Literal["text", "tsv", "jsonl", "zip"]
Value = TypeVar("Value")

ACCEPTED = (
    "give two aligned text files (a.en a.de), or one file that holds both sides: .tsv (source TAB target), "
    ".jsonl, or a .zip of one of these; .gz, .zst and .xz of all but .zip are read too"
)
COMPRESSED = (".gz", ".zst", ".xz")
# Names that promise something else than lines of text: reading them as text would train on markup or noise.
NOT_TEXT = (".json", ".csv", ".parquet", ".arrow", ".xml", ".tmx", ".sgm", ".tar", ".tgz", ".bz2", ".7z")
FORMS: dict[str, Form] = {".tsv": "tsv", ".jsonl": "jsonl", ".zip": "zip"}  # any other is text
CHUNK = 1 << 16
UTF8 = "utf-8"
BOM = b"\xef\xbb\xbf"


def lines(path: str | Path, encoding: str = UTF8) -> Iterator[str]:
    """The lines of a UTF-8 file (.gz, .zst and .xz too), without their ends, without a byte order mark.

    Only a newline ends a line: U+2028, U+0085 and form feeds are text, or aligned files would shift.
    """
    path = Path(path)
    must_be_there(path)
    return decoded(unpacked(path), str(path), encoding)


def bare_suffix(path: Path) -> str:
    """The end of a file's name without .gz, .zst or .xz, in small letters."""
    return (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def form(path: str | Path) -> Form:
    """What a file holds, told by its name without .gz, .zst or .xz."""
    path = Path(path)
    suffix = bare_suffix(path)
    if suffix in NOT_TEXT or (suffix == ".zip" and path.suffix.lower() != ".zip"):
        raise InputError(f"cannot read {path} as parallel text: {ACCEPTED}")
    return FORMS.get(suffix, "text")


def read_pairs(
    files: Sequence[str | Path], source: str = "source", target: str = "target"
) -> Iterator[tuple[str, str]]:
    """(source, target) of every sentence pair in the files, one file or pair of files after the other.

    files: `[a.en, a.de]`, `[a.en, a.de, b.en, b.de]`, or any number of .tsv, .jsonl and .zip.
    source, target: the keys of the two sides in .jsonl, either at the top or inside "translation".
    A pair with an empty side is kept: who stores the pairs decides.
    """
    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    forms = {form(path) for path in paths}
    if not paths or ("text" in forms and (len(forms) > 1 or len(paths) % 2)):
        given = ", ".join(str(path) for path in paths) or "no file"
        raise InputError(f"cannot tell source from target in {given}: {ACCEPTED}")
    for path in paths:
        must_be_there(path)
    return _all_pairs(paths, source, target)


def _all_pairs(paths: list[Path], source: str, target: str) -> Iterator[tuple[str, str]]:
    if form(paths[0]) == "text":
        for source_path, target_path in zip(paths[::2], paths[1::2], strict=True):
            yield from _aligned(source_path, target_path)
        return
    for path in paths:
        if form(path) == "zip":
            yield from _zip(path, source, target)
        else:
            yield from _rows(lines(path), str(path), form(path), source, target)


def _aligned(source_path: Path, target_path: Path) -> Iterator[tuple[str, str]]:
    both = zip_longest(lines(source_path), lines(target_path))
    for number, (source_line, target_line) in enumerate(both, start=1):
        if source_line is not None and target_line is not None:
            yield source_line, target_line
            continue
        longer = number + sum(1 for _ in both)
        counts = (longer, number - 1) if target_line is None else (number - 1, longer)
        raise InputError(
            f"{source_path} has {counts[0]} lines, {target_path} {counts[1]}: "
            "line by line they must be translations of each other, so both need the same number"
        )


def _rows(rows: Iterator[str], name: str, kind: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    """The pairs of lines with tabs, or of JSON lines."""
    if kind == "jsonl":
        for where, record in records(rows, name, f"{source!r} and {target!r}"):
            if source not in record and isinstance(record.get("translation"), dict):
                record = record["translation"]
            yield text_of(record, source, where), text_of(record, target, where)
        return
    for number, row in enumerate(rows, start=1):
        columns = row.split("\t", 2)
        if len(columns) < 2:
            raise InputError(f"{name}, line {number}: no tab; each line must be source TAB target")
        yield columns[0], columns[1]


def records(rows: Iterator[str], name: str, keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where it stands, object) of each line of JSON; `keys` says in an error what was expected of it."""
    for number, row in enumerate(rows, start=1):
        where = f"{name}, line {number}"
        try:
            record = json.loads(row)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error}); each line must be one object") from error
        if not isinstance(record, dict):
            raise InputError(f"{where}: {type(record).__name__}, expected an object with {keys}")
        yield where, record


def text_of(record: dict[str, Any], key: str, where: str) -> str:
    """The text under a key, or what is wrong with it."""
    if key not in record:
        raise InputError(f"{where}: no key {key!r}{nearest(key, record)}")
    text = record[key]
    if not isinstance(text, str):
        raise InputError(f"{where}: {key!r} is {type(text).__name__}, expected a string")
    if not encodable(text):
        raise InputError(f"{where}: {key!r} holds half a surrogate pair, which is no character")
    return text


def _zip(path: Path, source: str, target: str) -> Iterator[tuple[str, str]]:
    """The one text of an archive; members whose name starts with "_" are notes or a system's own."""
    with opened_zip(path) as archive:
        files = (n for n in archive.namelist() if not n.endswith("/"))
        names = [n for n in files if not any(part.startswith(("_", ".")) for part in Path(n).parts)]
        suffix = Path(names[0]).suffix.lower() if len(names) == 1 else ""
        if suffix not in (".txt", ".tsv", ".jsonl"):
            held = ", ".join(names[:5]) or "nothing"
            raise InputError(f"{path} holds {held}: a .zip must hold one .txt or .tsv with tabs, or one .jsonl")
        name = f"{path}/{names[0]}"
        with archive.open(names[0]) as stream:
            yield from _rows(decoded(_read(stream), name), name, suffix[1:], source, target)


def member(path: Path, name: str) -> Iterator[str]:
    """The lines of one text of an archive."""
    must_be_there(path)
    if path.suffix.lower() != ".zip":
        yield from decoded(_tar_member(path, name), f"{path}/{name}")
        return
    with opened_zip(path) as archive:
        refuse(name not in archive.namelist(), f"{path} has no member '{name}'")
        with archive.open(name) as stream:
            yield from decoded(_read(stream), f"{path}/{name}")


def _tar_member(path: Path, name: str) -> Iterator[bytes]:
    """Read from front to back, and never written to disk."""
    try:
        with tarfile.open(path, "r|gz") as archive:
            for entry in archive:
                if entry.name == name and (stream := archive.extractfile(entry)) is not None:
                    yield from _read(stream)
                    return
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a whole .tar.gz ({error}): fetch or pack it again") from error
    raise InputError(f"{path} has no member '{name}'")


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive, whose members are read and never written to disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{path} is not a whole, open .zip ({error}): fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def at_least_one(values: Iterable[Value], problem: str) -> Iterator[Value]:
    """The values; where there is none, that is a problem."""
    empty = True
    for value in values:
        empty = False
        yield value
    refuse(empty, problem)


def decoded(chunks: Iterator[bytes], name: str, encoding: str = UTF8) -> Iterator[str]:
    for number, raw in enumerate(at_least_one(_split(chunks), f"file {name} is empty"), start=1):
        try:
            yield raw.decode(encoding)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}, line {number}: not UTF-8 (byte {raw[error.start]:#04x} at {error.start + 1}); "
                "convert it first, for example with iconv -f latin1 -t utf-8"
            ) from error


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Byte lines without b"\\n" or b"\\r\\n"; a last line needs no end."""
    head: list[bytes] = []
    for chunk in without_bom(chunks):
        first, *rest = chunk.split(b"\n")
        head.append(first)
        if rest:
            yield b"".join(head).removesuffix(b"\r")
            for line in rest[:-1]:
                yield line.removesuffix(b"\r")
            head = [rest[-1]]
    if last := b"".join(head):
        yield last.removesuffix(b"\r")


def without_bom(chunks: Iterator[bytes]) -> Iterator[bytes]:
    start = b""
    for chunk in chunks:
        start += chunk
        if len(start) >= len(BOM):
            break
    yield start.removeprefix(BOM)
    yield from chunks


def unpacked(path: Path) -> Iterator[bytes]:
    """The bytes of a file, unpacked, some at a time."""
    suffix = path.suffix.lower()
    try:
        with path.open("rb") as stream:
            chunks = _read(gzip.GzipFile(fileobj=stream) if suffix == ".gz" else stream)
            yield from UNPACK[suffix](chunks, path) if suffix in UNPACK else chunks
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole .gz ({error}): fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _read(stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    return iter(lambda: stream.read(CHUNK), b"")


def _unpack_zst(packed: Iterator[bytes], path: Path) -> Iterator[bytes]:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise InputError(f"{path} needs the package zstandard: pip install zstandard, or unpack it") from None
    return _frames(packed, path, lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)


def _unpack_xz(packed: Iterator[bytes], path: Path) -> Iterator[bytes]:
    return _frames(packed, path, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError)


def _frames(packed: Iterator[bytes], path: Path, start: Callable[[], Any], wrong: type[Exception]) -> Iterator[bytes]:
    """Frame by frame: the libraries' own readers take a file that was cut short, or has more behind it, for a whole
    one."""
    unpacker, suffix = None, path.suffix.lower()
    try:
        for chunk in packed:
            while chunk:
                unpacker = unpacker or start()
                yield unpacker.decompress(chunk)
                chunk = unpacker.unused_data if unpacker.eof else b""
                unpacker = None if unpacker.eof else unpacker
    except wrong as error:
        raise InputError(f"{path} is not a whole {suffix} ({error}): fetch or pack it again") from error
    refuse(unpacker is not None, f"{path} is not a whole {suffix} (it ends early): fetch or pack it again")


UNPACK = {".zst": _unpack_zst, ".xz": _unpack_xz}


def must_be_there(path: Path) -> None:
    refuse(path.is_dir(), f"{path} is a folder, expected a file of text")
    if not path.exists():
        raise InputError(f"no file {path}{_like(path)}")


def _like(path: Path) -> str:
    """A hint when the name is nearly one that is there; an ending that they share makes no two names alike."""
    beside = list(path.parent.iterdir()) if path.parent.is_dir() else []
    stems = get_close_matches(path.stem, {other.stem for other in beside})
    close = get_close_matches(path.name, [other.name for other in beside if other.stem in stems], n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
