"""A model's description in its folder (headway.json), and a loaded model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from headway.text.tokenizer import Symbols, TextOptions


@dataclass
class Card:
    """family, config: the network. head: the module on top of an encoder. task: what the model was trained for.
    processors: by name (source, target, text) how values become arrays and back. search: settings of generation that
    validation used. run: how it was trained. score: what it reached.
    """

    family: str
    config: Any
    task: str
    processors: dict[str, Any]
    head: Any = None
    search: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    score: dict[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of every processor; the model is built with them."""
        return tuple(config.size for config in self.processors.values())

    @property
    def reads(self) -> Any:
        """The config of the first processor: of the source, or of the one text."""
        return next(iter(self.processors.values()))

    @property
    def writes(self) -> Any:
        """The config of the last: of the target, or of the one text."""
        return next(reversed(self.processors.values()))

    @property
    def text(self) -> TextOptions:
        return self.reads.options

    @property
    def symbols(self) -> Symbols:
        return self.writes.symbols

    @property
    def foreign_text(self) -> bool:
        return bool(self.reads.foreign)


@dataclass
class Loaded:
    """A model with its processors, by name."""

    model: nn.Module
    card: Card
    processors: dict[str, Any]

    @property
    def source_tokenizer(self) -> Any:
        """A `Codec`: of what the model reads."""
        return next(iter(self.processors.values())).tokenizer

    @property
    def target_tokenizer(self) -> Any:
        """A `Codec`: of what it writes."""
        return next(reversed(self.processors.values())).tokenizer
