"""Tokenizers of models from other programs: their `tokenizer.json`, with the interface of `Codec`.

The file defines which tokens are special and which surround a text. As in the programs that it comes from, a special
token that is spelled out in a text is that token: chat templates rely on it.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import tokenizers
from tokenizers import models

from headway.errors import InputError, of_library, refuse
from headway.outside import read_object
from headway.plain import from_plain, to_plain
from headway.text.chat import Chat
from headway.text.codec import SPACE_MARK, Codec, enclosed, encoded, hashed
from headway.text.tokenizer import BYTE_OF

SETTINGS = "tokenizer.settings.json"
MOST_GROWTH = 100  # of a text by the steps before or after the model
MOST_IDS = 1 << 24
BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a token that stands for one byte of a character without a token
# Special tokens by their role, with Hugging Face's names.
ROLES = {"pad": "pad_token", "start": "bos_token", "end": "eos_token", "unknown": "unk_token", "mask": "mask_token",
         "first": "cls_token", "separator": "sep_token"}  # fmt: skip
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
    spelled: a special token that is spelled out in a text is text. filled: of a `Codec`.
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
    filled: int = 0

    def specials(self) -> list[str]:
        named = (*(getattr(self, role) for role in ROLES), *self.more)
        return [special for special in dict.fromkeys(named) if special is not None]


@final
class ForeignTokenizer(Codec):
    """encode: text → ids without the template; `framed_batch`: with it; decode: ids → text without special tokens."""

    kind, exact = "foreign", True

    def __init__(self, inner: tokenizers.Tokenizer, settings: Settings = Settings(), raw: str | None = None) -> None:  # noqa: B008
        """`raw`: the text of the file, which `save` writes unchanged."""
        largest = max(inner.get_vocab(with_added_tokens=True).values(), default=0)
        # The library takes memory for every id below the largest.
        refuse(largest >= MOST_IDS, f"a token has the id {largest:,}: ids lie below {MOST_IDS:,}")
        self.inner, self.settings = inner, settings
        self._raw_json = raw or str(inner.to_str(pretty=True))
        pad = settings.pad or (inner.padding or {}).get("pad_token")
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = settings.spelled
        there = {str(token.content) for token in inner.get_added_tokens_decoder().values() if token.special}
        inner.add_special_tokens([special for special in settings.specials() if special not in there])
        named = (pad, settings.start, settings.end, settings.unknown, settings.mask)
        ids = (None if special is None else inner.token_to_id(special) for special in named)
        self.pad, self.start, self.end, self.unknown, self.mask = ids
        self.filled = settings.filled
        self.stops = frozenset(settings.stops) | (frozenset() if self.end is None else {self.end})
        asked = {ROLES[role]: getattr(settings, role) for role in ("start", "end", "unknown", "pad")}
        specials = {name: token for name, token in asked.items() if token is not None}
        self.chat = None if settings.chat is None else Chat(settings.chat, specials)
        if settings.frame:
            given = zip((settings.start, settings.end), settings.frame, strict=True)
            first, last = (token if asked else None for token, asked in given)
            second = " ".join(f"{part}:1" for part in (first, "$B", last) if part)
            inner.post_processor = enclosed(inner, first, last, second)
        decoder = json.dumps(json.loads(inner.to_str())["decoder"])
        self._bytes, self._falls_back = "ByteLevel" in decoder, "ByteFallback" in decoder
        self._wordpiece = isinstance(inner.model, models.WordPiece)

    @classmethod
    def from_json(cls, text: str, settings: Settings = Settings()) -> ForeignTokenizer:  # noqa: B008
        try:
            inner = tokenizers.Tokenizer.from_str(text)
            _check_growth(json.loads(text))
            return cls(inner, settings, text)
        except BaseException as error:  # the library raises bare Exception, and panics beyond it
            raise InputError(f"not a tokenizer.json: {of_library(error)}") from error

    @classmethod
    def load(cls, path: str | Path, settings: Settings | None = None) -> ForeignTokenizer:
        """A tokenizer.json with these settings, or with those that were saved beside it."""
        path = Path(path)
        try:
            found: Settings = settings or from_plain(Settings, read_object(path.with_name(SETTINGS)), SETTINGS)
            return cls.from_json(path.read_text(encoding="utf-8"), found)
        except FileNotFoundError as error:
            raise InputError(f"{error.filename} is missing: the folder is incomplete") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path}: {error}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def below(self, size: int) -> ForeignTokenizer:
        """Without the added tokens from this id on, such as a padding that a model was never given a row for."""
        beyond = {text for text, i in self.inner.get_vocab(with_added_tokens=True).items() if i >= size}
        facts = json.loads(self._raw_json)
        facts["added_tokens"] = [token for token in facts["added_tokens"] if token["id"] < size]
        lost: dict[str, Any] = {role: None for role in ROLES if getattr(self.settings, role) in beyond}
        lost["more"] = tuple(token for token in self.settings.more if token not in beyond)
        return ForeignTokenizer.from_json(json.dumps(facts), replace(self.settings, **lost))

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
        return hashed(json.dumps([self._raw_json, to_plain(self.settings)]))

    @property
    def template(self) -> tokenizers.Tokenizer:
        """The file's own."""
        return self.inner

    @cached_property
    def _size(self) -> int:
        return max(self.inner.get_vocab(with_added_tokens=True).values()) + 1

    def __len__(self) -> int:
        return self._size

    def __reduce__(self) -> tuple[object, tuple[str, Settings]]:
        return ForeignTokenizer.from_json, (self._raw_json, self.settings)

    @cached_property
    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self.inner.post_processor is None:
            return (), ()
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

    def framed_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """With the special tokens of the template."""
        return encoded(self.inner, texts, framed=True)

    def decode_batch(self, batch: Iterable[Iterable[int]], specials: bool = False) -> list[str]:
        """Ids after the last entry, which a model may have and the file lacks, decode to nothing."""
        kept = [[int(i) for i in ids] for ids in batch]
        texts: list[str] = self.inner.decode_batch(kept, skip_special_tokens=not specials)
        # In byte-level and character vocabularies these spaces are part of the text.
        tidy = self.settings.tidy and not isinstance(self.inner.model, models.BPE)
        return [_tidied(text) for text in texts] if tidy else texts

    def is_special(self, i: int) -> bool:
        return i in self._special_ids

    def _begins(self, raw: bytes, before: bytes) -> bool:
        return not raw.startswith(b"##") if self._wordpiece else super()._begins(raw, before)

    def _inside(self, raw: bytes) -> bytes:
        return raw.removeprefix(b"##") if self._wordpiece else raw

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
        if self._falls_back and (byte := BYTE.fullmatch(token)):
            return bytes.fromhex(byte[1])
        return str(token).replace(SPACE_MARK, " ").encode("utf-8")


