"""Tokenizers of models from other programs: their `tokenizer.json`, with the interface of `Codec`.

The file defines which tokens are special and which surround a text. As in the programs that it comes from, a special
token that is spelled out in a text is that token: chat templates rely on it.
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
    """Settings beside a tokenizer.json.

    pad to separator, more: the texts of special tokens. stops: ids that end a text, beside `end`. frame: whether a text
    gets the start token before it and the end token after it, where the file's own template is not used. tidy: decoding
    removes spaces before punctuation. chat: the chat template (Jinja). limit: the most tokens of a text (0: none).
    spelled: a special token that is spelled out in a text is text.
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
    """encode: text → ids without the template; `framed_batch`: with it; decode: ids → text without special tokens."""

    kind, exact = "foreign", True

    def __init__(self, inner: tokenizers.Tokenizer, settings: Settings = Settings(), raw: str | None = None) -> None:  # noqa: B008
        """`raw`: the text of the file, which `save` writes unchanged."""
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
        self._wordpiece = isinstance(inner.model, models.WordPiece)

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
            raise InputError(f"{error.filename} is missing: the folder is incomplete") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path}: {error}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_json(self) -> str:
        return self._raw_json

    def save(self, path: str | Path) -> None:
        """The file unchanged, and the settings beside it."""
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
        """Special ids before a text, by the template."""
        return self._around[0]

    @property
    def closing(self) -> tuple[int, ...]:
        """Special ids after a text."""
        return self._around[1]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return encoded(self.inner, texts)

    def framed_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """With the special tokens of the template."""
        return encoded(self.inner, texts, framed=True)

    def decode(self, ids: Iterable[int]) -> str:
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Iterable[Iterable[int]], specials: bool = False) -> list[str]:
        """Ids after the last entry, which a model may have and the file lacks, decode to nothing."""
        kept = [[int(i) for i in ids] for ids in batch]
        texts: list[str] = self.inner.decode_batch(kept, skip_special_tokens=not specials)
        # In byte-level and character vocabularies these spaces are part of the text.
        tidy = self.settings.tidy and not isinstance(self.inner.model, models.BPE)
        return [_tidied(text) for text in texts] if tidy else texts

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The text of each id for display: a space as `▁`, partial or invisible characters as their code."""
        return [readable(self._raw(int(i))) for i in ids]

    def words(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        """The words, and for each id the index of its word; attention over tokens is merged by it."""
        words: list[bytes] = []
        owner: list[int] = []
        closed = True
        for i in map(int, ids):
            raw, special = self._raw(i), i in self._special_ids
            continues = raw.startswith(b"##") if self._wordpiece else not raw[:1].isspace()
            if closed or special or not continues:
                words.append(b"")
            words[-1] += raw.removeprefix(b"##") if self._wordpiece and continues else raw
            owner.append(len(words) - 1)
            closed = special
        return [word.decode("utf-8", "replace").strip() or SPACE_MARK for word in words], owner

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.inner.get_added_tokens_decoder())

    def _raw(self, i: int) -> bytes:
        """The bytes of a token."""
        token = self.inner.id_to_token(i)
        if token is None:
            return f"<{i}>".encode()
        if i in self._special_ids:
            return str(token).encode("utf-8")
        if self._bytes and all(letter in BYTE_OF for letter in token):
            return bytes(BYTE_OF[letter] for letter in token)
        return str(token).replace(SPACE_MARK, " ").encode("utf-8")


def _tidied(text: str) -> str:
    for loose, tight in TIDY:
        text = text.replace(loose, tight)
    return text
