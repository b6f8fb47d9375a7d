"""Convolutions beside torch.nn.functional.conv1d in float64, pooling beside plain loops; padding changes nothing."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from headway.nn.convolution import Before, Convolution, Gated, SeparableConvolution
from headway.nn.pooling import AttentionPooling, OverTime, dynamic_k, k_max

LENGTHS = torch.tensor([9, 1, 4, 6])
PADDINGS = ("narrow", "wide", "same", "causal")
SHAPES = list(itertools.product(PADDINGS, (1, 2, 3, 5), (1, 2), (1, 3)))


def texts(width=6, length=9):
    return torch.randn(4, length, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def margins(padding, span):
    return {"narrow": (0, 0), "wide": (span, span), "same": (span // 2, span - span // 2), "causal": (span, 0)}[padding]


def by_torch(part, x_TD, padding, weight_ODW, bias_O, groups=1):
    """conv1d of one row, which is filled up where it is shorter than a window."""
    left, right = margins(padding, part.span)
    right = max(right, part.span + 1 - left - len(x_TD))
    given = F.pad(x_TD.T[None], (left, right))
    return F.conv1d(given, weight_ODW, bias_O, part.stride, dilation=part.dilation, groups=groups)[0].T


@pytest.mark.parametrize(("padding", "window", "stride", "dilation"), SHAPES)
@pytest.mark.parametrize("kind", [Convolution, SeparableConvolution])
def test_each_row_of_a_padded_batch_is_torchs_convolution_of_that_row_alone(kind, padding, window, stride, dilation):
    torch.manual_seed(0)
    part = kind(6, 5, window, padding, stride=stride, dilation=dilation).double()
    x_BTD = texts()
    x_BTD[1, 1:] = torch.nan  # what padding holds must not matter
    y_BTO, lengths = part(x_BTD, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        if kind is Convolution:
            weight = part.map.weight.unflatten(1, (window, 6)).mT
            expected = by_torch(part, x_BTD[row, :length], padding, weight, part.map.bias)
        else:
            each = by_torch(part, x_BTD[row, :length], padding, part.each_WD.T[:, None], None, groups=6)
            expected = F.linear(each, part.map.weight, part.map.bias)
        assert lengths[row] == len(expected) == part.outputs(length)
        torch.testing.assert_close(y_BTO[row, : len(expected)], expected)


def test_without_lengths_no_row_is_padded():
    part = Convolution(6, 5, 3, "wide").double()
    whole, lengths = part(texts())
    assert lengths is None
    torch.testing.assert_close(whole, part(texts(), torch.full((4,), 9))[0])


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1, not 0, 1 and 1"):
        Convolution(6, 5, 0)


def test_a_gated_convolution_is_half_of_its_outputs_times_the_sigmoid_of_the_other():
    part = Gated(Convolution(6, 10, 3, "same").double())
    y_BTO, _ = part.convolution(texts())
    found, lengths = part(texts(), LENGTHS)
    torch.testing.assert_close(part(texts())[0], y_BTO[..., :5] * (1 / (1 + torch.exp(-y_BTO[..., 5:]))))
    assert torch.equal(lengths, LENGTHS) and found.shape == (4, 9, 5)


@pytest.mark.parametrize("cuts", [(1, 2, 3, 4, 5, 6, 7, 8), (4,), ()])
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_causal_convolution_in_steps_is_that_of_the_whole_row(cuts, dilation):
    part = Gated(Convolution(6, 10, 3, "causal", dilation=dilation).double())
    slot = Before.start(4, part.convolution.span, 6, texts())
    parts = [part.after(some, slot) for some in texts().tensor_split(cuts, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), part(texts())[0])


def test_rows_that_are_padded_continue_behind_their_own_last_token():
    part = Gated(Convolution(6, 10, 4, "causal").double())
    slot = Before.start(4, part.convolution.span, 6, texts())
    part.after(texts(), slot, LENGTHS)
    more = torch.randn(4, 2, 6, dtype=torch.float64)
    found = part.after(more, slot)
    for row, length in enumerate(LENGTHS.tolist()):
        whole = torch.cat([texts()[row, :length], more[row]])[None]
        torch.testing.assert_close(found[row], part(whole)[0][0, length:])


def largest_in_order(values, k):
    """The k largest of a list, in its order, filled up with zeros."""
    at = sorted(sorted(range(len(values)), key=lambda place: -values[place])[:k])
    return [values[place] for place in at] + [0.0] * (k - len(at))


@pytest.mark.parametrize("k", [1, 3, 12])
def test_k_max_keeps_the_largest_of_each_feature_in_their_order(k):
    x_BTD, keep = texts(), torch.tensor([2, 3, 1, 20])
    for keep_B in (None, keep):
        found = k_max(x_BTD, k, keep_B, LENGTHS)
        for row, length in enumerate(LENGTHS.tolist()):
            most = k if keep_B is None else min(k, int(keep[row]))
            for feature in range(6):
                expected = largest_in_order(x_BTD[row, :length, feature].tolist(), most)
                assert found[row, :, feature].tolist() == expected + [0.0] * (k - most)
    assert torch.equal(k_max(x_BTD, k), k_max(x_BTD, k, lengths_B=torch.full((4,), 9)))


@pytest.mark.parametrize("length", [1, 7, 18])
def test_dynamic_k_falls_with_the_layer_to_that_of_the_top(length):
    layers, top = 3, 4
    expected = [max(top, math.ceil((layers - layer) / layers * length)) for layer in (1, 2, 3)]
    assert [dynamic_k(length, layer, layers, top) for layer in (1, 2, 3)] == expected
    assert [int(dynamic_k(torch.tensor(length), layer, layers, top)) for layer in (1, 2, 3)] == expected


@torch.no_grad()
def test_attention_pooling_is_a_weighted_mean_of_a_rows_own_places():
    torch.manual_seed(0)
    part, x_BTD = AttentionPooling(6).double(), texts()
    found = part(x_BTD, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        own = x_BTD[row, :length]
        powers = [math.exp(part.query_D @ torch.tanh(part.keys.map.weight @ h + part.keys.map.bias)) for h in own]
        expected = sum(power / sum(powers) * h for power, h in zip(powers, own, strict=True))
        torch.testing.assert_close(found[row], expected)


@pytest.mark.parametrize("how", ["max", "mean", "first", "last"])
def test_pooling_over_time_reads_a_rows_own_places_only(how):
    x_BTD, part = texts(), OverTime(how)
    found = part(x_BTD, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        own = x_BTD[row, :length]
        expected = {"max": own.amax(0), "mean": own.sum(0) / length, "first": own[0], "last": own[-1]}[how]
        torch.testing.assert_close(found[row], expected)
    torch.testing.assert_close(part(x_BTD), part(x_BTD, torch.full((4,), 9)))
