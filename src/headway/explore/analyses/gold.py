"""Gold links beside texts, and traces by the words that those links count.

T target places, S source places, W target words, V source words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headway.data.readers import lines
from headway.errors import InputError, refuse
from headway.evaluate.alignment import Link, read_links
from headway.explore.analyses.analysis import Text, Traced
from headway.explore.analyses.sites import owners
from headway.text.words import Split, word_spans
from headway.traces import Trace, Track


@dataclass(frozen=True)
class GoldPair:
    """Links between the words of a text and its translation, sure ones and all possible ones; and how many words."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    sizes: tuple[int, int]


@dataclass
class Counted:
    """Places by the words that gold links count. Pairs whose tokens do not spell the given words are left out: no link
    could be trusted there."""

    split: Split
    left_out: int = 0

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
    refuse(not path, "gold links are missing: --set gold=FILE, a line a text with links as in 0-0 1-2 3p4")
    rows = list(lines(path))
    if len(rows) != len(texts):
        raise InputError(
            f"{path} has {len(rows):,} lines of links where there are {len(texts):,} texts: there must be one for each"
        )
    found = []
    for number, (text, row) in enumerate(zip(texts, rows, strict=True), 1):
        where = f"{path}, line {number}"
        sure, possible = read_links(row, first=first, where=where)
        sides = (text.first, text.first if text.second is None else text.second)
        source, target = (len(word_spans(side, split)) for side in sides)
        if outside := sorted((i, j) for i, j in possible if i >= source or j >= target):
            i, j = outside[0]
            raise InputError(
                f"{where}: link {i + first}-{j + first} is outside of a text of {source} words and one of {target}: "
                "the links belong to other words, or count from another first word (--set first=0 or 1)"
            )
        found.append(GoldPair(frozenset(sure), frozenset(possible), (source, target)))
    return found


def over_pairs(
    traced: Traced, texts: Iterable[Text], counted: Counted
) -> Iterator[tuple[int, Trace, list[list[int]]]]:  # fmt: skip
    """(the text's `item`, its trace, the words of the places of each track)."""
    for text, trace in traced.over(texts):
        if text.second is not None and len(trace.tracks) == 1:
            raise InputError(f"{text.where}: this model reads both texts as one: a translation needs a translator")
        sides = zip(trace.tracks.values(), (text.first, text.second), strict=False)
        # None: what the model itself has written.
        words = [counted.words(track, str(track.text) if side is None else side) for track, side in sides]
        known = [words_T for words_T in words if words_T is not None]
        if len(known) < len(words):
            counted.left_out += 1
            continue
        yield text.item, trace, known
