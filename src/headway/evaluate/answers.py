"""How well questions are answered: exact match and F1 by the rules of SQuAD's own script (Rajpurkar et al. 2016, 2018).

An answer is compared in small letters, without punctuation, articles and superfluous white space. Of several right
answers the most similar one counts; of a question without an answer the empty text is right.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

AnswerJudge = Literal["f1", "exact"]
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(given: str, right: str) -> float:
    return float(normalised(given) == normalised(right))


def f1(given: str, right: str) -> float:
    """2PR/(P + R) over the words of both; where one of them has none, whether both have none."""
    ours, theirs = (Counter(normalised(text).split()) for text in (given, right))
    if not ours or not theirs:
        return float(ours == theirs)
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


@dataclass(frozen=True)
class AnswerScores:
    """Sums over questions: those that have an answer, and those that have none."""

    answerable: int
    unanswerable: int
    exact_answerable: float
    exact_unanswerable: float
    f1_answerable: float
    f1_unanswerable: float
    constant: ClassVar[None] = None  # an answer is a part of its own text

    @classmethod
    def of(cls, given: Sequence[str], right: Sequence[Sequence[str]]) -> AnswerScores:
        """right: the answers of each question, any of which is right; none where there is no answer."""
        counts, exacts, f1s = Counter[bool](), Counter[bool](), Counter[bool]()
        for text, answers in zip(given, right, strict=True):
            kept = [answer for answer in answers if normalised(answer)] or [""]
            has = kept != [""]
            counts[has] += 1
            exacts[has] += max(exact(text, answer) for answer in kept)  # type: ignore[assignment]
            f1s[has] += max(f1(text, answer) for answer in kept)  # type: ignore[assignment]
        return cls(counts[True], counts[False], exacts[True], exacts[False], f1s[True], f1s[False])

    @property
    def questions(self) -> int:
        return self.answerable + self.unanswerable

    @property
    def exact(self) -> float:
        return (self.exact_answerable + self.exact_unanswerable) / max(self.questions, 1)

    @property
    def f1(self) -> float:
        return (self.f1_answerable + self.f1_unanswerable) / max(self.questions, 1)

    def figures(self) -> dict[str, float]:
        """Of all; where some have no answer, of both kinds too."""
        found = {"f1": self.f1, "exact": self.exact}
        if self.answerable and self.unanswerable:
            found |= {
                "f1 answerable": self.f1_answerable / self.answerable,
                "exact answerable": self.exact_answerable / self.answerable,
                "unanswerable": self.exact_unanswerable / self.unanswerable,
            }
        return found
