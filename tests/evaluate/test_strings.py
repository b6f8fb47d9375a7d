"""Errors of strings against their definitions: edits by recursion, every way tried."""

from functools import cache

import numpy as np
import pytest

from headway.errors import InputError
from headway.evaluate.strings import StringErrors, edit_distance


def by_recursion(one, other):
    @cache
    def fewest(i, j):
        if not i or not j:
            return i + j
        replaced = fewest(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(fewest(i - 1, j) + 1, fewest(i, j - 1) + 1, replaced)

    return fewest(len(one), len(other))


def test_edits_are_the_fewest():
    random = np.random.default_rng(0)
    for _ in range(200):
        one, other = ("".join(random.choice(list("abc"), random.integers(0, 7))) for _ in range(2))
        assert edit_distance(one, other) == edit_distance(other, one) == by_recursion(one, other)


def test_a_string_is_right_as_a_whole_or_wrong():
    found = StringErrors.of(["a b", "a  c ", "", "x y z"], ["a b", "a c", "a", "x z z q"])
    assert found.word_error == 50.0
    assert found.token_error == pytest.approx(100 * (0 + 0 + 1 + 2) / (2 + 2 + 1 + 4))
    assert found.to_dict()["strings"] == 4 and "50.00 %, 4 strings" in found.lines()[0]


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="1 strings and 2"):
        StringErrors.of(["a"], ["a", "b"])
    with pytest.raises(InputError, match="no strings"):
        StringErrors.of([], [])
