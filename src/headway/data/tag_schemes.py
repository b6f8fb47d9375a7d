"""How tags of single words mark chunks of several: IOB1, BIO (also called IOB2) and BIOES.

    words   New    York   Times  saw  Ann
    IOB1    I-ORG  I-ORG  I-ORG  O    I-PER    B- only where a chunk follows another one of its type
    BIO     B-ORG  I-ORG  I-ORG  O    B-PER    B- at the first word of every chunk
    BIOES   B-ORG  I-ORG  E-ORG  O    S-PER    E- at the last word, S- where a chunk has one word

Tags that mark no chunk (NN, VERB, -LRB-) stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

Scheme = Literal["bio", "bioes"]
Chunk = tuple[str, int, int]  # type, first word, last word
OUTSIDE = "O"  # the tag of a word in no chunk
ENDS = ("E", "S")


def parted(tag: str) -> tuple[str, str]:
    """The mark and the type of a tag; O and nothing for one that marks no chunk."""
    mark, dash, kind = tag.partition("-")
    return (mark, kind) if dash and mark in ("B", "I", "E", "S") else (OUTSIDE, "")


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """The chunks in order, of tags in any of the schemes. Tags that contradict each other are read as conlleval and
    seqeval read them: a word in a chunk begins one where none of its type is open."""
    found: list[Chunk] = []
    for at, ((before, before_kind), (mark, kind)) in enumerate(pairwise([(OUTSIDE, ""), *map(parted, tags)])):
        if mark == OUTSIDE:
            continue
        if mark in ("B", "S") or before in (OUTSIDE, *ENDS) or kind != before_kind:
            found.append((kind, at, at))
        else:
            found[-1] = (kind, found[-1][1], at)
    return found


def rewritten(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """The same chunks in this scheme."""
    found = list(tags)
    for kind, first, last in chunks(tags):
        marks = ["B", *["I"] * (last - first)]
        if scheme == "bioes":
            marks[-1] = "E" if last > first else "S"
        found[first : last + 1] = [f"{mark}-{kind}" for mark in marks]
    return tuple(found)


def scheme_of(tags: Iterable[str]) -> Scheme:
    """The scheme that a model's tags are of."""
    return "bioes" if any(parted(tag)[0] in ENDS for tag in tags) else "bio"


def types_of(tags: Iterable[str]) -> set[str]:
    """The types of chunk that these tags mark."""
    return {kind for tag in tags if (kind := parted(tag)[1])}
