"""The picture of votes and masks: drawn whole, the same each time, and only of what fits together."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from headway.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from votes_picture import votes_picture

WORDS = ["a", "b", "c"]
TABLE = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
MASK = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
VOTES = {"b a c": ({"a": 1.5, "b": 0.5}, {"a": 1.0})}


def test_a_picture_is_written_the_same_each_time(tmp_path: Path) -> None:
    made = [votes_picture(TABLE, MASK, WORDS, "c", VOTES, tmp_path / name) for name in ("a.svg", "b.svg")]
    assert made[0].read_bytes() == made[1].read_bytes()
    other = votes_picture(TABLE, 1 - MASK, WORDS, "c", VOTES, tmp_path / "c.svg")
    assert other.read_bytes() != made[0].read_bytes()


def test_shapes_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="for 3 words"):
        votes_picture(TABLE, MASK[:2], WORDS, "c", VOTES, tmp_path / "a.png")
    with pytest.raises(InputError, match=".png, .svg or .pdf"):
        votes_picture(TABLE, MASK, WORDS, "c", VOTES, tmp_path / "a.txt")
