"""Gold links beside texts, and traces by the words that those links count.

T target places, S source places, W target words, V source words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headway.data.readers import lines
from headway.errors import InputError
from headway.evaluate.alignment import Link, read_links
from headway.explore.analyses.analysis import Text, Traced
from headway.explore.analyses.places import owners
from headway.text.words import Split, word_spans
from headway.traces import Trace, Track


@dataclass(frozen=True)
class GoldPair:
    """A text, its translation where there is one, and links between words: sure ones, and all possible ones."""

    text: Text
    sure: frozenset[Link]
    possible: frozenset[Link]
    sizes: tuple[int, int]


@dataclass
class Counted:
    """Places by the words that gold links count. Pairs whose tokens do not spell the given words are left out: no link
    could be trusted there."""

    split: Split
    left_out: int = field(default=0)

    def words(self, track: Track, text: str) -> list[int] | None:
        """The word of each place; None where that is not known."""
        if track.spans is None or track.text is None:
            return None
        spans = word_spans(track.text, self.split)
        if [track.text[a:b] for a, b in spans] != [text[a:b] for a, b in word_spans(text, self.split)]:
            return None
        return owners(track, spans)

    def note(self, read: int) -> list[str]:
        if not self.left_out:
            return []
        return [f"left out: {self.left_out:,} of {read:,} texts, whose tokens do not spell their words"]


def read_gold(path: str, texts: list[Text], split: Split, first: int = 0) -> list[GoldPair]:
    """Links a line, as many lines as texts."""
    if not path:
        raise InputError("gold links are missing: --set gold=FILE, a line a text with links as in 0-0 1-2 3p4")
    rows = list(lines(path))
    if len(rows) != len(texts):
        raise InputError(
            f"{path} has {len(rows):,} lines of links where there are {len(texts):,} texts: there must be one for each"
        )
    return [
        _checked(text, row, f"{path}, line {number}", split, first)
        for number, (text, row) in enumerate(zip(texts, rows, strict=True), 1)
    ]


def _checked(text: Text, row: str, where: str, split: Split, first: int) -> GoldPair:
    sure, possible = read_links(row, first=first, where=where)
    sides = (text.first, text.first if text.second is None else text.second)
    source, target = (len(word_spans(side, split)) for side in sides)
    for i, j in sorted(possible):
        if i >= source or j >= target:
            raise InputError(
                f"{where}: link {i + first}-{j + first} is outside of a text of {source} words and one of {target}: "
                "the links belong to other words, or count from another first word (--set first=0 or 1)"
            )
    return GoldPair(text, frozenset(sure), frozenset(possible), (source, target))


def over_pairs(
    traced: Traced, pairs: Sequence[GoldPair], counted: Counted, turned: bool = False
) -> Iterator[tuple[int, Trace, list[list[int]]]]:
    """(number of the pair, its trace, the words of the places of each track). `turned`: from target to source."""
    texts = [pair.text for pair in pairs]
    given = [Text(text.where, str(text.second), text.first) for text in texts] if turned else texts
    numbers = {id(text): number for number, text in enumerate(given)}
    for text, trace in traced.over(given):
        if text.second is not None and len(trace.tracks) == 1:
            raise InputError(f"{text.where}: this model reads both texts as one: a translation needs a translator")
        sides = [text.first, text.second][: len(trace.tracks)]
        words = [
            counted.words(track, str(track.text) if side is None else side)  # None: what the model itself has written
            for track, side in zip(trace.tracks.values(), sides, strict=True)
        ]
        known = [words_T for words_T in words if words_T is not None]
        if len(known) < len(words):
            counted.left_out += 1
            continue
        yield numbers[id(text)], trace, known
