"""Ids to text while they come: whole characters only, and nothing that may still become a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from headway.text.codec import Codec

HALF = "\N{REPLACEMENT CHARACTER}"  # what the tokenizer gives for bytes that are no character, or not yet one


class Spelling:
    """The text of one row behind its prompt. What `add` and `end` return joins to the whole.

    Only the ids since the last whole character are looked at again, behind some older ones that say how they are
    spelled there: the first word of a text has no space before it, the same word later has one.
    """

    def __init__(self, tokenizer: Codec, before: Sequence[int], stops: Sequence[str] = ()) -> None:
        self.tokenizer, self.stops, self.stopped = tokenizer, stops, False
        self._anchor, self._fresh = list(before), list[int]()
        self._known = tokenizer.decode(self._anchor)
        self._held = ""  # whole characters that may be the start of a stop string

    def add(self, id: int) -> str:
        """The text that is certain now. After a stop string there is none any more."""
        self._fresh.append(id)
        text = self._spelled()
        if not text or text.endswith(HALF):
            return ""
        self._anchor, self._fresh = self._fresh, []
        self._known = self.tokenizer.decode(self._anchor)
        return self._let_go(text)

    def end(self) -> str:
        """What was held back, when no id follows; half a character at the end is left out."""
        text = self._let_go(self._spelled().rstrip(HALF)) + self._held
        self._fresh, self._held = [], ""
        return text

    def _spelled(self) -> str:
        return self.tokenizer.decode([*self._anchor, *self._fresh])[len(self._known) :]

    def _let_go(self, text: str) -> str:
        if self.stopped:
            return ""
        held = self._held + text
        found = [at for at in (held.find(stop) for stop in self.stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return held[: min(found)]
        keep = max((_overlap(held, stop) for stop in self.stops), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]


def _overlap(text: str, stop: str) -> int:
    """How many of the last letters of the text are the first ones of the stop string."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def continuation(tokenizer: Codec, text: str) -> list[int]:
    """The ids that spell this text behind another, letter by letter: a space only where it has one.

    `encode` puts a space before the first word. So the text is encoded behind a character at which the tokenizer
    always cuts, and that is taken away again. Where words are whole, there is no such matter.
    """
    cut = "." if text[:1].isspace() else "\n"
    ids = tokenizer.encode(cut + text)
    for at in range(1, len(ids) + 1):
        if tokenizer.decode(ids[:at]) == cut:
            return ids[at:]
    return tokenizer.encode(text)
