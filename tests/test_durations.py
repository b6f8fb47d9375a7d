"""Durations in words."""

from __future__ import annotations

import pytest

from headway.durations import spoken


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"), (0.042, "0.042 s"), (1, "1 s"), (45.4, "45 s"), (59.7, "1 min"), (60, "1 min"),
        (200, "3 min 20 s"), (3599.6, "1 h"), (4320, "1 h 12 min"), (3600 + 59 * 60 + 40, "2 h"), (-3, "0 s"),
        (86399, "1 d"), (2 * 86400 + 3 * 3600, "2 d 3 h"), (40 * 86400, "40 d"),
    ],
)  # fmt: skip
def test_a_duration_is_said_as_people_say_it(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
