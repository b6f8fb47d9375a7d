"""The matching of least cost against scipy's, problem by problem."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from headway.nn.assignment import assigned


def total(cost, column):
    pairs = [(row, at) for row, at in enumerate(column.tolist()) if at < cost.shape[1]]
    assert len({at for _, at in pairs}) == len(pairs)  # no column twice
    return len(pairs), sum(cost[pair].item() for pair in pairs)


@pytest.mark.parametrize("rows, columns", [(1, 1), (4, 12), (7, 7), (9, 5), (16, 20), (3, 1)])
@pytest.mark.parametrize("kind", ["numbers", "ties", "far apart"])
def test_the_total_cost_is_scipys(rows, columns, kind):
    draw = torch.Generator().manual_seed(rows * 31 + columns)
    cost = torch.randn(60, rows, columns, generator=draw)
    cost = {"numbers": cost, "ties": (cost * 1.5).round(), "far apart": cost * 10 ** (cost * 2)}[kind]
    there = torch.rand(60, rows, generator=draw) < 0.8
    found = assigned(cost, there)
    assert (found[~there] == columns).all()
    for problem in range(60):
        own = cost[problem][there[problem]]
        wanted = linear_sum_assignment(own.numpy())
        count, least = total(own, found[problem][there[problem]])
        assert count == len(wanted[0])
        assert np.isclose(least, own.numpy()[wanted].sum(), atol=1e-5)


def test_costs_that_are_no_numbers_are_taken_last():
    nan, inf = float("nan"), float("inf")
    cost = torch.tensor([[[nan, 1.0, 5.0], [inf, 0.0, 7.0]], [[nan, nan, nan], [-inf, 1.0, 2.0]]])
    found = assigned(cost, torch.ones(2, 2, dtype=torch.bool))
    assert found[0].tolist() == [2, 1] and found[1, 1] == 0


def test_no_rows():
    assert assigned(torch.zeros(3, 0, 4), torch.zeros(3, 0, dtype=torch.bool)).shape == (3, 0)
