"""A reader without weights: the sentence that shares most words with the question, and in it a likely span.

Words count by their rarity in the text (log of sentences over sentences with the word). The span is the longest run of
words that the question does not have and that look like an answer: with a digit for "when", "how many" and their like,
with a capital for "who", "where" and "which", any but the commonest words otherwise.
"""

from __future__ import annotations

import math
import re
from itertools import groupby

SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?!\s)[^.!?]*)*[.!?]*")  # a full stop inside a number does not end it
WORD = re.compile(r"\w+(?:[-'’,.]\w+)*")
NUMBERS = re.compile(r"\b(when|what year|how (many|much|long|old|far|large)|what (percentage|date|day))\b")
NAMES = re.compile(r"\b(who|whose|whom|where|which|what (city|country|company|team|name))\b")
COMMON_WORDS = (
    "a an and are as at be by did do does for from had has have how in is it its of on or that the their this to was "
    "were what when where which who whom whose why will with"
)
COMMON = frozenset(COMMON_WORDS.split())


def sentences(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in SENTENCE.finditer(text) if found[0].strip()] or [(0, len(text))]


def words(text: str) -> set[str]:
    return {found[0].lower() for found in WORD.finditer(text)} - COMMON


def chosen(question: str, text: str) -> tuple[int, int]:
    """The sentence with the greatest sum of shared words, each by its rarity; of equals the first."""
    spans = sentences(text)
    bags = [words(text[start:end]) for start, end in spans]
    asked = words(question)

    def weight(word: str) -> float:
        return math.log((1 + len(bags)) / (1 + sum(word in bag for bag in bags))) + 1

    scores = [sum(weight(word) for word in sorted(asked & bag)) for bag in bags]
    return spans[scores.index(max(scores))]


def looks_right(question: str, word: str) -> bool:
    lower = question.lower()
    if NUMBERS.search(lower):
        return any(letter.isdigit() for letter in word)
    if NAMES.search(lower):
        return word[0].isupper()
    return word.lower() not in COMMON


def answer(question: str, text: str) -> str:
    """The longest run of fitting words of the best sentence; the whole sentence where no word fits."""
    start, end = chosen(question, text)
    asked = {found[0].lower() for found in WORD.finditer(question)}
    found = [(one.start() + start, one.end() + start) for one in WORD.finditer(text[start:end])]

    def fits(span: tuple[int, int]) -> bool:
        word = text[slice(*span)]
        return word.lower() not in asked and word.lower() not in COMMON and looks_right(question, word)

    runs = [list(group) for good, group in groupby(found, fits) if good]
    if not runs:
        return text[start:end].strip()
    best = max(runs, key=len)
    return text[best[0][0] : best[-1][1]]
