"""Positions, residual placement, feed-forward and caches."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.nn.cache import FixedCache, GrowingCache
from headway.nn.feed_forward import MLP, GatedMLP
from headway.nn.position import Learned, Position, Sinusoidal, sinusoid
from headway.nn.residual import Residual, post_norm, pre_norm
from headway.nn.slots import Clock


def test_sinusoid_against_the_formula_digit_by_digit():
    table = sinusoid(torch.arange(50), 12)
    for p in (0, 1, 7, 49):
        for i in range(6):
            angle = p / 10_000 ** (2 * i / 12)
            assert math.isclose(table[p, 2 * i].item(), math.sin(angle), abs_tol=1e-12)
            assert math.isclose(table[p, 2 * i + 1].item(), math.cos(angle), abs_tol=1e-12)


def test_a_shift_of_the_sinusoid_is_a_linear_map_that_does_not_depend_on_the_position():
    table = sinusoid(torch.arange(40), 8)
    shift = torch.linalg.lstsq(table[:30], table[5:35]).solution
    torch.testing.assert_close(table[:35] @ shift, table[5:40], rtol=0, atol=1e-8)


@pytest.mark.parametrize("part", [Position(), Sinusoidal(6, length=4), Learned(6, 20)])
def test_positions_start_where_they_are_told(part):
    x = torch.randn(2, 9, 6)
    whole = part.add(x)
    torch.testing.assert_close(part.add(x[:, 4:], 4), whole[:, 4:])
    by_row = part.add(x[:, 3:5], torch.tensor([3, 3]))
    torch.testing.assert_close(by_row, whole[:, 3:5])


def test_a_learned_table_ends_where_it_ends():
    with pytest.raises(IndexError, match="beyond the table of 4"):
        Learned(6, 4).add(torch.randn(1, 5, 6))


def test_the_one_placement_formula():
    x, f = torch.randn(2, 3, 8), nn.Linear(8, 8)
    norm = nn.LayerNorm(8)
    torch.testing.assert_close(pre_norm(lambda: norm, 0.0)()(x, f), x + f(norm(x)))
    torch.testing.assert_close(post_norm(lambda: norm, 0.0)()(x, f), norm(x + f(x)))
    other = nn.RMSNorm(8)
    sandwich = Residual(before=norm, after=other)
    torch.testing.assert_close(sandwich(x, f), x + other(f(norm(x))))


def test_feed_forward_formulas():
    x = torch.randn(2, 3, 8)
    for activation in (F.relu, F.gelu):
        part = MLP(8, 16, activation)
        a, b = part.expand, part.contract
        expected = activation(x @ a.weight.T + a.bias) @ b.weight.T + b.bias
        torch.testing.assert_close(part(x), expected)
    gated = GatedMLP(8, 16)
    w, v = gated.expand.weight.chunk(2)
    torch.testing.assert_close(gated(x), (F.silu(x @ w.T) * (x @ v.T)) @ gated.contract.weight.T)


def test_fixed_cache_equals_growing_cache_over_appends_and_reorders():
    torch.manual_seed(0)
    clock = Clock(torch.zeros(3, dtype=torch.long), 0)
    fixed, growing = FixedCache(clock, 10), GrowingCache()
    for steps in (1, 3, 1, 2):
        k, v = torch.randn(3, 2, steps, 4), torch.randn(3, 2, steps, 4)
        for a, b in zip(fixed.append(k, v), growing.append(k, v), strict=True):
            assert torch.equal(a, b)
        clock.advance(steps)
        rows = torch.randint(0, 3, (3,))
        fixed.pick(rows)
        growing.pick(rows)
    with pytest.raises(IndexError, match="10 positions is full"):
        fixed.append(torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4))
