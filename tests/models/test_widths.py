"""Rates that carry over from one width to another (μP)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from headway.errors import InputError
from headway.models import build, parts
from headway.models.decoder import DecoderConfig
from headway.models.gpt import GPTConfig
from headway.models.llama import LlamaConfig, OneRmsNorm
from headway.models.widths import Carried, SameRate
from headway.train.ladder import rung_of
from headway.train.optimiser import Adam, Masters
from headway.train.selection import rates_of

VOCABULARY = 40
SMALL = {"layers": 2, "max_length": 16}
CONFIGS = [
    GPTConfig(**SMALL, width=32, heads=2),
    LlamaConfig(**SMALL, width=32, inner=64, heads=2),
    DecoderConfig(**SMALL, width=32, heads=2),
]
NAMES = [config.name for config in CONFIGS]
ENGINE = SimpleNamespace(rates={}, layer_decay=1.0)


def made(config, **changes):
    torch.manual_seed(0)
    return build(config.name, type(config)(**(vars(config) | changes)), (VOCABULARY,)).double()


def text(seed=1):
    return torch.randint(VOCABULARY, (4, 12), generator=torch.Generator().manual_seed(seed))


def learn(model, rates, steps, rate, logits=lambda logits: logits, epsilon=1e-12):
    """Some steps of Adam on one text; what the model then says."""
    masters = Masters(model.named_parameters(), Adam(epsilon=epsilon), rates=rates)
    masters.set_rate(rate)
    for _ in range(steps):
        masters.zero()
        said = logits(model(text())[0])
        F.cross_entropy(said[:, :-1].flatten(0, 1), text()[:, 1:].flatten()).backward()
        masters.step()
    return logits(model(text())[0]).detach()


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_at_its_own_width_nothing_changes(config):
    plain, carried = made(config), made(config, widths=Carried(32))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), carried.parameters(), strict=True))
    assert set(carried.rates().values()) == {1.0} and plain.rates() == {}


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_it_is_the_model_with_scaled_logits(config):
    """Yang et al. 2021, table 8: a factor of the logits, √(base/D) of the deviation, base/D of the rate."""
    ratio = 8 / 32
    carried = made(config, widths=Carried(8))
    scaled = made(config, widths=Carried(8))
    with torch.no_grad():
        scaled.decoder.final.weight.fill_(1.0)
    rates = carried.rates()
    assert "decoder.final.weight" in rates and not any(name.startswith(("embed", "output")) for name in rates)
    own = {name: factor for name, factor in rates.items() if not name.startswith("decoder.final")}
    assert {name for name, weight in carried.decoder.layers.named_parameters(prefix="decoder.layers")
            if weight.dim() == 2} == set(own)  # fmt: skip
    assert set(own.values()) == {ratio}
    mine = learn(carried, rates, 6, 0.01)
    theirs = learn(scaled, own, 6, 0.01, lambda logits: logits * ratio)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


def test_the_start_has_the_deviation_of_its_width():
    plain, carried = made(CONFIGS[0]), made(CONFIGS[0], widths=Carried(8))
    for (name, before), after in zip(plain.named_parameters(), carried.parameters(), strict=True):
        inside, final = name.startswith("decoder.layers") and before.dim() == 2, name == "decoder.final.weight"
        torch.testing.assert_close(after, before * (0.5 if inside else 0.25 if final else 1.0))


def test_steps_change_what_models_of_all_widths_say_alike():
    """The check of coordinates of Yang et al. 2021 (D.1): by how much logits move in a few steps."""

    def moved(width, **changes):
        model = made(GPTConfig(**SMALL, width=width, heads=width // 16, **changes))
        before = model(text())[0].detach()
        return (learn(model, model.rates(), 4, 0.004, epsilon=1e-9) - before).abs().mean().item()

    same, carried = (moved(256, **how) / moved(32, **how) for how in ({}, {"widths": Carried(32)}))
    assert 0.5 < carried < 1.5 < 2.5 < same


def test_the_runs_own_factors_count_too():
    model = made(CONFIGS[0], widths=Carried(8))
    engine = SimpleNamespace(rates={"decoder.layers": 2.0}, layer_decay=1.0)
    found = rates_of(model, engine, model.rates())
    assert found["decoder.layers.0.attention.qkv.weight"] == 0.5 and found["decoder.layers.0.attention.qkv.bias"] == 2.0
    assert found["decoder.final.weight"] == 0.25 and found["embed.table.weight"] == 1.0
    assert rates_of(model, ENGINE)["decoder.final.weight"] == 1.0


def test_a_ladder_keeps_the_rate():
    def peak(widths):
        model = GPTConfig(**SMALL, width=64, heads=2, widths=widths)
        task = SimpleNamespace(tokens_a_step=lambda run: 1024)
        run = SimpleNamespace(model=model, task=task, schedule=SimpleNamespace(peak=0.01))
        return rung_of(run, 12 * 8 * 256**2, 1e13).peak

    assert peak(SameRate()) == 0.005 and peak(Carried(64)) == 0.01


def test_what_it_refuses():
    with pytest.raises(InputError, match=r"model.widths.base must be at least 1, not 0"):
        Carried(0)
    with pytest.raises(InputError, match="needs a norm with a gain behind the last layer"):
        made(CONFIGS[0], norm=parts.PostNorm(), widths=Carried(8))
    with pytest.raises(InputError, match="needs a norm with a gain"):
        made(CONFIGS[1], norm=OneRmsNorm(), widths=Carried(8))
