"""Rows of different lengths that attend in spans see what they see in one call."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from headway.nn import ragged
from headway.nn.attention import attend, fused_attend
from headway.nn.mask import Causal
from headway.nn.position import Scene
from headway.nn.view import View


def area(lengths: list[int], cuts: list[tuple[int, int]], call: int) -> int:
    return sum((stop - start) * max(lengths[start:stop]) + call for start, stop in cuts)


@pytest.mark.parametrize("call", [0, 5, 40])
def test_no_other_cuts_read_less(call):
    draw = np.random.default_rng(call)
    for _ in range(10):
        lengths = draw.integers(0, 30, 8).tolist()
        every = [(0, *inner, 8) for count in range(8) for inner in combinations(range(1, 8), count)]
        least = min(area(lengths, list(zip(edges, edges[1:], strict=False)), call) for edges in every)
        found = ragged._cuts(tuple(lengths), call)
        assert area(lengths, found, call) == least
        assert [start for start, _ in found] == [0, *(stop for _, stop in found[:-1])] and found[-1][1] == 8


def view_of(lengths: list[int]) -> View:
    starts_B = torch.tensor(lengths) - 1
    return Causal().view(Scene(1, max(lengths), torch.device("cpu"), starts_B))


@pytest.mark.parametrize("groups", [4, 2])
def test_spans_give_what_the_equation_gives(groups, monkeypatch):
    monkeypatch.setattr("headway.nn.view.CALL", 1 << 12)
    torch.manual_seed(0)
    lengths = [7, 6, 300, 9, 5, 40, 41]
    view, keys = view_of(lengths), max(lengths)
    q = torch.randn(7, 4, 1, 16)
    k, v = torch.randn(2, 7, groups, keys, 16).unbind()
    with torch.no_grad():
        assert [(one.start, one.stop) for one in view.spans(k)] == [(0, 2), (2, 3), (3, 5), (5, 7)]
        found = fused_attend(q, k, v, view)
    expected, _ = attend(q, k, v, view.matrix(1, keys, q.device))
    assert torch.allclose(found, expected, atol=1e-6)


def test_rows_of_about_one_length_attend_in_one_call():
    k = torch.randn(4, 2, 12, 16)
    assert view_of([12, 11, 9, 10]).spans(k) == []


def test_the_cuts_of_a_step_are_those_of_the_next():
    ragged._cuts.cache_clear()
    for more in range(3):
        ragged.spans_of(torch.tensor([4, 90, 5]) + more, 1)
    assert ragged._cuts.cache_info().misses == 1
