"""Words of a text by where they stand in it."""

from __future__ import annotations

import re
from typing import Literal

Span = tuple[int, int]
Split = Literal["spaces", "marks"]
SPLITS = {"spaces": re.compile(r"\S+"), "marks": re.compile(r"[^\s'’.,!?]+['’]?|[.,!?'’]")}


def word_spans(text: str, split: Split = "spaces") -> list[Span]:
    """Where each word begins and ends. `spaces`: whatever has no space in it. `marks`: cut after an apostrophe and
    before punctuation too: "Est-ce qu'il dort ?" gives Est-ce, qu', il, dort, ?"""
    return [found.span() for found in SPLITS[split].finditer(text)]
