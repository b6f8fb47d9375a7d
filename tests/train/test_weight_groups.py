"""Frozen weights and rates by group."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headway.errors import InputError
from headway.train.optimiser import Adam, AdamW, Masters, Sgd, factors, freeze


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))


def test_a_rate_is_multiplied_for_the_weights_that_are_meant() -> None:
    names = ["embed.table.weight", "encoder.layers.0.bias", "encoder.layers.10.bias", "encoder.layers.1.bias"]
    found = factors(names, {"encoder": 0.5, "encoder.layers.1": 0.1, "embed.*": 2.0})
    assert list(found.values()) == [2.0, 0.5, 0.5, 0.1]


def test_groups_take_steps_of_their_own_size() -> None:
    model, twin = network(), network()
    masters = Masters(model.named_parameters(), Sgd(), rates={"0": 0.1, "2.bias": 3.0})
    factor = {"0.weight": 0.1, "0.bias": 0.1, "2.bias": 3.0}
    loss = model(torch.ones(4, 3)).square().sum()
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    masters.set_rate(0.01)
    masters.step()
    for (name, weight), before in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(weight, before - 0.01 * factor.get(name, 1.0) * gradients[name])


def test_frozen_weights_stay_and_are_kept_with_the_others() -> None:
    model, twin = network(), network()
    freeze(model, ["0", "[1].bias"])
    masters = Masters(model.named_parameters(), AdamW())
    model(torch.ones(4, 3)).square().sum().backward()
    masters.set_rate(0.1)
    masters.step()
    kept = masters.named()
    changed = {
        n for (n, a), b in zip(model.named_parameters(), twin.parameters(), strict=True) if not torch.equal(a, b)
    }
    assert changed == {"1.weight", "2.weight", "2.bias"}
    assert {name: bool(torch.equal(kept[name], weight)) for name, weight in model.named_parameters()} == dict.fromkeys(
        dict(model.named_parameters()), True
    )


def test_what_means_no_weight_is_refused() -> None:
    with pytest.raises(InputError, match=r"engine\.frozen: no weight's name begins with 'encoder'"):
        freeze(network(), ["encoder"])
    with pytest.raises(InputError, match=r"engine\.rates: no weight's name begins with '00'"):
        Masters(network().named_parameters(), Adam(), rates={"00": 0.5})
    with pytest.raises(InputError, match="must be above 0, not 0"):
        Masters(network().named_parameters(), Adam(), rates={"0": 0.0})
    model = network()
    freeze(model, ["0", "1", "2"])
    with pytest.raises(InputError, match="every weight of the model is frozen"):
        Masters(model.named_parameters(), Adam())
