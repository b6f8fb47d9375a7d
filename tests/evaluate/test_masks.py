"""Mean intersection over union, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, jaccard_score

from headway.evaluate.masks import OverlapScores


def test_figures_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    true = rng.integers(0, 4, (5, 6, 7))
    given = np.where(rng.random(true.shape) < 0.6, true, rng.integers(0, 4, true.shape))
    found = OverlapScores.of(zip(true, given, strict=True), 4)
    each = jaccard_score(true.ravel(), given.ravel(), average=None)
    np.testing.assert_allclose(found.each, each)
    assert found.mean_iou == pytest.approx(jaccard_score(true.ravel(), given.ravel(), average="macro"))
    assert found.pixel_accuracy == pytest.approx(accuracy_score(true.ravel(), given.ravel()))


def test_a_label_that_no_pixel_has_does_not_count() -> None:
    true, given = np.zeros((1, 4, 4), int), np.zeros((1, 4, 4), int)
    true[0, 0], given[0, 0, :2] = 1, 1
    found = OverlapScores.of([(true, given)], 5)
    assert found.mean_iou == pytest.approx((0.5 + 12 / 14) / 2)
    assert OverlapScores.of([], 3).figures() == {"mean_iou": 0.0, "pixel_accuracy": 0.0}
