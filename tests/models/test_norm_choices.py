"""Norms that a config may choose, in GPT and Transformer: against the formula written out, cached and uncached."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.norm import BatchNorm

CONFIG = GPTConfig(2, 24, heads=3, feed_forward=parts.Relu(), position=parts.NoPosition(), max_length=16)
CHOICES = [
    parts.PostNorm(), parts.PreNorm(), parts.PostRmsNorm(), parts.PreRmsNorm(), parts.BatchNorm(), parts.NormOnly(),
    parts.ResidualOnly(), parts.NoNorm(),
]  # fmt: skip
each_choice = pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)


def model_of(choice, seed=0):
    torch.manual_seed(seed)
    model = GPT(replace(CONFIG, norm=choice), 40).double().eval()
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if weight.is_floating_point() and "table" not in name:
                weight.add_(torch.rand_like(weight) * 0.5)
    return model


def layer(x, norm):
    return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, 1e-5)


def rms(x, norm):
    theirs = LlamaRMSNorm(x.shape[-1], 1e-5).double()
    theirs.weight = norm.weight
    return theirs(x)


def batch(x, norm):
    return F.batch_norm(x.mT, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=1e-5).mT


NORMS = {"post": layer, "pre": layer, "post-rms": rms, "pre-rms": rms, "batch": batch, "norm-only": layer}


def around(name, part, x, f):
    """One sublayer, as the papers write it."""
    if name.startswith("pre"):
        return x + f(NORMS[name](x, part.before))
    if name == "norm-only":
        return NORMS[name](f(x), part.norm)
    y = f(x) if name == "none" else x + f(x)
    return NORMS[name](y, part.outside) if name in NORMS else y


def written_out(model, ids, name):
    x = model.embed.table(ids)
    for block in model.decoder.layers:

        def attention(x, part=block.attention):
            q, k, v = (y.unflatten(-1, (3, -1)).transpose(1, 2) for y in part.qkv(x).chunk(3, -1))
            return part.output(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

        x = around(name, block.around_attention, x, attention)
        feed = block.feed_forward
        x = around(name, block.around_feed_forward, x, lambda x, feed=feed: feed.contract(F.relu(feed.expand(x))))
    x = NORMS[name](x, model.decoder.final) if name.startswith("pre") else x
    return (x @ model.output.weight.T)[..., :40]


@each_choice
def test_every_choice_is_its_formula(choice):
    model, ids = model_of(choice), torch.randint(4, 40, (3, 9))
    torch.testing.assert_close(model(ids)[0], written_out(model, ids, choice.name), rtol=0, atol=1e-6)


@each_choice
def test_cached_equals_uncached_and_padding_changes_nothing(choice):
    model, ids = model_of(choice), torch.randint(4, 40, (2, 9))
    whole = model(ids)[0]
    state = model.start(None, 2, ids.device, 12)
    with torch.no_grad():
        steps = [model(ids[:, :4], state)[0], *(model(ids[:, t : t + 1], state)[0] for t in range(4, 9))]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-6)
    longer = F.pad(ids, (0, 3), value=7)
    torch.testing.assert_close(model(longer)[0][:, :9], whole, rtol=0, atol=1e-6)


@each_choice
def test_a_translator_takes_it_and_learns(choice):
    torch.manual_seed(0)
    config = TransformerConfig(2, 2, 16, 32, 2, dropout=0.0, norm=choice)
    model = Transformer(config, 20, 20)
    source, target = torch.randint(4, 20, (3, 5)), torch.randint(4, 20, (3, 4))
    model(source, target, torch.tensor([5, 2, 3])).square().mean().backward()
    grads = [weight.grad for name, weight in model.named_parameters()]
    assert all(grad is not None and grad.isfinite().all() for grad in grads)
    assert sum(grad.abs().sum() for grad in grads) > 0


def test_batch_norm_looks_ahead_while_it_trains_and_not_in_evaluation():
    model, ids = model_of(parts.BatchNorm()), torch.randint(4, 40, (3, 9))
    other = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % 40], 1)
    torch.testing.assert_close(model(ids)[0][:, :-1], model(other)[0][:, :-1], rtol=0, atol=1e-9)
    model.train()
    assert (model(ids)[0] - model(other)[0])[:, :-1].abs().max() > 1e-4
    assert any(isinstance(part, BatchNorm) for part in model.modules())
