"""The ids that stand around a text which a model writes."""

from __future__ import annotations

from dataclasses import dataclass

from headway.text.tokenizer import END, START


@dataclass(frozen=True)
class Symbols:
    """headway's own, or those of a model from elsewhere.

    start: what a decoder is given before its first word. end: what it ends with. never: what is not written at all.
    """

    start: int = START
    end: int = END
    never: tuple[int, ...] = ()
