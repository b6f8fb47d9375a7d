"""A block's fast step against the block itself."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.nn import one_token, tap
from headway.nn.attention import CrossAttention, SelfAttention, dot
from headway.nn.block import Block
from headway.nn.cache import fresh_caches
from headway.nn.feed_forward import MLP, GatedMLP
from headway.nn.mask import Causal, Padding, Scene, Window
from headway.nn.norm import OneRMSNorm
from headway.nn.position import Learned, LinearBias, Position, Rotary
from headway.nn.residual import post_norm, pre_norm
from headway.nn.state import State

CPU, WIDTH = torch.device("cpu"), 24


def block_of(
    shared=None, feed_forward=None, around=pre_norm, bias=True, activation=F.gelu, norm=nn.LayerNorm, **attention
):
    torch.manual_seed(0)
    feed_forward = feed_forward or MLP(WIDTH, 40, activation, bias=bias)
    part = SelfAttention(WIDTH, 4, shared_heads=shared, bias=bias, **attention)
    block = Block(part, feed_forward, around(partial(norm, WIDTH), 0.1))
    with torch.no_grad():
        for weight in block.parameters():
            if weight.dim() == 1:
                weight.add_(0.2 * torch.randn_like(weight))
    return block.double().eval()


def walk(block, x_RTD, position=None, pad=False, steady=False, rule=None):
    """The first three tokens at once, then one by one, as a model does it."""
    rows = len(x_RTD)
    caches, clock = fresh_caches(1, rows, CPU, room=x_RTD.shape[1])
    state = State({"caches": caches}, clock)
    found = []
    for first, last in [(0, 3), *((t, t + 1) for t in range(3, x_RTD.shape[1]))]:
        clock = state.clock
        scene = Scene(last - first, clock.longest + last - first, CPU, clock.start)
        view = (rule or Causal()).view(scene).placed(position or Position())
        x = torch.cat([x_RTD, x_RTD[:1]]) if steady and first else x_RTD  # a row that only fills the room
        found.append(block(x[:, first:last], view, state["caches"][0])[:rows])
        clock.advance(last - first)
        if first == 0 and pad:
            state.advance(0, torch.tensor([3, 1, 2]))
        if first == 0 and steady:
            room = state.steady(5, 1, x_RTD.shape[1])
            room.insert(state, torch.arange(3))
            state = room.first(4, x_RTD.shape[1] - 1)
    return torch.cat(found, 1)


@pytest.mark.parametrize("case", ["even", "padded", "steady"])
@pytest.mark.parametrize("position", [None, Learned(WIDTH, 9), Rotary(WIDTH // 4), LinearBias(4)], ids=type)
@pytest.mark.parametrize("shared", [None, 2])
def test_a_step_is_what_the_block_does(case, position, shared, monkeypatch):
    block, x_RTD = block_of(shared), torch.randn(3, 8, WIDTH, dtype=torch.float64)
    how = {"pad": case == "padded", "steady": case == "steady"}
    taken = []
    step = one_token.step
    monkeypatch.setattr(one_token, "step", lambda *given: taken.append(1) or step(*given))
    with torch.no_grad():
        found = walk(block, x_RTD, position, **how)
    assert len(taken) == 5
    with torch.enable_grad(), monkeypatch.context() as patch:
        patch.setattr(one_token, "takes", lambda *given: False)
        with torch.no_grad():
            expected = walk(block, x_RTD, position, **how)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", [F.relu, partial(F.gelu, approximate="tanh")])
@torch.no_grad()
def test_other_activations_and_no_biases_are_the_blocks_too(activation, monkeypatch):
    block, x_RTD = block_of(bias=False, activation=activation), torch.randn(2, 6, WIDTH, dtype=torch.float64)
    found = walk(block, x_RTD)
    monkeypatch.setattr(one_token, "takes", lambda *given: False)
    torch.testing.assert_close(found, walk(block, x_RTD), rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", [{"score": dot}, {"head_width": 10}], ids=["plain dot", "wide heads"])
@torch.no_grad()
def test_other_scores_and_widths_of_heads_are_the_blocks_too(attention, monkeypatch):
    block, x_RTD = block_of(**attention), torch.randn(2, 6, WIDTH, dtype=torch.float64)
    found = walk(block, x_RTD)
    monkeypatch.setattr(one_token, "takes", lambda *given: False)
    torch.testing.assert_close(found, walk(block, x_RTD), rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", [nn.RMSNorm, OneRMSNorm])
@pytest.mark.parametrize("pad", [False, True])
@torch.no_grad()
def test_llamas_block_is_taken_too(norm, pad, monkeypatch):
    """With its norm, gate, turned and shared keys, beyond the end of the table of turns."""
    block = block_of(2, GatedMLP(WIDTH, 40, F.silu), bias=False, norm=norm)
    x_RTD = torch.randn(3, 9, WIDTH, dtype=torch.float64)
    taken, step = [], one_token.step
    monkeypatch.setattr(one_token, "step", lambda *given: taken.append(1) or step(*given))
    found = walk(block, x_RTD, Rotary(WIDTH // 4, length=9 if pad else 6), pad)
    assert len(taken) == 6
    monkeypatch.setattr(one_token, "takes", lambda *given: False)
    torch.testing.assert_close(found, walk(block, x_RTD, Rotary(WIDTH // 4), pad), rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", [None, Rotary(WIDTH // 4)], ids=type)
@torch.no_grad()
def test_a_step_sees_no_further_than_its_window(position, monkeypatch):
    block, x_RTD = block_of(), torch.randn(3, 9, WIDTH, dtype=torch.float64)
    rule = Causal() & Window(3)
    found = walk(block, x_RTD, position, rule=rule)
    assert not torch.allclose(found, walk(block, x_RTD, position))
    monkeypatch.setattr(one_token, "takes", lambda *given: False)
    torch.testing.assert_close(found, walk(block, x_RTD, position, rule=rule), rtol=0, atol=1e-12)


def test_it_is_taken_for_one_token_when_nobody_looks_or_learns():
    block, x_RTD = block_of(), torch.randn(2, 1, WIDTH, dtype=torch.float64)
    assert not one_token.takes(block, x_RTD)  # a gradient may be asked for
    with torch.no_grad():
        assert one_token.takes(block, x_RTD)
        assert not one_token.takes(block, x_RTD.expand(-1, 2, -1))
        with tap.record(block):
            assert not one_token.takes(block, x_RTD)
        assert not one_token.takes(block.train(), x_RTD)


@torch.no_grad()
def test_blocks_of_other_parts_are_left_alone():
    x_RTD = torch.randn(2, 1, WIDTH, dtype=torch.float64)
    assert not one_token.takes(block_of(around=post_norm), x_RTD)
    assert not one_token.takes(block_of(feed_forward=nn.Linear(WIDTH, WIDTH)), x_RTD)
    assert not one_token.takes(block_of(norm=nn.Identity), x_RTD)
    changed = block_of()
    changed.attention.qkv = nn.Sequential(changed.attention.qkv)
    assert not one_token.takes(changed, x_RTD)


@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_a_step_with_a_source_is_what_the_block_does(beam, monkeypatch):
    """Sources of different lengths, each with the rows of its beam."""
    torch.manual_seed(1)
    parts = SelfAttention(WIDTH, 4), MLP(WIDTH, 40, F.gelu), pre_norm(partial(nn.LayerNorm, WIDTH), 0.1)
    block = Block(*parts, cross=CrossAttention(WIDTH, 4)).double().eval()
    memory = block.cross.remember(torch.randn(2, 7, WIDTH, dtype=torch.float64))
    source_view = Padding().view(Scene(1, 7, CPU, key_lengths_B=torch.tensor([7, 4])))
    x_RTD = torch.randn(2 * beam, 6, WIDTH, dtype=torch.float64)

    def stepped():
        [cache], clock = fresh_caches(1, len(x_RTD), CPU, room=6)
        found = []
        for t in range(6):
            view = Causal().view(Scene(1, t + 1, CPU, t)).placed(Position())
            found.append(block(x_RTD[:, t : t + 1], view, cache, memory, source_view))
            clock.advance(1)
        return torch.cat(found, 1)

    found = stepped()
    monkeypatch.setattr(one_token, "takes", lambda *given: False)
    torch.testing.assert_close(found, stepped(), rtol=0, atol=1e-12)
