"""Adadelta beside torch's own; a step whose gradient is not finite changes nothing."""

import torch
from torch import nn

from headway.train.adadelta import Adadelta
from headway.train.optimiser import Masters


def test_steps_are_those_of_torch() -> None:
    torch.manual_seed(0)
    mine, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(mine.state_dict())
    masters = Masters(mine.named_parameters(), Adadelta(), clip=0.5)
    reference = torch.optim.Adadelta(theirs.parameters(), lr=0.7, rho=0.95, eps=1e-6)
    for _ in range(6):
        x = torch.randn(7, 4)
        for model in (mine, theirs):
            model(x).square().sum().backward()
        masters.set_rate(0.7)
        masters.step()
        masters.zero()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.step()
        reference.zero_grad()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    weight = nn.Parameter(torch.ones(3))
    masters = Masters([("weight", weight)], Adadelta())
    masters.set_rate(1.0)
    for grad in (1.0, torch.nan, torch.inf):
        before = {kind: {name: t.clone() for name, t in named.items()} for kind, named in masters.state().items()}
        weight.grad = torch.full((3,), grad)
        _, bad = masters.step()
        assert bad == (grad != 1.0)
        if bad:
            torch.testing.assert_close(masters.state(), before, rtol=0, atol=0)
        else:
            assert not torch.equal(before["weights"]["weight"], weight)


def test_a_state_is_taken_over() -> None:
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
    masters, again = (Masters([("weight", weight)], Adadelta()) for weight in (first, second))
    for one in (masters, again):
        one.set_rate(1.0)
    for _ in range(3):
        first.grad = torch.randn(3)
        masters.step()
    again.resume({kind: {name: t.clone() for name, t in named.items()} for kind, named in masters.state().items()})
    for weight, one in ((first, masters), (second, again)):
        weight.grad = torch.full((3,), 0.3)
        one.step()
    assert torch.equal(first, second)
