"""Adapters of low rank against sums that are written out, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from headway.nn.low_rank import Adapted, can_adapt, merge_adapters, replace_parts


def adapted(base: nn.Linear, rank: int = 2, alpha: float = 6.0) -> Adapted:
    found = Adapted(base.double(), rank, alpha, torch.Generator().manual_seed(1))
    torch.nn.init.normal_(found.B_OR)
    return found


def linear(**how: bool) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(5, 3, **how)


@pytest.mark.parametrize("bias", [True, False])
def test_an_adapter_adds_a_product_of_two_thin_matrices(bias: bool) -> None:
    base = linear(bias=bias)
    part, x = adapted(base), torch.randn(4, 7, 5, dtype=torch.float64)
    whole = base.weight.numpy(force=True) + 6.0 / 2 * part.B_OR.numpy(force=True) @ part.A_RI.numpy(force=True)
    expected = x @ torch.from_numpy(whole).T + (base.bias if bias else 0.0)
    torch.testing.assert_close(part(x), expected)
    torch.testing.assert_close(part.weight.numpy(force=True), whole)


def test_an_adapter_changes_nothing_at_first_but_learns() -> None:
    base, x = linear(), torch.randn(4, 5)
    part = Adapted(base, 2, 6.0, torch.Generator().manual_seed(1))
    torch.testing.assert_close(part(x), base(x), rtol=0, atol=0)
    part(x).square().sum().backward()
    assert part.B_OR.grad is not None and part.B_OR.grad.abs().sum() > 0


def test_the_gradient_is_that_of_the_sum() -> None:
    part, x = adapted(linear()), torch.randn(4, 5, dtype=torch.float64)
    given = [part.A_RI, part.B_OR]
    found = torch.autograd.grad(part(x).square().sum(), given)
    expected = torch.autograd.grad((x @ part.weight.T + part.bias).square().sum(), given)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("normed", [False, True])
def test_merged_maps_give_the_same_and_stand_where_they_stood(normed: bool) -> None:
    base = linear()
    model = nn.Sequential(weight_norm(base) if normed else base, nn.Tanh(), base)[:2].double()
    assert can_adapt(base)
    names = list(model.state_dict())
    replace_parts(model, {base: adapted(base)})
    x = torch.randn(4, 5, dtype=torch.float64)
    expected = model(x)
    assert list(model.state_dict()) != names
    merge_adapters(model)
    assert list(model.state_dict()) == names
    torch.testing.assert_close(model(x), expected)
