"""How good captions are: CIDEr and BLEU against what people wrote, and the share that is exactly right."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headway.evaluate.labels import NamedFigures

ORDER = 4  # the longest n-grams
WIDTH = 6.0  # of the penalty for another length, in words
WORD = re.compile(r"[\w']+")
Grams = Counter[tuple[str, ...]]


def words_of(text: str) -> list[str]:
    """In lower case, without punctuation."""
    return WORD.findall(text.lower())


def grams(words: Sequence[str], order: int) -> Grams:
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def cider(captions: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """CIDEr-D of each caption (Vedantam et al. 2015, 4): for n = 1 to 4 the cosine between the n-gram counts of the
    caption and of a reference, each n-gram weighted by log(pictures / pictures whose references have it) and counted no
    more often than the reference has it, times exp(−δ²/2σ²) for a difference δ of the lengths; the mean over n and the
    references, times 10."""
    given = [words_of(text) for text in captions]
    wanted = [[words_of(text) for text in some] for some in references]
    total = np.zeros(len(given))
    for order in range(1, ORDER + 1):
        counts = [[grams(words, order) for words in some] for some in wanted]
        pictures: Grams = Counter(gram for some in counts for gram in set().union(*some))
        weight = {gram: math.log(len(wanted) / seen) for gram, seen in pictures.items()}
        rare = math.log(max(len(wanted), 1))  # of an n-gram that no reference has
        for at, (words, refs, some) in enumerate(zip(given, wanted, counts, strict=True)):
            mine = grams(words, order)
            own = _length(mine, weight, rare)
            for reference, theirs in zip(refs, some, strict=True):
                shared = [gram for gram in mine if gram in theirs]
                meet = sum(min(mine[gram], theirs[gram]) * theirs[gram] * weight[gram] ** 2 for gram in shared)
                both = own * _length(theirs, weight, rare)
                penalty = math.exp(-((len(words) - len(reference)) ** 2) / (2 * WIDTH**2))
                total[at] += penalty * (meet / both if both else 0.0) / max(len(refs), 1)
    return [float(value) for value in 10 * total / ORDER]


def _length(counts: Grams, weight: dict[tuple[str, ...], float], rare: float) -> float:
    return math.sqrt(sum((n * weight.get(gram, rare)) ** 2 for gram, n in counts.items()))


def bleu(captions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU with up to 4-grams (Papineni et al. 2002), of all references of a picture, from 0 to 100."""
    from sacrebleu.metrics import BLEU

    most = max(map(len, references), default=0)
    joined = [[" ".join(words_of(text)) for text in some] for some in references]
    streams: Any = [[some[at] if at < len(some) else None for some in joined] for at in range(most)]
    metric = BLEU(tokenize="none", force=True)
    return float(metric.corpus_score([" ".join(words_of(text)) for text in captions], streams).score)


@dataclass(frozen=True)
class CaptionScores(NamedFigures):
    names: ClassVar[dict[str, str]] = {"cider": "CIDEr", "bleu": "BLEU-4", "exact": "exactly right"}
    cider: float
    bleu: float
    exact: float

    @classmethod
    def of(cls, captions: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScores:
        """Of one caption for each picture, and all that people wrote of it."""
        pairs = zip(captions, references, strict=True)
        right = [words_of(text) in [words_of(other) for other in some] for text, some in pairs]
        each = cider(captions, references)
        return cls(float(np.mean(each)) if each else 0.0, bleu(captions, references) if each else 0.0,
                   float(np.mean(right)) if right else 0.0)  # fmt: skip
