"""A Markov chain as a graph: words in columns, circles too, the same file each time."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from headway.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from chain_picture import _places, chain_picture

WORDS = ["show", "my", "files", "photos", "please"]
TABLE = np.array([[0, 1, 0, 0, 0], [0, 0, 0.3, 0.7, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])


def test_a_word_stands_behind_those_that_lead_to_it() -> None:
    assert _places(TABLE, WORDS) == [(0, 0.0), (1, 0.0), (2, 0.5), (2, -0.5), (3, 0.0)]


def test_the_same_chain_is_the_same_file_and_circles_end(tmp_path: Path) -> None:
    circle = np.array([[0.5, 0.5], [1.0, 0.0]])
    chains = {"straight": (TABLE, WORDS), "round": (circle, ["a", "b"])}
    made = [chain_picture(chains, tmp_path / name).read_bytes() for name in ("a.svg", "b.svg")]
    assert made[0] == made[1]


def test_a_matrix_that_is_no_chain(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no chain of 4 words"):
        chain_picture({"x": (TABLE, WORDS[:4])}, tmp_path / "a.png")
