"""What every processor does: values of one modality to arrays and back, and the labels that a trace shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol


class Config(Protocol):
    """The part of a card that describes a processor: a frozen dataclass with a `name`. `size`: what a model is built
    with (entries of a vocabulary, channels of a picture)."""

    name: ClassVar[str]

    @property
    def size(self) -> int: ...
    def open(self, folder: Path) -> Processor:
        """The processor, with its files in a model folder."""


class Processor(Protocol):
    @property
    def config(self) -> Any: ...
    @property
    def fingerprint(self) -> str: ...
    def encode(self, values: Sequence[Any]) -> list[Any]: ...
    def decode(self, arrays: Sequence[Any]) -> list[Any]: ...
    def save(self, folder: Path) -> None:
        """Write its files into a model folder."""
