"""Times of words: the warping and its filter against those of `transformers`, and against a twin in recursion."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from transformers.models.whisper import generation_whisper as theirs

from headway.generate.word_times import beginnings, matches, median_filter, moved, pauses, spoken, warp


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (4, 9), (9, 4), (23, 61)])
@pytest.mark.parametrize("whole", [False, True], ids=["real", "ties"])
def test_the_path_is_that_of_transformers(shape: tuple[int, int], whole: bool) -> None:
    rng = np.random.default_rng(sum(shape))
    cost = (
        rng.integers(0, 3, shape).astype(float)
        if whole
        else rng.standard_normal(shape).astype(np.float32).astype(float)
    )
    found, expected = warp(cost), theirs._dynamic_time_warping(cost)
    assert all(np.array_equal(mine, their) for mine, their in zip(found, expected, strict=True))


@pytest.mark.parametrize("shape", [(3, 5), (6, 4), (7, 7)])
def test_no_path_costs_less(shape: tuple[int, int]) -> None:
    cost = np.random.default_rng(1).standard_normal(shape)

    @cache
    def least(t: int, s: int) -> float:
        before = [least(*at) for at in ((t - 1, s - 1), (t - 1, s), (t, s - 1)) if min(at) >= 0]
        return cost[t, s] + min(before, default=0.0)

    rows, columns = warp(cost)
    assert cost[rows, columns].sum() == pytest.approx(least(shape[0] - 1, shape[1] - 1))
    assert (np.diff(rows) >= 0).all() and (np.diff(columns) >= 0).all()


def test_the_filter_is_that_of_transformers() -> None:
    x = torch.randn(3, 5, 40)
    assert torch.equal(median_filter(x, 7), theirs._median_filter(x, 7))
    assert torch.equal(median_filter(x[..., :3], 7), x[..., :3])  # too short to be smoothed


def test_tokens_begin_where_their_heads_look() -> None:
    """Four tokens, each of which looks at its own stretch of the places."""
    edges = [0, 10, 22, 40, 60]
    weights = torch.full((2, 4, 60), 1e-3)
    for token, (first, last) in enumerate(zip(edges, edges[1:], strict=False)):
        weights[:, token, first:last] = 1.0
    weights = weights / weights.sum(-1, keepdim=True)
    assert matches(weights).shape == (4, 60)
    assert beginnings(weights).tolist() == edges[:-1]


def test_a_boundary_moves_to_the_pause_near_it_and_each_pause_serves_one() -> None:
    quiet = [(0.0, 0.2), (0.8, 1.0), (1.5, 1.9), (3.0, 3.0)]
    assert moved([0.0, 1.1, 1.95, 2.9], quiet) == [(0.2, 0.8), (1.0, 1.5), (1.9, 3.0)]
    assert moved([0.0, 2.4, 2.9], quiet) == [(0.2, 2.4), (2.4, 3.0)]  # no pause is near the middle
    assert moved([0.0, 1.0, 2.0], []) == [(0.0, 1.0), (1.0, 2.0)]


def test_pauses_are_what_is_quiet_beside_its_neighbours() -> None:
    time = np.arange(4000) / 8000
    tone = np.sin(2 * np.pi * 440 * time) * np.repeat([0.0, 0.5, 1e-4, 0.01], 1000)
    found = pauses(tone.astype(np.float32), 8000, 80)
    assert found[0] == pytest.approx((0.0, 0.12), abs=0.011) and found[1][0] == pytest.approx(0.25, abs=0.011)
    assert pauses(np.zeros(800, np.float32), 8000, 80) == [(0.0, 0.1)]


def test_digits_with_commas_between_them_are_words() -> None:
    tokens = [" 0", ",", "5", ",", " 12", "."]
    assert spoken([0, 0, 0, 0, 1, 1], tokens) == [0, 0, 1, 1, 2, 2]
    assert spoken([0, 0], [" don", "'t"]) == [0, 0] and spoken([], []) == []
