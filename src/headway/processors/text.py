"""Text in and out of a model: a tokenizer, and what stands around a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, final

from headway.errors import refuse
from headway.text.chat import Chat
from headway.text.codec import Codec
from headway.text.foreign import ForeignTokenizer
from headway.text.tokenizer import Symbols, TextOptions, Tokenizer


@dataclass(frozen=True)
class TextConfig:
    """size: entries that the model has, at least those of the tokenizer. options: how the vocabulary was made.
    language: a name or a code. symbols: the ids around a text that the model writes. foreign: the tokenizer comes with
    a model from elsewhere, and `options` say nothing of it. file: of the tokenizer in a model folder. chat: the chat
    template that it was tuned with, where the tokenizer has none."""

    name: ClassVar[str] = "text"
    size: int
    options: TextOptions = field(default_factory=TextOptions)
    language: str = ""
    symbols: Symbols = field(default_factory=Symbols)
    foreign: bool = False
    file: str = "tokenizer.json"
    chat: str = ""

    @property
    def summary(self) -> str:
        return f"text of {self.size:,} entries"

    @property
    def title(self) -> str:
        return self.language

    def settings(self, name: str) -> dict[str, Any]:
        return {"text": self.options} | ({name: self.language} if self.language else {})

    def open(self, folder: Path, opened: Sequence[Any] = ()) -> TextProcessor:
        for other in opened:
            if isinstance(other, TextProcessor) and other.config.file == self.file:
                return TextProcessor(self, other.tokenizer)
        load: Any = ForeignTokenizer.load if self.foreign else Tokenizer.load
        tokenizer = load(folder / self.file)
        refuse(len(tokenizer) > self.size, f"{folder / self.file} has {len(tokenizer)} entries, the model {self.size}")
        if self.chat:
            tokenizer.chat = Chat(self.chat, {})
        return TextProcessor(self, tokenizer)


@final
class TextProcessor:
    """Texts to ids and back."""

    def __init__(self, config: TextConfig, tokenizer: Codec) -> None:
        self.config, self.tokenizer = config, tokenizer

    @property
    def fingerprint(self) -> str:
        return self.tokenizer.fingerprint

    def encode(self, values: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_batch(values)

    def decode(self, arrays: Iterable[Iterable[int]]) -> list[str]:
        return self.tokenizer.decode_batch(arrays)

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / self.config.file)
