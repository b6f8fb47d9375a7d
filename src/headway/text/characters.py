"""Tokens of bytes as whole characters: where several tokens share a character, each of them shows it."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

NUMBERS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
NONE = -1
BYTES = "‹"  # before bytes that are no character
LONGEST = 4  # bytes of a character


def whole_characters(tokens: Sequence[bytes]) -> list[str]:
    """The text of each token in this order. A character that several tokens share stands in each of them, with the
    number of its part: `é₁`, `é₂`. Bytes that are no character are written `‹F0 9F›`."""
    whole = b"".join(tokens)
    owner = list(_owners(whole))
    sizes, parts = Counter(owner), Counter[int]()
    shown, start = [], 0
    for token in tokens:
        text = ""
        for begin, bytes_of in groupby(range(start, start + len(token)), owner.__getitem__):
            own = list(bytes_of)
            if begin == NONE:
                text += f"{BYTES}{bytes(whole[at] for at in own).hex(' ').upper()}›"
                continue
            text += whole[begin : begin + sizes[begin]].decode("utf-8")
            if len(own) < sizes[begin]:
                parts[begin] += 1
                text += str(parts[begin]).translate(NUMBERS)
        shown.append(text)
        start += len(token)
    return shown


def character_runs(tokens: Sequence[bytes]) -> list[int]:
    """For each token the number of its run: the fewest tokens that are whole characters together."""
    decoder = getincrementaldecoder("utf-8")("replace")
    runs, number = [], 0
    for token in tokens:
        runs.append(number)
        decoder.decode(token)
        number += not decoder.getstate()[0]
    return runs


def _owners(whole: bytes) -> Iterator[int]:
    """Of each byte the first byte of its character, `NONE` where it is part of none."""
    at = 0
    while at < len(whole):
        size = next((n for n in range(1, LONGEST + 1) if _is_character(whole[at : at + n])), 0)
        yield from [at] * size or [NONE]
        at += size or 1


def _is_character(some: bytes) -> bool:
    try:
        return len(some.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False
