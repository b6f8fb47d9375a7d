"""A policy over its own past: read step by step or at once, it is the same; what is far behind is forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headway.errors import InputError
from headway.models.policy_transformer import PolicyTransformer, PolicyTransformerConfig

CONFIG = PolicyTransformerConfig(layers=2, width=16, heads=2, past=3, max_length=4)


@pytest.fixture
def model() -> PolicyTransformer:
    torch.manual_seed(0)
    return PolicyTransformer(CONFIG, 5, 2).double().eval()


def inputs(states_BTS: torch.Tensor, memory_BM: Any = None) -> Any:
    return SimpleNamespace(states_BTS=states_BTS, memory_BM=memory_BM)


def states(rows: int = 3, steps: int = 20) -> torch.Tensor:
    return torch.randn(rows, steps, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_step_by_step_and_at_once_are_the_same(model: PolicyTransformer) -> None:
    given = states()
    whole = model.encode(inputs(given)).x_BTD
    memory = model.start(3, given.device)
    assert memory.shape == (3, model.memory)
    for step in range(20):
        encoded, memory = model.follow(inputs(given[:, step : step + 1]), memory)
        torch.testing.assert_close(encoded.x_BTD[:, 0], whole[:, step], rtol=0, atol=1e-6)


def test_a_part_of_an_episode_with_what_was_remembered_before_it(model: PolicyTransformer) -> None:
    given = states()
    whole, memory = model.encode(inputs(given)).x_BTD, model.start(3, given.device)
    for begin, end in ((0, 7), (7, 8), (8, 20)):
        part = model.encode(inputs(given[:, begin:end], memory)).x_BTD
        torch.testing.assert_close(part, whole[:, begin:end], rtol=0, atol=1e-6)
        memory = model.follow(inputs(given[:, begin:end]), memory)[1]


def test_it_sees_as_far_back_as_its_layers_reach(model: PolicyTransformer) -> None:
    given, reach = states(), CONFIG.layers * CONFIG.past
    for back in (reach, reach + 1):
        other = given.clone()
        other[:, 15 - back] += 1
        away = (model.encode(inputs(other)).x_BTD[:, 15] - model.encode(inputs(given)).x_BTD[:, 15]).abs().amax(-1)
        assert (away.min() > 1e-9) if back == reach else (away.max() == 0)
    late = given.clone()
    late[:, 16:] += 1
    torch.testing.assert_close(model.encode(inputs(late)).x_BTD[:, :16], model.encode(inputs(given)).x_BTD[:, :16])


def test_a_past_that_sees_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"model\.past"):
        PolicyTransformerConfig(past=0)


def test_a_long_episode_while_judged_does_not_disturb_training(model: PolicyTransformer) -> None:
    with torch.inference_mode():
        model.encode(inputs(states(1, 100)))
    model.encode(inputs(states(1, 8))).x_BTD.sum().backward()
    assert model.embed.weight.grad is not None
