"""The choice of a part that reads the letters of words, for any encoder of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headway.errors import refuse
from headway.nn import letters
from headway.nn.recurrent import LSTMCell


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        refuse(size < 1, f"model.letters.{name} must be at least 1, not {size}")


@dataclass(frozen=True)
class NoLetters:
    name: ClassVar[str] = "none"

    def build(self) -> letters.NoLetters:
        return letters.NoLetters()


@dataclass(frozen=True)
class LetterCnn:
    """Ma and Hovy's (2016): `width` maps of `window` letters, whose vectors are `narrow` wide. `most`: bytes of a word
    that are read."""

    name: ClassVar[str] = "letter-cnn"
    narrow: int = 30
    width: int = 30
    window: int = 3
    dropout: float = 0.5
    most: int = 24

    def __post_init__(self) -> None:
        _check(narrow=self.narrow, width=self.width, window=self.window, most=self.most)

    def build(self) -> letters.LettersOfWords:
        return letters.ConvolvedLetters(self.narrow, self.width, self.window, self.dropout)


@dataclass(frozen=True)
class LetterLstm:
    """Lample et al.'s (2016): `width` units in each direction."""

    name: ClassVar[str] = "letter-lstm"
    narrow: int = 25
    width: int = 25
    dropout: float = 0.0
    most: int = 24

    def __post_init__(self) -> None:
        _check(narrow=self.narrow, width=self.width, most=self.most)

    def build(self) -> letters.LettersOfWords:
        forwards, backwards = (LSTMCell(self.narrow, self.width, forget=1.0) for _ in range(2))
        return letters.RecurrentLetters(self.narrow, forwards, backwards, self.dropout)


Letters = NoLetters | LetterCnn | LetterLstm
