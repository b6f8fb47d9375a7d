"""ARPA files, the common form of n-gram models (SRILM, KenLM and others read and write it).

    \\data\\                            how many n-grams of each order
    ngram 1=4
    \\1-grams:                         log₁₀ p, the words, log₁₀ of the back-off weight (none: 1)
    -0.7   the   -0.3
    \\end\\

A text begins with <s>, which is never predicted (its −99 is the log of 0), and ends with </s>, which is never a
history. headway has one id for both: first in an n-gram it is <s>, last it is </s>. No maintained library reads and
writes these files, so headway does.

N n-grams of one order, M their words, V vocabulary.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.atomic import replaced
from headway.data.readers import lines
from headway.errors import InputError, refuse
from headway.folder import find_model, read_model, text_card, weights_of, with_tokenizers, write_model
from headway.models.counts import Ints
from headway.models.ngram import NGram, NGramConfig
from headway.models.smoothing import Floats, Given
from headway.text.codec import SPACE_MARK
from headway.text.tokenizer import END, PAD, SPECIALS, START, UNKNOWN, TextOptions, Tokenizer

NOTHING = -99.0  # log₁₀ of 0
DIGITS = 9  # that tell every float32 apart
COUNT = re.compile(r"ngram +(\d+) *= *(\d+)")
SECTION = re.compile(r"\\(\d+)-grams:")
SPELLED_SPACE = re.compile(rf"(?:{SPACE_MARK}|\\[nrt]|\\x[0-9a-f]{{2}})+")
OPENING, CLOSING = SPECIALS[START], SPECIALS[END]


# Out.


def export_arpa(folder: str | Path, path: str | Path) -> str:
    """Write the model of a folder as an ARPA file (.gz: packed); it appears when it is whole. Returns the kind of its
    vocabulary: words, or something that only the model itself can cut a text into."""
    found, path = read_model(folder), Path(path)
    if not isinstance(found.model, NGram):
        raise InputError(f"{folder} is a model of the family '{found.card.family}': only n-grams have an ARPA file")
    refuse(not path.parent.is_dir(), f"there is no folder {path.parent} for {path.name}: make it first")
    opened: Any = partial(gzip.open, compresslevel=6) if path.suffix == ".gz" else open
    with replaced(path) as part, opened(part, "wt", encoding="utf-8", newline="\n") as stream:
        stream.writelines(arpa_lines(found.model, spelled(found.source_tokenizer)))
    return found.card.text.kind


def spelled(tokenizer: Tokenizer) -> list[str]:
    """Each entry of a vocabulary as a word without white space, no two alike."""
    words = tokenizer.tokens(range(len(tokenizer)))
    seen: set[str] = set()
    for i, word in enumerate(words):
        words[i] = f"{word}#{i}" if word in seen else word
        seen.add(word)
    return words


def arpa_lines(model: NGram, words: Sequence[str]) -> Iterator[str]:
    """The lines of a model's file. `words` spells each id."""
    known = [i for i in range(model.vocabulary) if i not in (PAD, START) and i < len(words)]
    yield "\\data\\\n"
    for order, table in enumerate(model.tables, 1):
        # <s> has a line of its own among the words.
        yield f"ngram {order}={len(table.logp) if order > 1 else len(known) + 1}\n"
    last = list(words)
    last[END] = CLOSING
    texts: list[str] = []
    for order, table in enumerate(model.tables, 1):
        yield f"\n\\{order}-grams:\n"
        logp, backoff = _tens(table.logp), _tens(table.backoff)
        if order == 1:
            yield f"{NOTHING:g}\t{OPENING}{_weight(backoff, END)}\n"
            for i in known:
                yield f"{logp[i]}\t{last[i]}{_weight(backoff, i) if i != END else ''}\n"
            texts = [OPENING if i == END else word for i, word in enumerate(last)]
            continue
        histories, ends = (half.tolist() for half in (table.keys // model.vocabulary, table.keys % model.vocabulary))
        texts = [f"{texts[history]} {last[end]}" for history, end in zip(histories, ends, strict=True)]
        for row, text in enumerate(texts):
            yield f"{logp[row]}\t{text}{_weight(backoff, row) if ends[row] != END else ''}\n"
    yield "\n\\end\\\n"


def _tens(logs: torch.Tensor) -> list[str]:
    """Natural logarithms as those of ten, in letters."""
    return [f"{max(value, NOTHING):.{DIGITS}g}" for value in (logs.double() / math.log(10)).tolist()]


def _weight(backoff: list[str], row: int) -> str:
    return f"\t{backoff[row]}" if backoff and float(backoff[row]) else ""


# In.


@dataclass
class Section:
    """The n-grams of one order as they stand in a file."""

    ids_NM: Ints
    logp_N: Floats
    backoff_N: Floats
    lines: list[int]  # where each stands


@dataclass
class Reader:
    """Where a reading of a file stands; every error says so."""

    path: Path
    rows: Iterator[tuple[int, str]]
    ids: dict[str, int]
    grows: bool  # the words of order 1 make the vocabulary
    number: int = 0
    sizes: list[int] = field(default_factory=list)

    def wrong(self, problem: str, line: int | None = None) -> InputError:
        return InputError(f"{self.path}, line {line or self.number}: {problem}; it is no whole ARPA file")

    def wrong_row(self, section: Section, n: int, problem: str) -> InputError:
        """`problem` has the place of the n-gram's text."""
        words, (first, *others) = list(self.ids), section.ids_NM[n]
        opening = OPENING if others and first == END else words[first]
        text = " ".join([opening, *(words[i] for i in others)])
        return self.wrong(problem.format(text), section.lines[n])

    def next(self) -> str:
        """The next line that is not blank."""
        for number, row in self.rows:
            self.number = number
            if text := row.strip(" \t"):
                return text
        raise self.wrong("the file ends here, expected more n-grams or \\end\\")

    def header(self) -> str:
        """Reads the counts; returns the line behind them."""
        while self.next() != "\\data\\":
            if self.number > 100:
                raise self.wrong("expected \\data\\ before this")
        while found := COUNT.fullmatch(line := self.next()):
            if int(found[1]) != len(self.sizes) + 1:
                raise self.wrong(f"order {found[1]} is told where {len(self.sizes) + 1} was expected")
            self.sizes.append(int(found[2]))
        if not self.sizes:
            raise self.wrong("expected lines such as 'ngram 1=1000' here")
        return line

    def section(self, line: str, order: int) -> tuple[Section, str]:
        """Reads the n-grams of an order whose heading is `line`; returns the heading behind them too."""
        heading = SECTION.fullmatch(line)
        if heading is None or int(heading[1]) != order:
            raise self.wrong(f"'{line[:40]}' stands where \\{order}-grams: was expected")
        numbers, flat, logs, weights = list[int](), list[int](), list[float](), list[float]()
        while not (line := self.next()).startswith("\\"):
            fields = [part for part in line.replace("\t", " ").split(" ") if part]
            if len(fields) not in (order + 1, order + 2):
                raise self.wrong(f"{len(fields)} fields, expected a number, {order} words and perhaps a second number")
            logs.append(self.value(fields[0], probability=True))
            weights.append(self.value(fields[order + 1]) if len(fields) > order + 1 else 0.0)
            flat += self.words(fields[1 : order + 1])
            numbers.append(self.number)
        if len(logs) != self.sizes[order - 1]:
            raise self.wrong(f"{len(logs):,} n-grams of order {order}, but {self.sizes[order - 1]:,} were told of")
        ids_NM = np.array(flat, np.int64).reshape(-1, order)
        return Section(ids_NM, np.array(logs), np.array(weights), numbers), line

    def value(self, text: str, probability: bool = False) -> float:
        """A logarithm of ten as a natural one."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value <= 0 if probability else value < math.inf):
            raise self.wrong(f"'{text}' is no {'log-probability' if probability else 'back-off weight'}")
        return value * math.log(10) if value > NOTHING else -math.inf

    def words(self, words: list[str]) -> list[int]:
        found = []
        for place, word in enumerate(words):
            if word in (OPENING, CLOSING) and len(words) > 1:
                if place != (0 if word == OPENING else len(words) - 1):
                    raise self.wrong(f"{word} stands inside an n-gram")
                word = CLOSING
            if word == "<UNK>" and word not in self.ids:
                word = SPECIALS[UNKNOWN]
            if word not in self.ids:
                if len(words) > 1 or not self.grows:
                    raise self.wrong(f"the word '{word}' is not in the vocabulary")
                self.ids[word] = len(self.ids)
            elif self.ids[word] == PAD:
                raise self.wrong(f"{word} is a word that headway keeps for itself")
            found.append(self.ids[word])
        return found


def read_arpa(path: str | Path, words: Sequence[str] = ()) -> tuple[NGram, list[str]]:
    """The model of a file and the spelling of its ids: these words, or those of the file behind headway's specials."""
    path = Path(path)
    ids = {word: i for i, word in enumerate(words or SPECIALS)}
    reader = Reader(path, enumerate(lines(path), 1), ids, grows=not words)
    line = reader.header()
    sections = []
    for order in range(1, len(reader.sizes) + 1):
        section, line = reader.section(line, order)
        if order == 1:
            _check_twice(reader, section, section.ids_NM[:, 0])
        sections.append(section)
    if line != "\\end\\":
        raise reader.wrong(f"'{line[:40]}' stands where \\end\\ was expected")
    return _model(reader, sections), list(ids)


def _model(reader: Reader, sections: list[Section]) -> NGram:
    config = NGramConfig(len(sections), Given(), boundary=END, never=(PAD, START), sizes=tuple(reader.sizes[1:]))
    model = NGram(config, len(reader.ids))
    first, *longer = sections
    logp_V, backoff_V = np.full(model.vocabulary, -np.inf), np.zeros(model.vocabulary)
    logp_V[first.ids_NM[:, 0]], backoff_V[first.ids_NM[:, 0]] = first.logp_N, first.backoff_N
    backoff_V[END], backoff_V[START], logp_V[START] = backoff_V[START], 0.0, -np.inf
    model.tables[0].fill(np.zeros(0, np.int64), logp_V, backoff_V)
    for table, section in zip(model.tables[1:], longer, strict=True):
        keys_N = _rows(reader, model, section) * model.vocabulary + section.ids_NM[:, -1]
        _check_twice(reader, section, keys_N)
        sorted_N = np.argsort(keys_N)
        table.fill(keys_N[sorted_N], section.logp_N[sorted_N], section.backoff_N[sorted_N])
    return model


def _rows(reader: Reader, model: NGram, section: Section) -> Ints:
    """Of each n-gram the row of its first words in the order below."""
    ids_NM = torch.from_numpy(section.ids_NM)
    rows_N = ids_NM[:, 0]
    for place in range(1, ids_NM.shape[1] - 1):
        rows_N = model.tables[place].find(rows_N, ids_NM[:, place])
    if (missing := (rows_N < 0).nonzero()).numel():
        problem = "the first words of n-gram '{}' are no n-gram of the order below"
        raise reader.wrong_row(section, int(missing[0]), problem)
    return rows_N.numpy()


def _check_twice(reader: Reader, section: Section, keys_N: Ints) -> None:
    sorted_N = np.argsort(keys_N, kind="stable")
    twice = np.flatnonzero(keys_N[sorted_N][1:] == keys_N[sorted_N][:-1])
    if len(twice):
        raise reader.wrong_row(section, int(sorted_N[twice[0] + 1]), "the n-gram '{}' stands here a second time")


def _white_space(words: Sequence[str]) -> dict[str, str]:
    """Where these are words of whole documents (`TextOptions.exact`): their white space, which `spelled` has written
    out, as it was. Of characters and subwords there is none: only their own tokenizer can split a text into them."""
    spaces = [word for word in words if SPELLED_SPACE.fullmatch(word)]
    others = set(words).difference(spaces)
    subwords = any(word.startswith(SPACE_MARK) for word in others) or all(len(word) == 1 for word in others)
    if subwords or not any("\\n" in word for word in spaces):
        return {}
    return {word: word.replace(SPACE_MARK, " ").encode("ascii").decode("unicode_escape") for word in spaces}


def import_arpa(path: str | Path, folder: str | Path, like: str | Path | None = None) -> None:
    """Make a model folder of an ARPA file. Its words are those between spaces; where it was written of another
    vocabulary (characters, subwords), the model `like` has it."""
    other = read_model(find_model(like)) if like is not None else None
    model, words = read_arpa(path, spelled(other.source_tokenizer) if other else ())
    known = words[len(SPECIALS) :]
    spaces = _white_space(known)
    exact = bool(spaces)
    text = TextOptions("word", max(len(words), 5), nfc=False, min_count=1, exact=exact, lines=not exact)
    tokenizer = Tokenizer.of_words([spaces.get(word, word) for word in known], text)
    if other:
        text, tokenizer = other.card.text, other.source_tokenizer
    card = text_card("ngram", model.config, (model.vocabulary,), text)
    write_model(Path(folder), weights_of(model), card, with_tokenizers(card, tokenizer))
