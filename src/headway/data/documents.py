"""Documents for language models: text files, folders of them, JSON lines; read in chunks, never as a whole corpus.

A text file is one document, a line of .jsonl is one. A byte order mark goes, CRLF becomes a newline, all else stays.
Where lines are asked for, each line of a text file that is not blank is a document, without the white space around it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

from headway.data import readers
from headway.data.mapped import content_hash
from headway.errors import InputError, refuse

ACCEPTED = "give text files (UTF-8), .jsonl, folders of .txt and .jsonl, or .gz, .zst and .xz of these"
IN_FOLDERS = (".txt", ".jsonl")
CHUNK = 1 << 16  # characters of a document that are held at once


class Chunk(NamedTuple):
    """Some text of a document; `last` says that the document ends with it. Only an empty document is an empty chunk."""

    text: str
    last: bool


class Corpus(Protocol):
    """What a store is made of: `Documents`, or a part of them."""

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]: ...
    def identity(self) -> list[object]:
        """All that decides what the chunks are: what is in the files, not where they lie."""


@dataclass(frozen=True)
class Documents:
    """The documents in some files, one after the other; `key` is that of the text in .jsonl, `lines` makes a document
    of each line of the others. `filled`: a document without text is an error that names its file and line."""

    files: tuple[Path, ...]
    key: str = "text"
    lines: bool = False
    filled: bool = False

    @classmethod
    def at(
        cls, paths: str | Path | Sequence[str | Path], key: str = "text", lines: bool = False, filled: bool = False
    ) -> Documents:
        """Those in these files, and in the .txt and .jsonl of these folders, in the order of their names."""
        given = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
        refuse(not given, f"no text: {ACCEPTED}")
        files = tuple(chain.from_iterable(_files(path) for path in given))
        for file in files:
            readers.must_be_there(file)
            refuse(readers.bare_suffix(file) in (*readers.NOT_TEXT, ".zip"), f"cannot read {file} as text: {ACCEPTED}")
        return cls(files, key, lines, filled)

    def texts(self) -> Iterator[Iterator[str]]:
        """Each document as an iterator over its text; it has to be read before the next."""
        for file in self.files:
            if readers.bare_suffix(file) == ".jsonl":
                for where, record in readers.records(readers.lines(file), str(file), repr(self.key)):
                    yield self._checked(_cut_even(readers.text_of(record, self.key, where)), where)
                continue
            empty = f"file {file} is empty: remove it"
            if self.lines:
                yield from map(_cut_even, readers.at_least_one(_lines(file), empty))
            else:
                yield self._checked(readers.at_least_one(_characters(file), empty), f"{file}, line 1")

    def _checked(self, text: Iterator[str], where: str) -> Iterator[str]:
        """The text of a document; `where` it begins."""
        blank = True
        for some in text:
            blank = blank and not some.strip()
            yield some
        refuse(self.filled and blank, f"{where}: the document is empty: remove it")

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        for text in self.texts():
            yield from cut_up(text, size)

    def identity(self) -> list[object]:
        other = ["lines"] if self.lines else None
        forms = [self.key if readers.bare_suffix(file) == ".jsonl" else other for file in self.files]
        return [[form, content_hash(file)] for form, file in zip(forms, self.files, strict=True)]


def left_out(paths: Sequence[str | Path]) -> list[Path]:
    """The files of these folders that are no .txt or .jsonl; hidden ones are not meant anyway."""
    folders = (folder for folder in map(Path, paths) if folder.is_dir())
    files = (file for folder in folders for file in sorted(_visible(folder)))
    return [file for file in files if readers.bare_suffix(file) not in IN_FOLDERS]


def _visible(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def cut_up(text: Iterator[str], size: int = CHUNK) -> Iterator[Chunk]:
    """Chunks of at most `size` characters, so cut that encoding each gives the ids of the whole.

    A lone line end between two words starts a pre-token of every tokenizer that is exact, whatever stands before it.
    Where a text has none, the cut is before a lone space; where it has no space, anywhere. The ids may then differ
    there from those of the whole; the text comes back the same, but for a word (of `word`) that was cut.
    """
    held = ""
    for more in text:
        held += more
        while len(held) > size:
            at = _cut(held, size)
            yield Chunk(held[:at], False)
            held = held[at:]
    yield Chunk(held, True)


def _cut(text: str, size: int) -> int:
    for mark in "\n ":
        at = text.rfind(mark, 1, size)
        while at > 0:
            if not text[at - 1].isspace() and not text[at + 1].isspace():
                return at
            at = text.rfind(mark, 1, at)
    return size


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [file for file in _visible(path) if readers.bare_suffix(file) in IN_FOLDERS]
    if not found:
        packed = ", ".join(readers.COMPRESSED)
        raise InputError(f"folder {path} has no {' or '.join(IN_FOLDERS)} (plain, or {packed}): {ACCEPTED}")
    return sorted(found, key=lambda file: file.relative_to(path).parts)


def _cut_even(text: str) -> Iterator[str]:
    return (text[at : at + CHUNK] for at in range(0, len(text), CHUNK))


def _lines(path: Path) -> Iterator[str]:
    for line in readers.lines(path):
        if "\0" in line:
            raise InputError(f"{path}: a binary file, not text: {ACCEPTED}")
        if text := line.strip():
            yield text


def _characters(path: Path) -> Iterator[str]:
    """The text of a file, some at a time."""
    line, column, rest, held = 1, 0, b"", ""
    for chunk in chain(readers.without_bom(readers.unpacked(path)), [None]):
        raw = rest + (chunk or b"")
        try:
            text, used = codecs.utf_8_decode(raw, "strict", chunk is None)
        except UnicodeDecodeError as error:
            raise _no_text(path, raw, error.start, *_behind(raw[: error.start], line, column)) from error
        if "\0" in text:
            at = raw.index(b"\0")
            raise _no_text(path, raw, at, *_behind(raw[:at], line, column))
        line, column = _behind(raw[:used], line, column)
        text, rest = held + text, raw[used:]
        # A carriage return waits: what comes next decides whether it is half a line end.
        held = "\r" if text.endswith("\r") and chunk is not None else ""
        if text := text.removesuffix(held).replace("\r\n", "\n"):
            yield text


def _behind(raw: bytes, line: int, column: int) -> tuple[int, int]:
    """The line and the column (from 0) behind these bytes, which start at this line and column."""
    return line + raw.count(b"\n"), len(raw) - raw.rindex(b"\n") - 1 if b"\n" in raw else column + len(raw)


def _no_text(path: Path, raw: bytes, at: int, line: int, column: int) -> InputError:
    """What is wrong with the byte at this place of `raw`, which is at this line and column (from 0)."""
    where = f"{path}, line {line}"
    if line == 1 and column == 0 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return InputError(
            f"{where}: UTF-16, expected UTF-8; convert it first, for example with iconv -f utf-16 -t utf-8"
        )
    byte = f"byte {raw[at]:#04x} at {column + 1}"
    if b"\0" in raw:
        return InputError(f"{where}: a binary file, not text ({byte}): {ACCEPTED}")
    return InputError(f"{where}: not UTF-8 ({byte}); convert it first, for example with iconv -f latin1 -t utf-8")
