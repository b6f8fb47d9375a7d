"""Positions that turn or bias, against computations of their own, and through a whole model step by step."""

from dataclasses import replace

import pytest
import torch

from headway.batch import TextInputs
from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.attention import SelfAttention
from headway.nn.mask import Causal, Padding, Scene
from headway.nn.position import LinearBias, Position, RelativeBias, Rotary

CPU = torch.device("cpu")
CHOICES = [parts.Rotary(), parts.RelativeBias(buckets=8, farthest=16), parts.LinearBias(), parts.NoPosition()]
each_choice = pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)


def test_rotary_turns_pairs_as_complex_numbers():
    part = Rotary(8, base=100.0, length=4).double()
    q, k = torch.randn(2, 2, 3, 6, 8, dtype=torch.float64)
    found = part.rotate(q, k, start=3)
    for x, turned in zip((q, k), found, strict=True):
        pairs = torch.complex(x[..., :4], x[..., 4:])
        angle = torch.arange(3, 9)[:, None] * 100.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        expected = pairs * torch.polar(torch.ones_like(angle), angle)
        torch.testing.assert_close(turned, torch.cat([expected.real, expected.imag], -1), rtol=0, atol=1e-6)


def test_rotary_scores_depend_on_the_distance_alone():
    part = Rotary(16)
    q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def score(query_at: int, key_at: int) -> float:
        return (part.rotate(q, k, query_at)[0] * part.rotate(q, k, key_at)[1]).sum().item()

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)
    assert abs(score(9, 4) - score(9, 5)) > 1e-3


def test_rotary_follows_rows_that_start_at_different_places():
    part = Rotary(8)
    q, k = torch.randn(2, 3, 2, 4, 8)
    by_row = part.rotate(q, k, torch.tensor([0, 5, 70]))
    for row, start in enumerate((0, 5, 70)):
        alone = part.rotate(q[row : row + 1], k[row : row + 1], start)
        for a, b in zip(by_row, alone, strict=True):
            torch.testing.assert_close(a[row : row + 1], b)


@pytest.mark.parametrize(("heads", "slopes"), [(4, [2**-2, 2**-4, 2**-6, 2**-8]), (3, [2**-4, 2**-8, 2**-2])])
def test_linear_bias_falls_with_the_distance(heads, slopes):
    bias = LinearBias(heads).bias(torch.zeros(1, heads, 3, 8), Scene(3, 5, CPU, start=2))
    assert bias.shape == (1, heads, 3, 5)
    for h, slope in enumerate(slopes):
        for t in range(3):
            for s in range(5):
                assert bias[0, h, t, s].item() == pytest.approx(-slope * abs(2 + t - s))


def t5_bucket(distance: int, both_ways: bool, buckets: int, farthest: int) -> int:
    """Raffel et al.'s buckets, one distance (query minus key) at a time."""
    import math

    base = 0
    if both_ways:
        buckets //= 2
        base = buckets if distance < 0 else 0
        distance = abs(distance)
    else:
        distance = max(distance, 0)
    exact = buckets // 2
    if distance < exact:
        return base + distance
    far = exact + int(math.log(distance / exact) / math.log(farthest / exact) * (buckets - exact))
    return base + min(far, buckets - 1)


@pytest.mark.parametrize("both_ways", [False, True])
def test_relative_bias_looks_up_the_bucket_of_a_distance(both_ways):
    part = RelativeBias(2, buckets=32, farthest=128, both_ways=both_ways)
    far = torch.arange(-300, 300)
    assert part.bucket(far).tolist() == [t5_bucket(int(d), both_ways, 32, 128) for d in far]
    start = torch.tensor([4, 0])
    bias = part.bias(torch.zeros(2, 2, 3, 8), Scene(3, 6, CPU, start=start))
    for b, h, t, s in [(0, 0, 0, 0), (0, 1, 2, 5), (1, 0, 1, 4), (1, 1, 2, 2)]:
        bucket = t5_bucket(int(start[b]) + t - s, both_ways, 32, 128)
        assert bias[b, h, t, s] == part.table.weight[bucket, h]


