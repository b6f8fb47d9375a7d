"""Trainings of benchmarks side by side: each job's own score, groups of seeds, and nothing more once one has failed."""

from __future__ import annotations

import statistics
import time

import pytest
from side_by_side import grouped, mean, side_by_side, spread


def test_scores_belong_to_their_jobs_and_seeds_to_one_group() -> None:
    jobs = [(data, rung, seed) for seed in (3, 1, 2) for data in "ab" for rung in "xy"]
    found = side_by_side(lambda job: job[2], jobs, 4)
    assert list(found) == jobs and all(score == job[2] for job, score in found.items())
    groups = {kind: list(own.values()) for kind, own in grouped(found).items()}
    assert groups == {(data, rung): [3, 1, 2] for data in "ab" for rung in "xy"}


def test_nothing_more_is_begun_when_one_has_failed() -> None:
    begun = []

    def work(job: int) -> None:
        begun.append(job)
        if job == 0:
            raise RuntimeError("no luck")
        time.sleep(0.05)

    with pytest.raises(RuntimeError, match="no luck"):
        side_by_side(work, range(20), 2)
    assert len(begun) < 20


def test_a_single_seed_has_no_spread() -> None:
    assert spread([0.5]) is None and mean([0.5]) == 0.5
    assert spread([1.0, 2.0, 4.0], 2) == round(statistics.stdev([1, 2, 4]), 2) and mean([1.0, 2.0, 4.0], 1) == 2.3
