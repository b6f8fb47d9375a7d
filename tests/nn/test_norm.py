"""Batch norm against torch's, over the tokens that are not padding."""

import pytest
import torch
from torch import nn

from headway.models.parts import BatchNorm as Choice
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.norm import BatchNorm

LENGTHS = torch.tensor([5, 1, 3])


def pair(dtype=torch.float64):
    torch.manual_seed(0)
    mine, theirs = BatchNorm(6, 1e-4, 0.2).to(dtype), nn.BatchNorm1d(6, 1e-4, 0.2).to(dtype)
    with torch.no_grad():
        for weight, same in zip(mine.parameters(), theirs.parameters(), strict=True):
            same.copy_(weight.normal_())
    return mine, theirs


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_batch_norm_is_torchs_over_all_tokens_but_padding(lengths):
    mine, theirs = pair()
    own = torch.ones(3, 5, dtype=torch.bool) if lengths is None else torch.arange(5) < lengths[:, None]
    for _ in range(3):
        x = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
        found, wanted = mine(x, lengths)[own], theirs(x[own])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
        direction = torch.randn_like(wanted)
        for a, b in zip(
            torch.autograd.grad((found * direction).sum(), (x, *mine.parameters())),
            torch.autograd.grad((wanted * direction).sum(), (x, *theirs.parameters())),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert {"running_mean", "running_var"} <= mine.state_dict().keys()
    torch.testing.assert_close(mine.running_mean, theirs.running_mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(mine.running_var, theirs.running_var, rtol=0, atol=1e-12)
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(mine.eval()(x), theirs.eval()(x.mT).mT, rtol=0, atol=1e-12)


def test_one_token_alone_and_bfloat16_stay_finite():
    mine, _ = pair(torch.bfloat16)
    found = mine(torch.randn(1, 1, 6, dtype=torch.bfloat16))
    assert found.dtype == torch.bfloat16 and found.isfinite().all() and mine.running_var.isfinite().all()


def test_a_model_with_batch_norm_learns_nothing_from_padding():
    torch.manual_seed(0)
    config = TransformerConfig(1, 1, 16, 32, 2, dropout=0.0, norm=Choice())
    model = Transformer(config, 20, 20).train()
    ids, target = torch.randint(4, 20, (3, 5)), torch.randint(4, 20, (3, 4))
    other = torch.where(torch.arange(5) < LENGTHS[:, None], ids, 7)
    torch.testing.assert_close(model(ids, target, LENGTHS), model(other, target, LENGTHS))
    names = [name for name, _ in model.named_buffers() if name in model.state_dict()]
    assert len(names) == 10 and all("running" in name for name in names)
