"""Figures of labels against their definitions, counted text by text."""

from __future__ import annotations

import numpy as np
import pytest

from headway.evaluate.labels import LabelScores


def f1_by_text(true: list[int], given: list[int], label: int) -> float:
    right = sum(t == g == label for t, g in zip(true, given, strict=True))
    if not right:
        return 0.0
    precision, recall = right / given.count(label), right / true.count(label)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("labels", [2, 3, 5])
def test_figures_are_those_of_their_definitions(labels: int) -> None:
    random = np.random.default_rng(labels)
    true = random.integers(0, labels, 80).tolist()
    given = [t if random.random() < 0.6 else int(random.integers(0, labels)) for t in true]
    found = LabelScores.of(true, given, labels)
    assert found.accuracy == pytest.approx(np.mean([t == g for t, g in zip(true, given, strict=True)]))
    assert found.f1 == pytest.approx(np.mean([f1_by_text(true, given, label) for label in range(labels)]))
    # The correlation of both as indicators of each label, summed over labels.
    ones = np.eye(labels)
    t_NK, g_NK = ones[true] - ones[true].mean(0), ones[given] - ones[given].mean(0)
    expected = (t_NK * g_NK).sum() / np.sqrt((t_NK**2).sum() * (g_NK**2).sum())
    assert found.matthews == pytest.approx(expected)
    assert found.figures() == {"accuracy": found.accuracy, "f1": found.f1, "matthews": found.matthews}


def test_one_label_for_all_is_no_correlation() -> None:
    found = LabelScores.of([0, 1, 1], [1, 1, 1], 2)
    assert found.matthews == 0.0 and found.accuracy == pytest.approx(2 / 3) and found.f1 == pytest.approx(0.4)


def test_one_answer_for_all() -> None:
    """Only where there was something to tell apart, and more than one label was not given."""
    same = LabelScores.of([0, 1, 1, 2], [1, 1, 1, 1], 3)
    assert same.constant == 1 and same.majority == 0.5
    assert LabelScores.of([0, 1, 1, 0], [1, 1, 1, 0], 2).constant is None
    assert LabelScores.of([1, 1], [1, 1], 2).constant is None


def test_a_label_that_the_model_does_not_have_is_always_wrong() -> None:
    scores = LabelScores.of([0, 1, -1, 1], [0, 1, 1, 0], 2)
    assert scores.accuracy == 0.5 and scores.majority == 0.5
    assert LabelScores.of([0, -1], [0, 0], 1).accuracy == 0.5