def _tidied(text: str) -> str:
    for loose, tight in TIDY:
        text = text.replace(loose, tight)
    return text


def _check_growth(plain: dict[str, Any]) -> None:
    """Steps that replace letters may feed one another: thirty that double an "a" make gigabytes of one. They are tried
    one by one on all letters that they name."""
    for part, inner in (("normalizer", "normalizers"), ("decoder", "decoders")):
        steps = _flat(plain.get(part), inner)
        letters = set(string.printable).union(*(json.dumps(step, ensure_ascii=False) for step in steps))
        text = start = "".join(sorted(letters))
        for step in steps:
            alone = tokenizers.Tokenizer(models.WordLevel({"x": 0}, unk_token="x"))
            alone = tokenizers.Tokenizer.from_str(json.dumps(json.loads(alone.to_str()) | {part: step}))
            text = alone.normalizer.normalize_str(text) if part == "normalizer" else alone.decoder.decode([text])
            if len(text) > MOST_GROWTH * len(start):
                raise InputError(f"its {part} makes a text more than {MOST_GROWTH} times as long")


def _flat(step: Any, inner: str) -> list[Any]:
    """The steps of a sequence of sequences."""
    if isinstance(step, dict) and step.get("type") == "Sequence":
        return [one for some in step[inner] for one in _flat(some, inner)]
    return [] if step is None else [step]
