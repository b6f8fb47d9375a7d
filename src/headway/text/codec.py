"""What every tokenizer is: headway's own (`text.tokenizer`) and those of other programs (`text.foreign`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import tokenizers
from tokenizers import processors

from headway.errors import InputError, of_library
from headway.text.characters import character_runs, whole_characters
from headway.text.chat import Chat

SPACE_MARK = "▁"


class Codec(Protocol):
    """Text to ids and back, and the ids of special tokens by their role. None: the vocabulary has no such
    entry. mask: stands for a token that is to be predicted. stops: ids that end a text. filled: a source is padded to
    so many tokens, and the padding is read like text (0: it is not padded)."""

    inner: tokenizers.Tokenizer
    pad: int | None
    start: int | None
    end: int | None
    unknown: int | None
    mask: int | None = None
    stops: frozenset[int]
    chat: Chat | None
    filled: int = 0

    @property
    def opening(self) -> tuple[int, ...]:
        """Special ids before a text that is read; `encode` leaves them out."""

    @property
    def closing(self) -> tuple[int, ...]:
        """Special ids after it; `encode` leaves them out."""

    @property
    def template(self) -> tokenizers.Tokenizer:
        """Adds the special tokens of a text or a pair of texts, as an encoder reads them."""

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides how text becomes ids."""

    def __len__(self) -> int: ...

    def save(self, path: str | Path) -> None: ...

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """All texts at once, in parallel: much faster than one after the other."""
        return encoded(self.inner, texts)

    def framed(self, source: Sequence[int]) -> list[int]:
        """The ids of a text with all that stands around it."""
        ids = [*self.opening, *source, *self.closing]
        return ids if self.pad is None else ids + [self.pad] * (self.filled - len(ids))

    def decode(self, ids: Iterable[int]) -> str:
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]: ...

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The text of each id for display: a space as `▁`, partial or invisible characters as their code."""
        return [readable(self._raw(i)) for i in self._checked(ids)]

    def raw(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each id; a character may span several."""
        return [self._raw(i) for i in self._checked(ids)]

    def labels(self, ids: Iterable[int]) -> list[str]:
        """As `tokens`, of tokens that stand behind each other: characters that several of them share are whole."""
        return [printable(text) for text in whole_characters([self._raw(i) for i in self._checked(ids)])]

    def characters(self, ids: Iterable[int]) -> list[int]:
        """For each id the number of its run: the fewest ids that are whole characters together."""
        return character_runs([self._raw(i) for i in self._checked(ids)])

    def words(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        """The words, and for each id the index of its word: attention over tokens is merged by it. A special token is a
        word of its own."""
        words: list[bytes] = []
        owner: list[int] = []
        closed = True
        for i in self._checked(ids):
            raw, special = self._raw(i), self.is_special(i)
            if closed or special or self._begins(raw, words[-1]):
                words.append(b"")
            words[-1] += self._inside(raw)
            owner.append(len(words) - 1)
            closed = special
        # Joined before they are decoded: a character may span tokens.
        return [word.decode("utf-8", "replace").strip() or SPACE_MARK for word in words], owner

    def _checked(self, ids: Iterable[int]) -> list[int]:
        return [int(i) for i in ids]

    def _raw(self, i: int) -> bytes:
        """The bytes of a token."""

    def is_special(self, i: int) -> bool:
        """Whether it is no token of a text."""

    def _begins(self, raw: bytes, before: bytes) -> bool:
        """Whether a token starts a word: with a space."""
        return raw[:1].isspace()

    def _inside(self, raw: bytes) -> bytes:
        """A token's part of its word."""
        return raw


def enclosed(
    inner: tokenizers.Tokenizer, first: str | None, last: str | None, second: str
) -> processors.TemplateProcessing:
    """`first` before a text and `last` after it (None: none); `second`: how the second text of a pair follows."""
    single = " ".join(f"{part}:0" for part in (first, "$A", last) if part)
    named = [(token, inner.token_to_id(token)) for token in (first, last) if token]
    return processors.TemplateProcessing(single=single, pair=f"{single} {second}", special_tokens=named)


def hashed(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


def encoded(inner: tokenizers.Tokenizer, texts: Sequence[str], framed: bool = False) -> list[list[int]]:
    """The ids of each text; `framed`: with the special tokens of the template."""
    try:
        encodings = inner.encode_batch_fast(list(texts), add_special_tokens=framed)
    except TypeError:
        refuse_what_is_no_text(texts)
        raise
    except BaseException as error:  # the library panics beyond Exception
        told = "a word is no token, and there is none for unknown words" if "[UNK]" in str(error) else of_library(error)
        raise InputError(f"the tokenizer fails on this text: {told}") from error
    return [encoding.ids for encoding in encodings]


def readable(raw: bytes) -> str:
    """A token for display: a space as `▁`, partial or invisible characters as their code."""
    return printable(raw.decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """A space as `▁`, invisible characters as their code."""
    text = text.replace(" ", SPACE_MARK)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def refuse_what_is_no_text(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"text {number} is {type(text).__name__}, expected a string")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"text {number} is not valid Unicode: half a surrogate pair ({error})") from error
