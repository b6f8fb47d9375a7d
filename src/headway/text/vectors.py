"""Word vectors in files: word2vec's text and binary forms, GloVe's text without a first line; and who is near whom.

    text      [words width] a line, then on each line a word and its numbers, parted by spaces
    binary    "words width" a line, then for each word its UTF-8, a space, and its numbers as little-endian float32

Either may be packed (.gz). A name in .bin is binary, one in .txt or .vec text; of any other name the content decides.
Files are read in chunks: memory holds the vectors and one chunk. N words, D width, Q of them asked for.
"""

from __future__ import annotations

import gzip
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from headway.atomic import written
from headway.errors import InputError, refuse

Floats = NDArray[np.float32]
Group = tuple[int, list[bytes], Floats]  # the number of the first line or word in the file, words, rows

CHUNK = 1 << 23  # bytes that are read at once
LONGEST_WORD = 1 << 12  # bytes
WIDEST = 1 << 16  # numbers of a vector
LONGEST_LINE = WIDEST * 32 + LONGEST_WORD  # bytes
FORMS = {".bin": True, ".txt": False, ".vec": False}
COUNTS = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,18})\s*")  # the first line, where there is one
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # bytes that text has not


class Neighbour(NamedTuple):
    word: str
    cosine: float


@final
class WordVectors:
    """A row of `table_ND` for each of `words`."""

    def __init__(self, words: Sequence[str], table_ND: Floats) -> None:
        if table_ND.ndim != 2 or len(words) != len(table_ND):
            raise ValueError(f"{len(words)} words for a table of shape {list(table_ND.shape)}")
        self.words, self.table_ND = list(words), table_ND

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        return int(self.table_ND.shape[1])

    @cached_property
    def row_of(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def unit_ND(self) -> Floats:
        """Each row divided by its length; one of zeros stays."""
        length_N1 = np.linalg.norm(self.table_ND, axis=1, keepdims=True)
        return (self.table_ND / np.where(length_N1 > 0, length_N1, 1)).astype(np.float32)

    def nearest(self, words: str | Sequence[str], k: int = 10, minus: Sequence[str] = ()) -> list[Neighbour]:
        """The k words of greatest cosine to a word, or to a sum: a − b + c is `nearest([a, c], minus=[b])`.

        Of a sum each vector has length 1 (Levy and Goldberg 2014, eq. 1); what was asked with is left out.
        """
        plus = [words] if isinstance(words, str) else list(words)
        rows_Q = [self.row(word) for word in (*plus, *minus)]
        sign_Q = np.array([1.0] * len(plus) + [-1.0] * len(minus), np.float32)
        refuse(not rows_Q, "no word to find the neighbours of")
        goal_D = sign_Q @ self.unit_ND[rows_Q]
        length = float(np.linalg.norm(goal_D))
        cosine_N = self.unit_ND @ (goal_D / length if length else goal_D)
        cosine_N[rows_Q] = -np.inf
        k = min(k, len(self) - len(set(rows_Q)))
        best = np.argpartition(-cosine_N, k - 1)[:k] if k else np.arange(0)
        best = best[np.argsort(-cosine_N[best], kind="stable")]
        return [Neighbour(self.words[i], float(cosine_N[i])) for i in best]

    def row(self, word: str) -> int:
        if word not in self.row_of:
            alike = (other for other in self.words if other[:1].lower() == word[:1].lower())
            near = get_close_matches(word, [other for other in alike if abs(len(other) - len(word)) < 3], n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise InputError(f"'{word}' is none of the {len(self):,} words{hint}")
        return self.row_of[word]


# Reading.


def read_vectors(path: str | Path, width: int | None = None) -> WordVectors:
    """The vectors of a file in either form; what does not fit is named by its line (text) or word (binary).

    Those of another `width` than is wanted are refused before they are all read.
    """
    path = Path(path)
    refuse(not path.exists(), f"there is no file {path}")
    refuse(path.is_dir(), f"{path} is a folder: expected a file of word vectors")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            head = stream.peek(CHUNK)
            refuse(not head.strip(), f"file {path} is empty: a vector file has a word and its numbers on each line")
            form = _form(path)
            is_binary = CONTROL.search(head) is not None if form is None else form
            return WordVectors(*_read(path, stream, is_binary, width))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}") from error


def _form(path: Path) -> bool | None:
    """Whether a file's name says that it is binary; None: it says nothing."""
    return FORMS.get(Path(path.name.removesuffix(".gz")).suffix)


def _read(path: Path, stream: Any, is_binary: bool, wanted: int | None) -> tuple[list[str], Floats]:
    line = stream.readline(LONGEST_LINE + 1).removeprefix(b"\xef\xbb\xbf")
    if found := COUNTS.fullmatch(line):
        count, width = int(found[1]), int(found[2])
        if not 0 < width <= WIDEST or not count:
            raise InputError(f"{path}, line 1: {count:,} words of width {width:,} cannot be; is it a vector file?")
    elif is_binary:
        raise InputError(f"{path}: expected a first line of two numbers, words and width, as binary vector files have")
    elif len(line) > LONGEST_LINE:
        raise InputError(f"{path} has a line of more than {LONGEST_LINE:,} bytes: is it a vector file?")
    else:
        count, width = 0, len(line.split()) - 1
        if not 0 < width <= WIDEST or _numbers(line.split(maxsplit=1)[1], width) is None:
            raise InputError(f"{path}, line 1: expected a word and its numbers, or how many words and numbers")
    if wanted is not None and width != wanted:
        raise InputError(f"{path} has vectors of width {width}, the model's are of width {wanted}: they must be equal "
                         f"(--set model.width={width}, or another file)")  # fmt: skip
    if is_binary:
        return _gathered(path, "word", count, _binary(path, stream, count, width))
    return _gathered(path, "line", count, _text(path, stream, [] if count else [line], width))


def _gathered(path: Path, unit: str, count: int, groups: Iterator[Group]) -> tuple[list[str], Floats]:
    """All words and rows, none twice. `count`: how many the first line says (0: it says nothing)."""
    number_of: dict[str, int] = {}
    rows: list[Floats] = []
    for first, raw_words, rows_ND in groups:
        if not (finite_N := np.isfinite(rows_ND).all(1)).all():
            at = first + int(np.argmin(finite_N))
            raise InputError(f"{path}, {unit} {at:,}: a number is infinite or none")
        for number, raw in enumerate(raw_words, first):
            try:
                word = raw.decode("utf-8")
            except UnicodeDecodeError:
                raise InputError(f"{path}, {unit} {number:,}: the word {raw[:40]!r} is not UTF-8") from None
            if not word:
                raise InputError(f"{path}, {unit} {number:,}: a vector without a word")
            if (before := number_of.setdefault(word, number)) != number:
                raise InputError(f"{path}, {unit} {number:,}: '{word}' was on {unit} {before:,} already; remove one")
        rows.append(rows_ND)
        if 0 < count < len(number_of):
            raise InputError(f"{path}, line {count + 2:,}: one more than the {count:,} that the first line says")
    if len(number_of) < count:
        raise InputError(
            f"{path} ends after {len(number_of):,} words, its first line says {count:,}: it was cut short, "
            "or the line is wrong"
        )
    words, at = list(number_of), 0
    table_ND = np.empty((len(words), rows[0].shape[1]), np.float32)
    while rows:  # let go one by one: both together would take the memory twice
        some = rows.pop(0)
        table_ND[at : at + len(some)] = some
        at += len(some)
    return words, table_ND


def _text(path: Path, stream: Any, lines: list[bytes], width: int) -> Iterator[Group]:
    """`lines`: those that were read already."""
    number = 1 if lines else 2
    while lines := lines + stream.readlines(CHUNK):
        if not lines[-1].strip(b" \t\r"):  # a blank rest behind the last line end
            lines.pop()
        if lines:
            yield number, *_rows(path, lines, width, number)
        number += len(lines)
        lines = []


def _rows(path: Path, lines: list[bytes], width: int, first: int) -> tuple[list[bytes], Floats]:
    """All lines at once; if they do not fit, one by one, to say which."""
    words, _, numbers = zip(*(line.strip(b" \t\r\n").partition(b" ") for line in lines), strict=True)
    if all(rest.count(b" ") == width - 1 for rest in numbers):
        found_N = _numbers(b" ".join(numbers), width * len(lines))
        if found_N is not None and all(words):
            return list(words), found_N.reshape(len(lines), width)
    rows = [_row(line, width, f"{path}, line {number:,}") for number, line in enumerate(lines, first)]
    return [word for word, _ in rows], np.stack([row for _, row in rows])


def _row(line: bytes, width: int, where: str) -> tuple[bytes, Floats]:
    """A line that may be parted by tabs, or whose word has spaces in it, as a few of GloVe's have."""
    fields = line.split()
    if len(fields) > width + 1 and not any(_numbers(field, 1) is not None for field in fields[1:-width]):
        fields = [b" ".join(fields[:-width]), *fields[-width:]]
    if len(fields) != width + 1:
        what = f"a vector of {len(fields) - 1} numbers" if fields else "an empty line"
        raise InputError(f"{where}: {what}, expected {width}")
    for field in fields[1:]:
        if _numbers(field, 1) is None:
            raise InputError(f"{where}: {field[:40].decode('utf-8', 'replace')!r} is not a number")
    return fields[0], np.array([float(field) for field in fields[1:]], np.float32)


def _numbers(text: bytes, count: int) -> Floats | None:
    """So many numbers parted by white space, or None."""
    # A deprecation is how numpy says that something is no number.
    with warnings.catch_warnings(action="error", category=DeprecationWarning):
        try:
            found = np.fromstring(text, np.float32, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return found if len(found) == count else None


def _binary(path: Path, stream: Any, count: int, width: int) -> Iterator[Group]:
    if path.suffix != ".gz" and count * (4 * width + 2) > path.stat().st_size:
        raise InputError(f"{path}: {count:,} words of width {width} do not fit into its {path.stat().st_size:,} bytes: "
                         "it was cut short, or its first line is wrong")  # fmt: skip
    held, done = b"", 0
    while done < count and (more := stream.read(CHUNK)):
        held += more
        words, rows, used = _records(path, held, width, count - done, done + 1)
        if words:
            yield done + 1, words, np.frombuffer(b"".join(rows), "<f4").reshape(-1, width).astype(np.float32)
        held, done = held[used:], done + len(words)
    if done == count and (held + stream.read(CHUNK)).strip():
        raise InputError(f"{path} continues after the {count:,} words of width {width} that its first line says")


def _records(path: Path, held: bytes, width: int, most: int, first: int) -> tuple[list[bytes], list[bytes], int]:
    """The whole records in some bytes: words, vectors, and how many bytes they took."""
    words: list[bytes] = []
    rows: list[bytes] = []
    at, size = 0, 4 * width
    while len(words) < most:
        space = held.find(b" ", at, at + LONGEST_WORD)
        if space < 0 and len(held) - at >= LONGEST_WORD:
            number = first + len(words)
            raise InputError(f"{path}, word {number:,}: no end of the word: the width {width} or the file is wrong")
        if space < 0 or space + 1 + size > len(held):
            break
        # word2vec ends a record with a line end, others do not; some have one before the next word.
        words.append(held[at:space].lstrip(b"\n"))
        rows.append(held[space + 1 : space + 1 + size])
        at = space + 1 + size
    return words, rows, at


# Writing.


def write_vectors(path: str | Path, vectors: WordVectors) -> None:
    """word2vec's form that the name says: .bin, or .txt and .vec; the file appears when it is whole.

    A number is written with nine digits, so that it comes back as it was.
    """
    path = Path(path)
    is_binary = check_name(path)
    _check_words(vectors.words)
    with written(path) as part, gzip.open(part, "wb") if path.suffix == ".gz" else part.open("wb") as stream:
        stream.write(f"{len(vectors)} {vectors.width}\n".encode())
        stream.writelines(_records_of(vectors, is_binary))


def check_name(path: str | Path) -> bool:
    """Whether a file of this name will be binary; one that cannot be written is refused."""
    path = Path(path)
    form = _form(path)
    if form is None:
        raise InputError(f"{path}: the name of a vector file ends in .txt, .vec or .bin (packed: .gz)")
    refuse(path.is_dir(), f"{path} is a folder: expected the name of a file")
    refuse(not path.parent.is_dir(), f"there is no folder {path.parent} for {path.name}: make it first")
    return form


def _check_words(words: Iterable[str]) -> None:
    seen: set[str] = set()
    for word in words:
        if not word or word.split() != [word]:
            raise InputError(f"a vector file cannot hold the word {word!r}: it is empty or has white space in it")
        if word in seen:
            raise InputError(f"the word '{word}' is there twice: a vector file names each once")
        seen.add(word)


def _records_of(vectors: WordVectors, is_binary: bool) -> Iterator[bytes]:
    line = " ".join(["%.9g"] * vectors.width)
    for word, row_D in zip(vectors.words, vectors.table_ND.astype("<f4", copy=False), strict=True):
        numbers = row_D.tobytes() if is_binary else (line % tuple(row_D.tolist())).encode()
        yield word.encode() + b" " + numbers + b"\n"
