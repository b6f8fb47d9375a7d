"""CIDEr and BLEU against pycocoevalcap: what it gave, and, in the long tests, the package itself, which is large."""

from __future__ import annotations

import random

import pytest

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


@pytest.mark.parametrize(("references", "wanted"), [(1, 5.592061136741759), (5, 2.097106099403209)])
def test_cider_is_what_pycocoevalcap_gave(references: int, wanted: float) -> None:
    given, true = made(references, references)
    given[0] = true[0][0]
    assert CaptionScores.of(given, true).cider == pytest.approx(wanted, abs=1e-9)


def test_bleu_is_what_pycocoevalcap_gave() -> None:
    assert bleu(*made(3, 5)) == pytest.approx(72.34500035781379, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("references", [1, 5])
def test_cider_is_that_of_pycocoevalcap(references: int) -> None:
    from pycocoevalcap.cider.cider import Cider

    given, true = made(references, references)
    given[0] = true[0][0]
    wanted, each = Cider().compute_score(dict(enumerate(true)), {n: [text] for n, text in enumerate(given)})
    assert cider(given, true) == pytest.approx(list(each), abs=1e-9)
    found = CaptionScores.of(given, true)
    assert found.cider == pytest.approx(wanted) and found.exact >= 0.05


@pytest.mark.long
def test_bleu_is_that_of_pycocoevalcap() -> None:
    from pycocoevalcap.bleu.bleu import Bleu

    given, true = made(3, 5)
    wanted, _ = Bleu(4).compute_score(dict(enumerate(true)), {n: [text] for n, text in enumerate(given)}, verbose=0)
    assert bleu(given, true) == pytest.approx(100 * wanted[3], rel=1e-3)
    uneven = [some[: 1 + n % 5] for n, some in enumerate(true)]
    assert 0 < bleu(given, uneven) < 100


def test_punctuation_and_case_do_not_count() -> None:
    found = CaptionScores.of(["A dog runs .", ""], [["a dog runs."], ["a cat"]])
    assert found.exact == 0.5 and CaptionScores.of([], []).figures() == {"cider": 0.0, "bleu": 0.0, "exact": 0.0}
