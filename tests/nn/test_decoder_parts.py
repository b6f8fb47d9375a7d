"""Parts of the decoders of other people, each against its formula written another way."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.nn.attention import SelfAttention, attend, fused_attend
from headway.nn.block import ParallelBlock, draw_normal
from headway.nn.experts import Experts, SharedExperts
from headway.nn.feed_forward import MLP
from headway.nn.key_bias import KeyBias
from headway.nn.mask import Causal, Scene
from headway.nn.position import LearnedBehind, LinearBias, PartialRotary
from headway.nn.query_key_norm import HeadsLayerNorm, NormedSelfAttention, PerHead
from headway.nn.score import Capped, ScaledBy
from headway.nn.state_space import SelectiveStates

CPU = torch.device("cpu")


def heads(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape) + shape[-2]))


@pytest.mark.parametrize("groups", [4, 2, 1])
def test_a_score_with_its_own_scale_has_the_fused_kernel(groups: int) -> None:
    q, k, v = heads(2, 4, 7, 6), heads(2, groups, 7, 6), heads(2, groups, 7, 6)
    view = Causal().view(Scene(7, 7, CPU))
    expected, _ = attend(q, k, v, view.matrix(7, 7, CPU), score=ScaledBy(0.3))
    torch.testing.assert_close(fused_attend(q, k, v, view, score=ScaledBy(0.3)), expected, rtol=0, atol=1e-12)


def test_a_capped_score_stays_below_its_cap_and_is_never_fused() -> None:
    q, k = heads(2, 4, 7, 6) * 9, heads(2, 4, 5, 6) * 9
    scores = Capped(0.5, 3.0)(q, k)
    assert scores.abs().max() <= 3.0
    torch.testing.assert_close(scores, 3 * torch.tanh(q @ k.mT / 6), rtol=0, atol=1e-12)
    attention = SelfAttention(8, 2, score=Capped(0.5, 0.1)).eval()
    x, view = torch.randn(1, 5, 8), Causal().view(Scene(5, 5, CPU))
    q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in attention.qkv(x).chunk(3, -1))
    expected, _ = attend(q, k, v, view.matrix(5, 5, CPU), score=Capped(0.5, 0.1))
    torch.testing.assert_close(attention(x, view), attention.output(expected.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("turned", [2, 4, 8])
def test_scores_of_partly_turned_heads_are_those_of_complex_numbers(neighbours: bool, turned: int) -> None:
    """Turning a pair is the product with e^(ipθ); what is not turned is as it was."""
    part = PartialRotary(turned, 100.0, 16, neighbours=neighbours).double()
    q, k = heads(1, 2, 5, 8), heads(1, 2, 6, 8)[:, :, :5]
    found = torch.matmul(*(lambda a, b: (a, b.mT))(*part.rotate(q, k, 3)))

    def pairs(x: torch.Tensor) -> torch.Tensor:
        x = x[..., :turned]
        two = x.unflatten(-1, (-1, 2)) if neighbours else torch.stack(x.chunk(2, -1), -1)
        return torch.view_as_complex(two.contiguous())

    theta = 100.0 ** (-torch.arange(0, turned, 2, dtype=torch.float64) / turned)
    turn = torch.polar(torch.ones(5, turned // 2, dtype=torch.float64), torch.arange(3, 8)[:, None] * theta)
    q_turned, k_turned = pairs(q) * turn, pairs(k) * turn
    expected = (q_turned @ k_turned.mH).real + q[..., turned:] @ k[..., turned:].mT
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # its table is float32


@pytest.mark.parametrize("count", [1, 4, 6, 12])
def test_biases_by_key_are_linear_biases_to_a_softmax(count: int) -> None:
    q, scene = heads(1, count, 5, 4), Scene(5, 5, CPU)
    seen = Causal().view(scene).matrix(5, 5, CPU)
    found, expected = (
        part.bias(q, scene).expand(1, count, 5, 5).masked_fill(~seen, -math.inf).softmax(-1)
        for part in (KeyBias(count), LinearBias(count))
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_rows_before_the_first_position_are_passed_over() -> None:
    part = LearnedBehind(4, 6, 2)
    x = torch.zeros(1, 6, 4)
    assert torch.equal(part.add(x)[0], part.table.weight[2:])
    assert torch.equal(part.add(x[:, :2], torch.tensor([3]))[0], part.table.weight[5:7])
    with pytest.raises(IndexError):
        part.add(x, 1)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("chosen", [1, 2, 4])
def test_experts_are_a_sum_over_the_chosen_ones(normalized: bool, chosen: int) -> None:
    part = SharedExperts(6, 5, 4, chosen, normalized, F.silu, 3).double()
    x = heads(2, 7, 6)
    logits = part.router(x)
    kept = logits.topk(chosen).indices
    mask = torch.full_like(logits, -math.inf).scatter(-1, kept, 0.0)
    share = (logits + mask).softmax(-1) if normalized else logits.softmax(-1) * (mask == 0)
    gate, value = torch.einsum("btd,efd->btef", x, part.expand_EFD).chunk(2, -1)
    each = torch.einsum("btef,edf->bted", F.silu(gate) * value, part.contract_EDF)
    expected = (share[..., None] * each).sum(-2) + part.share(x).sigmoid() * part.always(x)
    torch.testing.assert_close(part(x), expected, rtol=0, atol=1e-12)


def test_more_experts_than_there_are_cannot_be_chosen() -> None:
    with pytest.raises(ValueError, match="3 of 2 experts"):
        Experts(4, 4, 2, 3)


def test_heads_have_layer_norms_of_their_own() -> None:
    part = HeadsLayerNorm(3, 4, 1e-5).double()
    nn.init.normal_(part.weight_HK)
    x = heads(2, 5, 12)
    expected = [
        F.layer_norm(one, (4,), gain, eps=1e-5) for one, gain in zip(x.chunk(3, -1), part.weight_HK, strict=True)
    ]
    torch.testing.assert_close(PerHead(3, part)(x), torch.cat(expected, -1), rtol=0, atol=1e-12)


def test_gains_of_norms_are_not_drawn():
    part = nn.Sequential(HeadsLayerNorm(3, 4, 1e-5), nn.Linear(4, 4))
    draw_normal(part, 0.02)
    assert (part[0].weight_HK == 1).all() and part[1].weight.abs().max() < 0.2


def test_queries_and_keys_are_normed_and_values_are_not() -> None:
    attention = NormedSelfAttention(8, 2, lambda count, width: PerHead(count, nn.RMSNorm(width)), shared_heads=1)
    x, view = torch.randn(1, 5, 8), Causal().view(Scene(5, 5, CPU))
    before = attention(x, view)
    with torch.no_grad():
        attention.qkv.weight[:12].mul_(7.0)  # queries and keys: their size does not matter
    torch.testing.assert_close(attention(x, view), before, rtol=0, atol=1e-4)
    with torch.no_grad():
        attention.qkv.weight[12:].mul_(7.0)
    assert not torch.allclose(attention(x, view), before, atol=1e-2)


@pytest.mark.parametrize("norms", [1, 2])
def test_both_sublayers_of_a_parallel_block_read_its_input(norms: int) -> None:
    block = ParallelBlock(SelfAttention(8, 2), MLP(8, 16), lambda: nn.LayerNorm(8), norms)
    for weight in block.parameters():
        nn.init.normal_(weight, std=0.3)
    x, view = torch.randn(1, 5, 8), Causal().view(Scene(5, 5, CPU))
    other = block.before_feed_forward if norms == 2 else block.before
    expected = x + block.attention(block.before(x), view) + block.feed_forward(other(x))
    torch.testing.assert_close(block(x, view), expected)


def states() -> SelectiveStates:
    torch.manual_seed(2)
    part = SelectiveStates(6, 8, states=3, taps=4, rank=2).double()
    for weight in (part.expand.weight, part.select.weight, part.step.weight):
        nn.init.normal_(weight, std=0.5)
    return part


def test_a_state_space_in_pieces_gives_what_the_whole_gives() -> None:
    part, x = states(), heads(2, 9, 6)
    whole_slot, slot = part.start(2, x), part.start(2, x)
    whole = part(x, whole_slot)
    pieces = [part(x[:, a:b], slot) for a, b in ((0, 4), (4, 5), (5, 9))]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=1e-12)
    for mine, other in zip(slot.tensors, whole_slot.tensors, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_a_padded_row_carries_on_from_its_own_last_token() -> None:
    part, x = states(), heads(3, 9, 6)
    lengths = torch.tensor([9, 2, 5])
    slot = part.start(3, x)
    part(x, slot, lengths)
    found = part(x[:, :1], slot)
    for row, length in enumerate(lengths.tolist()):
        alone = part.start(1, x)
        part(x[row : row + 1, :length], alone)
        torch.testing.assert_close(found[row : row + 1], part(x[row : row + 1, :1], alone), rtol=0, atol=1e-12)


def test_packed_texts_of_a_state_space_do_not_see_each_other() -> None:
    part, x = states(), heads(1, 9, 6)
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 2, 2]])
    found = part(x, part.start(1, x), segments_BT=segments)
    alone = [part(x[:, a:b], part.start(1, x)) for a, b in ((0, 4), (4, 6), (6, 9))]
    torch.testing.assert_close(found, torch.cat(alone, 1), rtol=0, atol=1e-12)
