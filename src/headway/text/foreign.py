"""Tokenizers of other people's models: their `tokenizer.json` as it is, behind the same face as `Tokenizer`.

Which entries are special, and what stands before and after a text, is the file's own. As in the program that it comes
from, a special that is spelled out in a text is that special: a chat is made of such texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import tokenizers
from tokenizers import models, processors

from headway.errors import InputError
from headway.plain import from_plain, to_plain
from headway.text.chat import Chat
from headway.text.tokenizer import BYTE_OF, SPACE_MARK, encoded, readable

SETTINGS = "tokenizer.settings.json"
TIDY = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
)


@dataclass(frozen=True)
class Settings:
    """What stands beside a tokenizer.json.

    Specials by their role, as they are spelled. stops: ids that end a text, beside `end`. frame: whether a text gets
    the start before it and the end behind it, where the file's own template is not to be used. tidy: spaces before
    marks are taken out of a text that was decoded. chat: the template of a conversation (Jinja). limit: the most tokens
    that a text may have (0: nobody says). spelled: a special that is spelled out in a text is text, not that special.
    """

    pad: str | None = None
    start: str | None = None
    end: str | None = None
    unknown: str | None = None
    mask: str | None = None
    first: str | None = None
    separator: str | None = None
    more: tuple[str, ...] = ()
    stops: tuple[int, ...] = ()
    frame: tuple[bool, ...] = ()
    tidy: bool = False
    chat: str | None = None
    limit: int = 0
    spelled: bool = False

    def specials(self) -> list[str]:
        roles = (self.pad, self.start, self.end, self.unknown, self.mask, self.first, self.separator, *self.more)
        return [special for special in dict.fromkeys(roles) if special is not None]


@final
class ForeignTokenizer:
    """encode: text → ids without the template; `framed_batch` with it; decode: ids → text without specials."""

    kind, exact = "foreign", True

    def __init__(self, inner: tokenizers.Tokenizer, settings: Settings = Settings(), raw: str | None = None) -> None:  # noqa: B008
        """`raw`: the file's own text, kept where this is saved again."""
        self.inner, self.settings = inner, settings
        self._raw_json = raw or str(inner.to_str(pretty=True))
        self._pad = settings.pad or (inner.padding or {}).get("pad_token")
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = settings.spelled
        known = inner.get_added_tokens_decoder()
        there = {str(token.content) for token in known.values() if token.special}
        inner.add_special_tokens([special for special in settings.specials() if special not in there])
        if settings.frame:
            inner.post_processor = self._frame(*settings.frame)
        decoder = json.loads(inner.to_str())["decoder"]
        self._bytes = "ByteLevel" in json.dumps(decoder)
        self._word_pieces = isinstance(inner.model, models.WordPiece)

    def _frame(self, start: bool, end: bool) -> processors.PostProcessor:
        before = self.settings.start if start else None
        after = self.settings.end if end else None
        single = " ".join([*([f"{before}:0"] if before else []), "$A:0", *([f"{after}:0"] if after else [])])
        pair = " ".join([single, *([f"{before}:1"] if before else []), "$B:1", *([f"{after}:1"] if after else [])])
        named = [(special, self.inner.token_to_id(special)) for special in (before, after) if special]
        return processors.TemplateProcessing(single=single, pair=pair, special_tokens=named)

    @classmethod
    def from_json(cls, text: str, settings: Settings = Settings()) -> ForeignTokenizer:  # noqa: B008
        try:
            return cls(tokenizers.Tokenizer.from_str(text), settings, text)
        except Exception as error:  # the library raises bare Exception
            raise InputError(f"not a tokenizer.json: {error}") from error

    @classmethod
    def load(cls, path: str | Path, settings: Settings | None = None) -> ForeignTokenizer:
        """A tokenizer.json with these settings, or with those that were saved beside it."""
        path = Path(path)
        try:
            if settings is None:
                beside = path.with_name(SETTINGS)
                facts: dict[str, Any] = json.loads(beside.read_text(encoding="utf-8"))
                settings = from_plain(Settings, facts, SETTINGS)
            assert settings is not None
            return cls.from_json(path.read_text(encoding="utf-8"), settings)
        except FileNotFoundError as error:
            raise InputError(f"{error.filename} is missing: the folder is not whole") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path}: {error}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_json(self) -> str:
        return self._raw_json

    def save(self, path: str | Path) -> None:
        """The file as it came, and the settings beside it."""
        Path(path).write_text(self._raw_json, encoding="utf-8")
        settings = json.dumps(to_plain(self.settings), indent=1, ensure_ascii=False) + "\n"
        Path(path).with_name(SETTINGS).write_text(settings, encoding="utf-8")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides how text becomes ids."""
        whole = json.dumps([self._raw_json, to_plain(self.settings)])
        return hashlib.blake2b(whole.encode("utf-8"), digest_size=16).hexdigest()

    @property
    def template(self) -> tokenizers.Tokenizer:
        """The file's own."""
        return self.inner

    @property
    def chat(self) -> Chat | None:
        settings = self.settings
        roles = {"bos": settings.start, "eos": settings.end, "unk": settings.unknown, "pad": settings.pad}
        specials = {f"{role}_token": token for role, token in roles.items() if token is not None}
        return None if settings.chat is None else Chat(settings.chat, specials)

    @cached_property
    def _size(self) -> int:
        return max(self.inner.get_vocab(with_added_tokens=True).values()) + 1

    def __len__(self) -> int:
        return self._size

    def __reduce__(self) -> tuple[object, tuple[str, Settings]]:
        return ForeignTokenizer.from_json, (self._raw_json, self.settings)

    def id_of(self, special: str | None) -> int | None:
        return None if special is None else self.inner.token_to_id(special)

    @property
    def pad(self) -> int | None:
        return self.id_of(self._pad)

    @property
    def start(self) -> int | None:
        return self.id_of(self.settings.start)

    @property
    def end(self) -> int | None:
        return self.id_of(self.settings.end)

    @property
    def unknown(self) -> int | None:
        return self.id_of(self.settings.unknown)

    @property
    def mask(self) -> int | None:
        return self.id_of(self.settings.mask)

    @property
    def stops(self) -> frozenset[int]:
        return frozenset(self.settings.stops) | (frozenset() if self.end is None else {self.end})

    @cached_property
    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        (bare,), (framed,) = self.encode_batch(["a"]), self.framed_batch(["a"])
        at = next((at for at in range(len(framed)) if framed[at : at + len(bare)] == bare), 0)
        return tuple(framed[:at]), tuple(framed[at + len(bare) :])

    @property
    def opening(self) -> tuple[int, ...]:
        """Ids that the template puts before a text."""
        return self._around[0]

    @property
    def closing(self) -> tuple[int, ...]:
        """Ids that it puts behind one."""
        return self._around[1]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return encoded(self.inner, texts)

    def framed_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """With what the template puts before and behind each text."""
        return encoded(self.inner, texts, framed=True)

    def decode(self, ids: Iterable[int]) -> str:
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Iterable[Iterable[int]], specials: bool = False) -> list[str]:
        """Ids behind the last entry, which a model may have and the file does not name, are no text."""
        kept = [[int(i) for i in ids] for ids in batch]
        texts: list[str] = self.inner.decode_batch(kept, skip_special_tokens=not specials)
        # The spaces that it takes out are part of the text where pieces are of bytes or of characters.
        tidy = self.settings.tidy and not isinstance(self.inner.model, models.BPE)
        return [_tidied(text) for text in texts] if tidy else texts

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each id as something to look at: a space as `▁`, half or invisible characters as their code."""
        return [readable(self._raw(int(i))) for i in ids]

    def words(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        """The words, and for each id the index of its word: what attention over pieces is merged by."""
        words: list[bytes] = []
        owner: list[int] = []
        closed = True
        for i in map(int, ids):
            raw, special = self._raw(i), i in self._special_ids
            goes_on = raw.startswith(b"##") if self._word_pieces else not raw[:1].isspace()
            if closed or special or not goes_on:
                words.append(b"")
            words[-1] += raw.removeprefix(b"##") if self._word_pieces and goes_on else raw
            owner.append(len(words) - 1)
            closed = special
        return [word.decode("utf-8", "replace").strip() or SPACE_MARK for word in words], owner

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.inner.get_added_tokens_decoder())

    def _raw(self, i: int) -> bytes:
        """The bytes that a piece stands for."""
        piece = self.inner.id_to_token(i)
        if piece is None:
            return f"<{i}>".encode()
        if i in self._special_ids:
            return str(piece).encode("utf-8")
        if self._bytes and all(letter in BYTE_OF for letter in piece):
            return bytes(BYTE_OF[letter] for letter in piece)
        return str(piece).replace(SPACE_MARK, " ").encode("utf-8")


def _tidied(text: str) -> str:
    for loose, tight in TIDY:
        text = text.replace(loose, tight)
    return text
