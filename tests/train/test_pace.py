"""A run that is given time: the schedule comes down in it, whatever a step takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.train.pace import Pace
from headway.train.schedule import Cosine

SCHEDULE = Cosine(peak=1.0, warmup=10, floor=0.1)


def rates(pace: Pace, each: list[float], set_up: float = 0.0, log: int = 5) -> list[float]:
    """The rate of every step, where step n takes each[n − 1] seconds, until the time is over."""
    found, clock = [], set_up
    for step, seconds in enumerate(each, 1):
        found.append(SCHEDULE.rate(step, pace.steps))
        clock += seconds
        if (step % log == 0 or pace.due(step)) and pace.look(step, clock):
            break
    return found


def test_the_rate_comes_down_by_the_time_that_is_given() -> None:
    found = rates(Pace(10_000, seconds=100.0), [0.5] * 10_000, set_up=20.0)
    assert len(found) == 160  # (100 − 20) / 0.5
    even = [SCHEDULE.rate(step, 160) for step in range(1, 161)]
    assert found[2:] == pytest.approx(even[2:], abs=0.02)  # known from the second look on
    assert found[-1] == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize("limit", [9.0, 60.0, 120.0])
def test_a_run_shorter_than_its_warm_up_and_the_lines_of_its_log_comes_down_too(limit: float) -> None:
    found = rates(Pace(5000, limit), [1.5] * 5000, log=500)
    assert len(found) == limit / 1.5 and found[-1] < 0.35 and max(found) > 0.7


def test_steps_that_get_slower_are_followed() -> None:
    found = rates(Pace(10_000, seconds=100.0), [0.5] * 100 + [1.0] * 10_000)
    assert len(found) == 150 and found[-1] == pytest.approx(0.1, abs=0.01)
    assert all(later <= sooner + 1e-9 for sooner, later in zip(found[10:], found[11:], strict=False))


@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_with_time_enough_it_is_the_schedule_of_all_steps(seconds: float) -> None:
    assert rates(Pace(60, seconds), [0.5] * 60) == [SCHEDULE.rate(step, 60) for step in range(1, 61)]


def test_a_run_that_goes_on_foresees_what_it_foresaw() -> None:
    pace = Pace(10_000, seconds=100.0)
    assert not pace.look(1, 60.0) and not pace.look(180, 77.9)  # most of it was setting up
    again = Pace(10_000, seconds=100.0)
    again.first = pace.first
    assert not again.look(180, 77.9)
    assert again.steps == pace.steps == 401
    more = Pace(10_000, seconds=200.0)  # it was given more
    more.first = pace.first
    assert not more.look(180, 77.9)
    assert more.steps == 1401


def test_behind_the_end_nothing_is_foreseen() -> None:
    pace = Pace(100, seconds=10.0)
    assert not pace.look(5, 4.0) and pace.look(10, 12.0)
    assert pace.steps == 10


def scored(seconds: float, test: float) -> Callable[[float], tuple[float, float]]:
    """What scoring takes, in proportion to the data."""
    return lambda share: (share * seconds, share * test)


def test_the_time_of_the_last_scoring_is_kept() -> None:
    pace = Pace(10_000, seconds=100.0)
    pace.measure(scored(4.0, 6.0), candidates=2)
    assert pace.share == 1.0 and pace.reserve == pytest.approx(3 * 4.0 + 6.0)
    assert not pace.look(1, 1.0) and not pace.look(81, 81.0)
    assert pace.steps == 82 and pace.look(82, 82.0)


def test_a_scoring_that_takes_too_long_is_done_on_a_sample_of_the_data() -> None:
    pace = Pace(10_000, seconds=90.0)
    asked: list[float] = []
    whole = scored(60.0, 120.0)
    pace.measure(lambda share: asked.append(share) or whole(share), candidates=2)  # type: ignore[func-returns-value]
    assert pace.reserve == pytest.approx(30.0) and pace.share == pytest.approx(30 / 300)
    assert asked == [1 / 64]  # nothing longer is tried


def test_validations_take_at_most_a_third_of_the_time_and_none_runs_into_the_end() -> None:
    pace = Pace(10_000, seconds=100.0)
    pace.measure(scored(5.0, 0.0), candidates=1)
    assert not pace.may_validate(14.0) and pace.may_validate(15.0)
    pace.validated(5.0, scored=True)
    assert not pace.may_validate(29.0) and pace.may_validate(30.0)
    assert pace.may_validate(84.0) and not pace.may_validate(85.0)
    assert Pace(10_000, seconds=0.0).may_validate(1.0)


def test_a_resumed_run_keeps_what_was_measured() -> None:
    pace, again = Pace(10_000, seconds=100.0), Pace(10_000, seconds=100.0)
    pace.measure(scored(50.0, 50.0), candidates=1)
    pace.look(1, 5.0)
    again.resume(pace.state())
    assert (again.share, again.reserve, again.first) == (pace.share, pace.reserve, (1, 5.0))
    again.resume([3, 7.0])  # as an earlier version wrote it
    assert again.first == [3, 7.0]
