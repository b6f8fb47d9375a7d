"""Masters, groups and schedules."""

import math

import pytest
import torch
from torch import nn

from headway.train.optimiser import Adam, AdamW, Masters
from headway.train.schedule import Cosine, InverseRoot, Linear


def test_float32_weights_are_their_own_masters_and_follow_torch_adam():
    torch.manual_seed(0)
    mine, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(mine.state_dict())
    masters = Masters(mine.named_parameters(), Adam(), clip=0.5)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    for _ in range(5):
        x = torch.randn(7, 4)
        for model in (mine, theirs):
            model(x).square().sum().backward()
        masters.set_rate(0.01)
        norm, bad = masters.step()
        assert bad == 0
        masters.zero()
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), 0.5))
        reference.step()
        reference.zero_grad()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_bfloat16_weights_follow_float32_masters_that_remember_small_steps():
    weight = nn.Parameter(torch.full((4, 4), 256.0, dtype=torch.bfloat16))
    masters = Masters([("weight", weight)], Adam())
    for _ in range(10):
        weight.grad = torch.ones_like(weight)
        masters.set_rate(0.1)  # bfloat16 cannot hold 256 − 0.1
        masters.step()
        masters.zero()
    torch.testing.assert_close(masters.masters[0], torch.full((4, 4), 255.0), rtol=0, atol=1e-2)
    assert torch.equal(weight.detach(), masters.masters[0].bfloat16())


def test_no_decay_on_norms_and_biases():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    groups = Masters(model.named_parameters(), AdamW(decay=0.1)).optimiser.param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.1, 1), (0.0, 3)]


def test_inverse_root_is_the_papers_formula():
    width, warmup = 512, 4000
    schedule = InverseRoot(peak=width**-0.5 * warmup**-0.5, warmup=warmup)
    for step in (1, 100, 4000, 4001, 100_000):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert math.isclose(schedule.rate(step, 0), paper)


@pytest.mark.parametrize("schedule", [Linear(1.0, 10, 0.1), Cosine(1.0, 10, 0.1)])
def test_decay_starts_at_the_peak_and_ends_at_the_floor(schedule):
    rates = [schedule.rate(step, 100) for step in range(1, 101)]
    assert max(rates) == rates[9] == 1.0
    assert math.isclose(rates[-1], 0.1) and rates[9:] == sorted(rates[9:], reverse=True)
    assert math.isclose(rates[4], 0.5)
