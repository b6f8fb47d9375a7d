"""ROUGE is what rouge-score computes."""

import random

import pytest

from headway.errors import InputError
from headway.evaluate.rouge import Rouge, common


def test_scores_are_those_of_rouge_score():
    scoring = pytest.importorskip("rouge_score.rouge_scorer")
    scorer = scoring.RougeScorer(["rouge1", "rouge2", "rougeL"])
    draw = random.Random(1)
    words = ["The", "cat,", "sat", "on", "a", "mat-and", "U.S.", "ran", "é", "!"]
    texts = [" ".join(draw.choices(words, k=draw.randrange(9))) for _ in range(60)]
    references = [[" ".join(draw.choices(words, k=draw.randrange(1, 9))) for _ in range(1 + n % 3)] for n in range(60)]
    found = Rouge.of(texts, references)
    each = [scorer.score_multi(some, text) for text, some in zip(texts, references, strict=True)]
    for name, value in (("rouge1", found.one), ("rouge2", found.two), ("rougeL", found.longest)):
        assert value == pytest.approx(100 * sum(one[name].fmeasure for one in each) / 60, abs=1e-9)


def test_the_longest_common_subsequence():
    assert common("abcbdab", "bdcaba") == 4 and common("", "a") == 0


def test_nothing_and_too_much_are_refused():
    with pytest.raises(InputError, match="at least one"):
        Rouge.of([], [])
    with pytest.raises(InputError, match="2 summaries and 1 references"):
        Rouge.of(["a", "b"], [["a"]])
