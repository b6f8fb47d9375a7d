"""Attention against its equation, its fused twin and torch's own modules."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.nn.attention import (
    Additive,
    Multiplicative,
    SelfAttention,
    Unprojected,
    attend,
    dot,
    fused_attend,
    scaled_dot,
)
from headway.nn.mask import Causal, Everything, Padding, Scene, Window
from headway.nn.view import SEE_ALL


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def test_deck_b_worked_numbers():
    """q₁·k₁ = 112 and q₁·k₂ = 96 at width 64: 14 and 12 after scaling, 0.88 and 0.12 after the softmax."""
    q = torch.zeros(1, 1, 1, 64, dtype=torch.float64)
    k = torch.zeros(1, 1, 2, 64, dtype=torch.float64)
    q[..., 0], k[..., 0, 0], k[..., 1, 0] = 1.0, 112.0, 96.0
    assert dot(q, k).flatten().tolist() == [112.0, 96.0]
    assert scaled_dot(q, k).flatten().tolist() == [14.0, 12.0]
    v = torch.eye(2, 64, dtype=torch.float64)[None, None]
    mixed, weights = attend(q, k, v)
    assert [round(w, 2) for w in weights.flatten().tolist()] == [0.88, 0.12]
    torch.testing.assert_close(mixed[0, 0, 0, :2], weights[0, 0, 0])


@pytest.mark.parametrize("mask", [Everything(), Causal(), Padding(), Causal() & Padding(), Window(1, 2)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_fused_equals_attend_with_gradients(mask, biased, dtype, tolerance):
    torch.manual_seed(0)
    lengths = torch.tensor([5, 2, 7])
    scene = Scene(7, 7, torch.device("cpu"), key_lengths_B=lengths)
    q, k, v = (draw(3, 2, 7, 5, dtype=dtype).requires_grad_() for _ in range(3))
    bias = draw(1, 2, 7, 7, dtype=dtype) if biased else None
    slow, weights = attend(q, k, v, mask.matrix(scene), bias)
    fast = fused_attend(q, k, v, mask.view(scene), bias)
    torch.testing.assert_close(fast, slow, rtol=0, atol=tolerance)
    direction = torch.randn_like(slow)
    for a, b in zip(
        torch.autograd.grad((fast * direction).sum(), (q, k, v)),
        torch.autograd.grad((slow * direction).sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=10 * tolerance)
    assert weights.masked_select(~mask.matrix(scene).expand_as(weights)).abs().sum() == 0


def test_a_query_that_sees_nothing_gives_zero_in_both():
    q, k, v = draw(1, 1, 2, 4), draw(1, 1, 3, 4), draw(1, 1, 3, 4)
    visible = torch.tensor([[[[True, False, True], [False, False, False]]]])
    mixed, weights = attend(q, k, v, visible)
    assert mixed[0, 0, 1].abs().sum() == 0 and weights[0, 0, 1].abs().sum() == 0
    torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v, attn_mask=visible), mixed)


def test_attention_dropout_is_unbiased_in_train_mode():
    torch.manual_seed(0)
    q, k, v = draw(1, 1, 2, 4), draw(1, 1, 3, 4), draw(1, 1, 3, 4)
    plain, _ = attend(q, k, v)
    mean = torch.stack([attend(q, k, v, dropout=0.3)[0] for _ in range(4000)]).mean(0)
    torch.testing.assert_close(mean, plain, rtol=0, atol=0.08)


def test_scores_in_the_slot_against_their_formulas():
    torch.manual_seed(0)
    q, k, v = draw(2, 1, 3, 4), draw(2, 1, 5, 6), draw(2, 1, 5, 4)
    general, additive = Multiplicative(4, 6).double(), Additive(4, 6, 8).double()
    for score in (general, additive):
        _, weights = attend(q, k, v, score=score)
        for b in range(2):
            for t in range(3):
                if score is general:
                    raw = [q[b, 0, t] @ general.weight.weight.T @ k[b, 0, s] for s in range(5)]
                else:
                    inner = [additive.query(q[b, 0, t]) + additive.key(k[b, 0, s]) for s in range(5)]
                    raw = [additive.v(torch.tanh(x))[0] for x in inner]
                torch.testing.assert_close(weights[b, 0, t], torch.stack(raw).softmax(0))


@pytest.mark.parametrize("training", [True, False])
def test_self_attention_equals_torch_multihead_attention(training):
    torch.manual_seed(0)
    mine = SelfAttention(24, 4).double().train(training)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64).train(training)
    theirs.in_proj_weight.data.copy_(mine.qkv.weight)
    theirs.in_proj_bias.data.copy_(mine.qkv.bias)
    theirs.out_proj.load_state_dict(mine.output.state_dict())
    x = draw(3, 5, 24)
    torch.testing.assert_close(mine(x, SEE_ALL), theirs(x, x, x, need_weights=False)[0], rtol=0, atol=1e-10)


def test_scaling_keeps_the_variance_of_scores_at_one():
    torch.manual_seed(0)
    for width in (16, 64, 256):
        q, k = draw(1, 1, 400, width), draw(1, 1, 400, width)
        assert math.isclose(dot(q, k).var().item(), width, rel_tol=0.1)
        assert math.isclose(scaled_dot(q, k).var().item(), 1.0, rel_tol=0.1)


@pytest.mark.parametrize("heads", [1, 4])
def test_unprojected_attention_is_torchs_of_the_vectors_themselves(heads):
    part, x = Unprojected(8, heads), draw(2, 5, 8)
    assert not list(part.parameters())
    split = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    wanted = F.scaled_dot_product_attention(split, split, split, is_causal=True).transpose(1, 2).flatten(2)
    found = part(x, Causal().view(Scene(5, 5, x.device)))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
