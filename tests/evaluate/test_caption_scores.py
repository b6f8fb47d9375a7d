"""CIDEr and BLEU, against pycocoevalcap."""

from __future__ import annotations

import random

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from headway.evaluate.captions import CaptionScores, bleu, cider

WORDS = ["a", "the", "red", "blue", "dog", "cat", "man", "runs", "sits", "on", "grass", "near", "water"]


def made(seed: int, references: int) -> tuple[list[str], list[list[str]]]:
    rng = random.Random(seed)
    true = [[" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(references)] for _ in range(20)]
    given = []
    for some in true:
        words = rng.choice(some).split()
        given.append(" ".join(word if rng.random() < 0.8 else rng.choice([*WORDS, "zebra"]) for word in words))
    return given, true


@pytest.mark.parametrize("references", [1, 5])
def test_cider_is_that_of_pycocoevalcap(references: int) -> None:
    given, true = made(references, references)
    given[0] = true[0][0]
    wanted, each = Cider().compute_score(dict(enumerate(true)), {n: [text] for n, text in enumerate(given)})
    assert cider(given, true) == pytest.approx(list(each), abs=1e-9)
    found = CaptionScores.of(given, true)
    assert found.cider == pytest.approx(wanted) and found.exact >= 0.05


def test_bleu_is_that_of_pycocoevalcap() -> None:
    given, true = made(3, 5)
    wanted, _ = Bleu(4).compute_score(dict(enumerate(true)), {n: [text] for n, text in enumerate(given)}, verbose=0)
    assert bleu(given, true) == pytest.approx(100 * wanted[3], rel=1e-3)
    uneven = [some[: 1 + n % 5] for n, some in enumerate(true)]
    assert 0 < bleu(given, uneven) < 100


def test_punctuation_and_case_do_not_count() -> None:
    found = CaptionScores.of(["A dog runs .", ""], [["a dog runs."], ["a cat"]])
    assert found.exact == 0.5 and CaptionScores.of([], []).figures() == {"cider": 0.0, "bleu": 0.0, "exact": 0.0}
