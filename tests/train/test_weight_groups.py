"""Frozen weights and rates by group."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headway.errors import InputError
from headway.models import build
from headway.models.bert import BertConfig
from headway.models.heads import Classes
from headway.models.transformer import TransformerConfig
from headway.train.optimiser import Adam, AdamW, Masters, Sgd
from headway.train.run import Engine
from headway.train.selection import depths, factors, freeze, rates_of


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))


def test_a_rate_is_multiplied_for_the_weights_that_are_meant() -> None:
    names = ["embed.table.weight", "encoder.layers.0.bias", "encoder.layers.10.bias", "encoder.layers.1.bias"]
    found = factors(names, {"encoder": 0.5, "encoder.layers.1": 0.1, "embed.*": 2.0})
    assert list(found.values()) == [2.0, 0.5, 0.5, 0.1]


def test_groups_take_steps_of_their_own_size() -> None:
    model, twin = network(), network()
    names = [name for name, _ in model.named_parameters()]
    masters = Masters(model.named_parameters(), Sgd(), rates=factors(names, {"0": 0.1, "2.bias": 3.0}))
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
        factors(["0.weight"], {"00": 0.5})
    with pytest.raises(InputError, match="must be above 0, not 0"):
        factors(["0.weight"], {"0": 0.0})
    model = network()
    freeze(model, ["0", "1", "2"])
    with pytest.raises(InputError, match="every weight of the model is frozen"):
        Masters(model.named_parameters(), Adam())


def encoder() -> nn.Module:
    model: nn.Module = build("bert", BertConfig(3, 8, 16, 2, max_length=8), (9,), Classes(("no", "yes")))
    return model


def test_a_rate_falls_from_layer_to_layer_down_to_the_embedding() -> None:
    """(Clark et al. 2020, ELECTRA): the head has the whole rate, the embedding the lowest."""
    found = rates_of(encoder(), Engine(layer_decay=0.5, rates={"head": 4.0, "encoder.layers.1": 3.0}))
    assert {name.split(".attention")[0]: found[name] for name in found if "qkv.weight" in name} == {
        "encoder.encoder.layers.0": 0.125, "encoder.encoder.layers.1": 0.75, "encoder.encoder.layers.2": 0.5,
    }  # fmt: skip
    assert found["encoder.embed.table.weight"] == 0.0625
    assert {factor for name, factor in found.items() if name.startswith("head.")} == {4.0}


@pytest.mark.parametrize(("last", "layers"), [(0, set()), (2, {1, 2}), (3, {0, 1, 2})])
def test_only_the_last_layers_and_the_head_are_trained(last: int, layers: set[int]) -> None:
    model = encoder()
    freeze(model, (), last)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    inside = tuple(f"encoder.encoder.layers.{layer}." for layer in layers)
    assert trained == {name for name, _ in model.named_parameters() if name.startswith(("head.", *inside))}


def test_each_stack_of_an_encoder_decoder_has_its_own_last_layer() -> None:
    depth_of = depths(build("transformer", TransformerConfig(2, 3, 8, 16, 2), (9, 9)), "a setting")
    found = {name.split(".layers.")[0]: depth for name, depth in depth_of.items() if ".layers." in name}
    firsts = {name.split(".layers.")[0]: depth for name, depth in depth_of.items() if ".layers.0." in name}
    assert found == {"encoder": 1, "decoder": 1} and firsts == {"encoder": 2, "decoder": 3}
    assert depth_of["embed_source.table.weight"] == 4


def test_a_model_without_layers_has_no_last_ones() -> None:
    with pytest.raises(InputError, match=r"engine\.last_layers: the model has no stack of layers"):
        freeze(network(), (), 1)


def test_more_last_layers_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match=r"engine\.last_layers=4: the model has 3 layers; leave it out"):
        freeze(encoder(), (), 4)
