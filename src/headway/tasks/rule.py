"""The rule of 1,500: a bag of bigrams or a model of sequences, by the number of texts for each word of a text.

    texts / mean words of a text < 1,500: a bag of bigrams; more: a model of sequences        (Chollet 2021, chapter 11)

It is a rule of thumb for models that start from nothing; a comparison of both shows what holds for the data at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TEXTS_A_WORD = 1500
BAG, SEQUENCE = "a bag of bigrams", "a model of sequences"


@dataclass(frozen=True)
class Rung:
    """A model of a comparison. accuracy: mean over seeds. bag: whether it reads words without their order. pretrained:
    whether it started from another model."""

    name: str
    accuracy: float
    bag: bool
    pretrained: bool = False


def advised(texts: int, words: int) -> tuple[float, str]:
    """Texts for each word of a mean text, and what the rule advises. words: of all texts."""
    ratio = texts / max(words / max(texts, 1), 1e-9)
    return ratio, BAG if ratio < TEXTS_A_WORD else SEQUENCE


def remarks(texts: int, words: int, tested: int, rungs: Sequence[Rung]) -> list[str]:
    """What the rule advises for these training texts, and what was found on `tested` texts."""
    ratio, advice = advised(texts, words)
    than = "less" if advice == BAG else "not less"
    rule = (
        f"{texts:,} training texts of {words / max(texts, 1):.1f} words on average: {ratio:,.0f} texts for each word, "
        f"{than} than {TEXTS_A_WORD:,}, so the rule of 1,500 (Chollet 2021) advises {advice}"
    )
    return [rule, *_found(advice, tested, rungs)]


def _found(advice: str, tested: int, rungs: Sequence[Rung]) -> list[str]:
    own = [rung for rung in rungs if not rung.pretrained]
    bags, sequences = [rung for rung in own if rung.bag], [rung for rung in own if not rung.bag]
    if not bags or not sequences:
        return [f"to see whether that holds, compare {SEQUENCE if bags else BAG} too: headway compare classifiers"]
    bag, sequence = (max(some, key=lambda rung: rung.accuracy) for some in (bags, sequences))
    best = max(bag, sequence, key=lambda rung: rung.accuracy)
    error = math.sqrt(2 * best.accuracy * (1 - best.accuracy) / max(tested, 1))
    gap = abs(bag.accuracy - sequence.accuracy)
    if gap <= error:
        verdict = f"{tested:,} texts cannot tell them apart (standard error {error:.3f})"
    else:
        agrees = best.bag == (advice == BAG)
        verdict = "the rule is right here" if agrees else "the rule is wrong here"
    found = f"found: the best bag is {_shown(bag)}, the best sequence model from nothing {_shown(sequence)}: {verdict}"
    ahead = max((rung for rung in rungs if rung.pretrained), key=lambda rung: rung.accuracy, default=None)
    outside = f"the rule is not about models that have read much before: {_shown(ahead)}" if ahead else ""
    return [found, *([outside] if outside else [])]


def _shown(rung: Rung) -> str:
    return f"{rung.name} ({rung.accuracy:.3f})"