@each_choice
def test_step_by_step_is_as_all_at_once(choice):
    """Through a whole model, with a cache that grows and one with rows of different lengths."""
    torch.manual_seed(0)
    config = TransformerConfig(2, 2, 32, 64, 4, dropout=0.0, position=choice, max_length=40)
    model = Transformer(config, 30, 30).double().eval()
    source, target = torch.randint(4, 30, (3, 7)), torch.randint(4, 30, (3, 9))
    lengths = torch.tensor([7, 4, 5])
    whole = model(source, target, lengths)
    for room in (None, 12):
        state = model.start(TextInputs(source, lengths), len(source), source.device, room)
        with torch.no_grad():
            steps = [model.logits(target[:, t : t + 1], state)[0] for t in range(9)]
        torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-6)


def test_without_positions_attention_sees_a_set():
    torch.manual_seed(0)
    config = TransformerConfig(1, 1, 16, 32, 2, dropout=0.0, position=parts.NoPosition())
    order = torch.randperm(6)
    source, target = torch.randint(4, 30, (2, 6)), torch.randint(4, 30, (2, 3))
    for choice, same in ((parts.NoPosition(), True), (parts.Rotary(), False), (parts.LinearBias(), False)):
        model = Transformer(replace(config, position=choice), 30, 30).eval()
        equal = torch.allclose(model(source, target), model(source[:, order], target), atol=1e-5)
        assert equal == same


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_heads_that_share_keys_and_values_are_heads_with_equal_ones(shared):
    torch.manual_seed(0)
    few, many = SelfAttention(16, 4, shared_heads=shared).double(), SelfAttention(16, 4).double()
    with torch.no_grad():
        many.output.load_state_dict(few.output.state_dict())
        for mine, theirs in ((few.qkv.weight, many.qkv.weight), (few.qkv.bias, many.qkv.bias)):
            parts_of_few = mine.split(few.sizes)
            spread = [p.unflatten(0, (shared, 4)).repeat_interleave(4 // shared, 0).flatten(0, 1)
                      for p in parts_of_few[1:]]  # fmt: skip
            theirs.copy_(torch.cat([parts_of_few[0], *spread]))
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    view = Causal().view(Scene(5, 5, CPU))
    torch.testing.assert_close(few(x, view), many(x, view), rtol=0, atol=1e-12)


def test_a_position_that_does_nothing_changes_nothing():
    part, x = SelfAttention(16, 4), torch.randn(2, 5, 16)
    view = Padding().view(Scene(5, 5, CPU, key_lengths_B=torch.tensor([5, 3])))
    torch.testing.assert_close(part(x, view.placed(Position())), part(x, view), rtol=0, atol=0)


@pytest.mark.parametrize("everywhere", [True, False])
def test_the_index_itself_is_added(everywhere):
    part = parts.Index(everywhere).build(parts.Room(6, 2, 4))
    x_BTD = torch.randn(2, 5, 6)
    added = part.add(x_BTD, 3) - x_BTD  # beyond the rows that were made first
    expected = torch.arange(3.0, 8.0)[:, None].expand(5, 6) * (torch.ones(6) if everywhere else torch.eye(6)[0])
    torch.testing.assert_close(added, expected.expand(2, 5, 6), rtol=0, atol=1e-5)
    by_row = part.add(x_BTD, torch.tensor([0, 2])) - x_BTD
    torch.testing.assert_close(by_row[1, :, 0], torch.arange(2.0, 7.0), rtol=0, atol=1e-5)


def test_layer_norm_removes_an_index_that_is_in_every_number():
    """A GPT with it and without any position are one model, unless the norm keeps the mean."""
    ids_BT = torch.randint(4, 30, (2, 8))

    def logits(position, norm):
        torch.manual_seed(0)
        return GPT(GPTConfig(2, 16, heads=2, position=position, norm=norm), 30).double().eval()(ids_BT)[0]

    for index, norm, same in (
        (parts.Index(), parts.PreNorm(), True),
        (parts.Index(everywhere=False), parts.PreNorm(), False),
        (parts.Index(), parts.PreRmsNorm(), False),
    ):
        apart = (logits(index, norm) - logits(parts.NoPosition(), norm)).abs().max()
        assert (apart < 1e-8) == same
