"""Rates that hold for models of all widths (μP)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.card import Card, Loaded
from headway.errors import InputError
from headway.models import build, parts
from headway.models import decoder_parts as own
from headway.models.decoder import DecoderConfig
from headway.models.gpt import GPTConfig
from headway.models.llama import LlamaConfig, OneRmsNorm
from headway.models.recurrent import RecurrentConfig
from headway.train.ladder import rung_of
from headway.train.optimiser import Adam, AdamW, Masters, Sgd
from headway.train.parametrisation import MuP, Standard
from headway.train.selection import decays_of, rates_of

VOCABULARY = 40
SMALL: dict[str, Any] = {"layers": 2, "max_length": 16}
CONFIGS = [
    GPTConfig(**SMALL, width=32, heads=2),
    LlamaConfig(**SMALL, width=32, inner=64, heads=2),
    DecoderConfig(**SMALL, width=32, heads=2),
]
NAMES = [config.name for config in CONFIGS]


def engine(follows, rates=(), layer_decay=1.0):
    return SimpleNamespace(parametrisation=follows, rates=dict(rates), layer_decay=layer_decay)


def made(config, follows=None, **changes):
    """Checked and begun as a training does."""
    torch.manual_seed(0)
    model = build(config.name, replace(config, **changes), (VOCABULARY,)).double()
    if follows is not None:
        follows.check(model, SimpleNamespace(optimiser=AdamW()), None)
        follows.begin(model)
    return model


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
    plain, scaled = made(config), made(config, MuP(32))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), scaled.parameters(), strict=True))
    assert set(MuP(32).rates(scaled).values()) == {1.0} and Standard().rates(plain) == {}


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_it_is_the_model_with_scaled_logits(config):
    """Yang et al. 2021, table 8: a factor of the logits, √(base/D) of the deviation, base/D of the rate."""
    ratio = 8 / 32
    mine, theirs = made(config, MuP(8)), made(config, MuP(8))
    with torch.no_grad():
        theirs.decoder.final.weight.fill_(1.0)
    rates = MuP(8).rates(mine)
    assert "decoder.final.weight" in rates and not any(name.startswith(("embed", "output")) for name in rates)
    matrices = {name: factor for name, factor in rates.items() if name != "decoder.final.weight"}
    every = mine.decoder.layers.named_parameters(prefix="decoder.layers")
    assert {name for name, weight in every if weight.dim() == 2} == set(matrices)
    assert set(matrices.values()) == {ratio}
    # The bias of the last norm is not behind the factor in one of the two.
    slow = {"decoder.final.bias": ratio} if getattr(mine.decoder.final, "bias", None) is not None else {}
    given = learn(mine, rates | slow, 6, 0.01)
    torch.testing.assert_close(
        given, learn(theirs, matrices, 6, 0.01, lambda logits: logits * ratio), rtol=0, atol=1e-6
    )


def test_the_start_has_the_deviation_of_its_width():
    plain, scaled = made(CONFIGS[0]), made(CONFIGS[0], MuP(8))
    for (name, before), after in zip(plain.named_parameters(), scaled.parameters(), strict=True):
        inside, final = name.startswith("decoder.layers") and before.dim() == 2, name == "decoder.final.weight"
        torch.testing.assert_close(after, before * (0.5 if inside else 0.25 if final else 1.0))


def test_steps_change_what_models_of_all_widths_say_alike():
    """The check of coordinates of Yang et al. 2021 (D.1): by how much logits move in a few steps."""

    def moved(width, follows):
        model = made(GPTConfig(**SMALL, width=width, heads=width // 16), follows)
        before = model(text())[0].detach()
        return (learn(model, follows.rates(model), 4, 0.004, epsilon=1e-9) - before).abs().mean().item()

    same, scaled = (moved(256, follows) / moved(32, follows) for follows in (Standard(), MuP(32)))
    assert 0.5 < scaled < 1.5 < 2.5 < same


def test_decay_takes_away_as_much_at_every_width():
    """With a gradient of zero what is left of a weight is 1 − rate · decay, whatever its own rate."""
    model = made(CONFIGS[0], MuP(8))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    own = engine(MuP(8))
    masters = Masters(
        model.named_parameters(), AdamW(decay=0.1), rates=rates_of(model, own), decays=decays_of(model, own)
    )
    masters.set_rate(0.01)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    masters.step()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.detach(), before[name] * (1 if weight.dim() < 2 else 1 - 0.01 * 0.1))


def test_the_runs_own_factors_count_too():
    model = made(CONFIGS[0], MuP(8))
    found = rates_of(model, engine(MuP(8), {"decoder.layers": 2.0}))
    assert found["decoder.layers.0.attention.qkv.weight"] == 0.5 and found["decoder.layers.0.attention.qkv.bias"] == 2.0
    assert found["decoder.final.weight"] == 0.25 and found["embed.table.weight"] == 1.0
    assert (
        rates_of(model, engine(Standard()))["decoder.final.weight"] == 1.0
        and decays_of(model, engine(Standard())) == {}
    )


def test_a_ladder_keeps_the_rate_and_the_width_of_heads():
    def rung(follows, **changes):
        model = replace(LlamaConfig(**SMALL, width=64, inner=160, heads=2), **changes)
        task = SimpleNamespace(tokens_a_step=lambda run: 1024)
        schedule, own = SimpleNamespace(peak=0.01), SimpleNamespace(parametrisation=follows)
        return rung_of(SimpleNamespace(model=model, task=task, schedule=schedule, engine=own), 12 * 8 * 256**2, 1e13)

    assert rung(Standard()).peak == 0.005 and rung(Standard()).more == ()
    scaled = rung(MuP())
    assert scaled.peak == 0.01 and scaled.more == ("engine.parametrisation.base=64",) and rung(MuP(16)).more == ()
    assert scaled.shape.width == 32 * scaled.shape.heads == 256
    assert scaled.shape.settings["model.inner"] == 640 and "model.inner" not in rung(MuP(), inner=0).shape.settings


@pytest.mark.parametrize(
    ("config", "follows", "changes", "told"),
    [
        (CONFIGS[0], MuP(), {}, "base is missing: the width for which the rate was chosen"),
        (CONFIGS[0], MuP(8), {"norm": parts.PostNorm()}, "needs a model with a norm and its gain"),
        (CONFIGS[1], MuP(8), {"norm": OneRmsNorm()}, "needs a model with a norm and its gain"),
        (CONFIGS[1], MuP(8), {"scaled": True}, "multiplied by √D"),
        (CONFIGS[2], MuP(8), {"feed_forward": own.Experts(2, 1)}, "how the weight .*EFD' grows"),
        (RecurrentConfig(width=8), MuP(8), {}, "only the families gpt, llama and decoder"),
    ],
)  # fmt: skip
def test_models_that_it_refuses(config, follows, changes, told):
    with pytest.raises(InputError, match=told):
        made(config, follows, **changes)


def test_what_else_it_refuses():
    with pytest.raises(InputError, match=r"engine.parametrisation.base is a width, at least 1, not -1"):
        MuP(-1)
    model = made(CONFIGS[0])
    with pytest.raises(InputError, match="is for adam and adamw, not for sgd"):
        MuP(8).check(model, SimpleNamespace(optimiser=Sgd()), None)

    def earlier(run):
        return Loaded(nn.Identity(), Card("gpt", CONFIGS[0], "language", {}, run=run), {})

    with pytest.raises(InputError, match="the model that it starts from was trained as standard"):
        MuP(8).check(model, SimpleNamespace(optimiser=Adam()), earlier({}))
    MuP(8).check(model, SimpleNamespace(optimiser=Adam()), earlier({"engine": {"parametrisation": {"name": "mup"}}}))
