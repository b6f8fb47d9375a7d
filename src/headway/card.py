"""What a model folder says of its model beside the weights, and a model that was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from headway.text.codec import Codec
from headway.text.symbols import Symbols
from headway.text.tokenizer import TextOptions


@dataclass
class Card:
    """family, config: what computes. head: what stands on an encoder. task: what it was made for. processors: for each
    name (source, target, text) how values go in and out. search: settings of generation that validation used. figure:
    the name of the score that tables show.
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
    def heads(self) -> tuple[Any, ...]:
        """The head, or nothing: what a table of weight names is made with beside config and sizes."""
        return () if self.head is None else (self.head,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of every processor: what the model is built for."""
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
        codec: Codec = next(iter(self.processors.values())).tokenizer
        return codec

    @property
    def target_tokenizer(self) -> Any:
        """A `Codec`: of what it writes."""
        codec: Codec = next(reversed(self.processors.values())).tokenizer
        return codec
