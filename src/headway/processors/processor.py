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
    @property
    def summary(self) -> str:
        """A phrase for a reader: `text of 8,000 entries`."""

    @property
    def title(self) -> str:
        """What a model is called by, such as a language; may be empty."""

    def settings(self, name: str) -> dict[str, Any]:
        """The settings of a run's data that a run takes over when it starts from this model. `name`: of the
        processor."""

    def open(self, folder: Path, opened: Sequence[Processor] = ()) -> Processor:
        """The processor, with its files in a model folder. `opened`: those of the same folder before it, which may
        share their files."""


class Processor(Protocol):
    @property
    def config(self) -> Any: ...
    @property
    def fingerprint(self) -> str: ...
    def encode(self, values: Sequence[Any]) -> list[Any]: ...
    def decode(self, arrays: Sequence[Any]) -> list[Any]: ...
    def save(self, folder: Path) -> None:
        """Write its files into a model folder."""
