"""The interface of every tokenizer: headway's own (`text.tokenizer`) and those of other programs (`text.foreign`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import tokenizers

from headway.text.chat import Chat


class Codec(Protocol):
    """Text to ids and back, and the ids of special tokens by their role. None: the vocabulary has no such entry."""

    inner: tokenizers.Tokenizer

    @property
    def pad(self) -> int | None: ...
    @property
    def start(self) -> int | None: ...
    @property
    def end(self) -> int | None: ...
    @property
    def unknown(self) -> int | None: ...
    @property
    def stops(self) -> frozenset[int]:
        """Ids that end a text."""

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
    def chat(self) -> Chat | None: ...
    @property
    def fingerprint(self) -> str: ...

    def __len__(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]: ...
    def tokens(self, ids: Iterable[int]) -> list[str]: ...
    def words(self, ids: Iterable[int]) -> tuple[list[str], list[int]]: ...
    def save(self, path: str | Path) -> None: ...
