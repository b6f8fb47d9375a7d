"""Scaling laws: a law is found again from what it says, with and without noise, and its best share is the best."""

import math

import numpy as np
import pytest

from headway.errors import InputError
from headway.evaluate.scaling import OPERATIONS, Law, Trained, bootstrapped, fitted

LAW = Law(e=1.7, a=400.0, b=1100.0, alpha=0.34, beta=0.37)
GRID = [(weights, tokens) for weights in (1e5, 4e5, 1.6e6, 6.4e6) for tokens in (1e6, 4e6, 1.6e7, 6.4e7)]


def test_a_law_is_found_again():
    found = fitted([Trained(*size, LAW.loss(*size)) for size in GRID])
    assert found.loss(1e8, 1e9) == pytest.approx(LAW.loss(1e8, 1e9), rel=2e-3)
    assert (found.alpha, found.beta) == pytest.approx((LAW.alpha, LAW.beta), abs=0.02)


def test_a_run_that_went_astray_hardly_matters_and_noise_gives_an_interval():
    draw = np.random.default_rng(1)
    runs = [Trained(*size, LAW.loss(*size) * math.exp(0.003 * draw.standard_normal())) for size in GRID]
    runs[5] = Trained(*GRID[5], 1.3 * LAW.loss(*GRID[5]))
    found = fitted(runs)
    assert found.loss(2e7, 2e8) == pytest.approx(LAW.loss(2e7, 2e8), rel=0.02)
    low, high = bootstrapped(runs, lambda law: law.loss(2e7, 2e8), samples=12)
    assert low < high and low == pytest.approx(LAW.loss(2e7, 2e8), rel=0.15)


def test_drawn_runs_that_show_no_law_are_left_out_of_the_interval():
    rising = [Trained(weights, tokens, 1 + math.log10(weights)) for weights, tokens in GRID]
    assert all(map(math.isnan, bootstrapped(rising, lambda law: law.e, samples=2)))


def test_the_best_share_is_the_best():
    operations = 1e17
    weights, tokens = LAW.best(operations)
    assert OPERATIONS * weights * tokens == pytest.approx(operations)
    for other in (0.8, 0.97, 1.03, 1.25):
        assert LAW.loss(weights, tokens) < LAW.loss(weights * other, tokens / other)


def test_too_little_to_fit_is_refused():
    with pytest.raises(InputError, match="4 runs are too few"):
        fitted([Trained(1e5 * n, 1e6 * n, 3.0) for n in range(1, 5)])
    with pytest.raises(InputError, match="must differ in their weights and in their tokens"):
        fitted([Trained(1e5, 1e6 * n, 3.0) for n in range(1, 7)])
    with pytest.raises(InputError, match="no finite loss"):
        fitted([Trained(1e5 * n, 1e6 * n, math.nan) for n in range(1, 7)])
    with pytest.raises(InputError, match="these runs show no law"):
        fitted([Trained(weights, tokens, 1 + math.log10(weights)) for weights, tokens in GRID])
