"""Exact match and F1 of answers: SQuAD's rules, on cases made by hand."""

from __future__ import annotations

import pytest

from headway.evaluate.answers import AnswerScores, exact, f1, normalised


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Denver Broncos!", "denver broncos"),
        ("an apple-a-day", "appleaday"),  # punctuation goes first, so its letters join
        ("a cat, the dog and An owl", "cat dog and owl"),
        ("theatre", "theatre"),
        ("24–10", "24–10"),  # this dash is no ASCII punctuation
        ("The", ""),
        ("$1.2 million", "12 million"),
    ],
)
def test_texts_are_compared_without_case_punctuation_and_articles(text: str, plain: str) -> None:
    assert normalised(text) == plain


@pytest.mark.parametrize(
    ("given", "right", "same", "overlap"),
    [
        ("the Broncos", "Broncos.", 1, 1),
        ("Denver Broncos", "Broncos", 0, 2 / 3),
        ("Broncos Denver", "Denver Broncos", 0, 1),
        ("to to be", "to be", 0, 4 / 5),  # a word counts as often as it is in both
        ("cat", "dog", 0, 0),
        ("", "dog", 0, 0),
        ("", "", 1, 1),
        ("a", "the", 1, 1),
    ],
)
def test_exact_match_and_f1_of_hand_made_cases(given: str, right: str, same: float, overlap: float) -> None:
    assert exact(given, right) == same and f1(given, right) == pytest.approx(overlap)


def test_the_most_similar_of_several_answers_counts_and_no_answer_is_the_empty_text() -> None:
    given = ["in 1907", "Ada", "", "something"]
    right = [["1907", "the year 1907"], ["Ada Lovelace"], [], []]
    scores = AnswerScores.of(given, right)
    assert scores.exact == pytest.approx(1 / 4) and scores.f1 == pytest.approx((2 / 3 + 2 / 3 + 1 + 0) / 4)
    assert scores.figures()["unanswerable"] == 1 / 2
    assert scores.figures()["f1 answerable"] == pytest.approx(2 / 3) and scores.figures()["exact answerable"] == 0
    assert set(AnswerScores.of(given[:2], right[:2]).figures()) == {"f1", "exact"}
    assert AnswerScores.of([""], [["the"]]).f1 == 1  # an answer of articles alone is none, as in the script of 2.0
