"""Layers beside one another: the lecture's orders and examples come out, and real modules do what is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headway.errors import InputError
from headway.evaluate.layers import KINDS, Kind, LayerCost, compare
from headway.nn.attention import attend
from headway.nn.mask import Scene, Window


def by_name(length: int, width: int, window: int) -> dict[str, LayerCost]:
    return {one.name: one for one in compare(length, width, window)}


@pytest.mark.parametrize(("length", "printed"), [(100, (10**8, 3 * 10**8, 10**7)), (1000, (10**9, 3 * 10**9, 10**9))])
def test_the_lectures_two_examples(length: int, printed: tuple[int, ...]) -> None:
    found = by_name(length, 1000, 3)
    assert tuple(found[name].formula for name in ("RNN", "convolution", "attention, core alone")) == printed


def test_where_the_orders_are_loose() -> None:
    """With its maps attention costs 4Ld² + 2L²d: never below an RNN, in parameters neither."""
    for length in (1, 10, 100, 1000, 5000):
        found = by_name(length, 100, 3)
        attention, rnn = found["attention with its maps"], found["RNN"]
        assert attention.products == 4 * length * 100**2 + 2 * length**2 * 100
        assert rnn.products == 2 * length * 100**2 < attention.products
        assert rnn.parameters < attention.parameters
        assert found["LSTM"].products == 4 * rnn.products and found["GRU"].products == 3 * rnn.products
        assert (rnn.steps, attention.steps) == (length, 4)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_products_are_those_that_torch_counts(kind: Kind) -> None:
    found = by_name(7, 6, 3)[kind.name]
    with torch.device("meta"):
        layer, given = kind.build(6, 3, 0), (torch.zeros(1, 7, 6), *kind.more)
        with FlopCounterMode(display=False) as counter:
            layer(*given)
    assert 2 * found.products == counter.get_total_flops() > 0
    assert found.parameters == sum(weight.numel() for weight in layer.parameters())


def heard(kind: Kind, layers: int, length: int, window: int) -> Tensor:
    """Which positions the last one has heard of above so many real layers, by their gradient."""
    torch.manual_seed(0)
    layer_of = [kind.build(4, window, depth).double() for depth in range(layers)]
    first = x = torch.randn(1, length, 4, dtype=torch.float64, requires_grad=True)
    for layer in layer_of:
        result: Any = layer(x, *kind.more)
        x = result[0] if isinstance(result, tuple) else result
    (gradient,) = torch.autograd.grad(x[:, -1].square().sum(), first)
    return gradient.abs().sum(2)[0] > 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("length", "window"), [(2, 2), (9, 3), (10, 3), (17, 4)])
def test_so_many_layers_and_no_fewer_join_the_first_and_the_last(kind: Kind, length: int, window: int) -> None:
    found = by_name(length, 8, window)[kind.name]
    assert heard(kind, found.layers, length, window).all()
    if found.layers > 1:
        assert not heard(kind, found.layers - 1, length, window)[0]


def test_paths_have_the_orders_that_are_claimed() -> None:
    for length, window in ((100, 3), (1000, 3), (1000, 10), (729, 3), (730, 3)):
        found = by_name(length, 8, window)
        assert found["RNN"].path == found["LSTM"].path == length - 1
        assert found["attention, core alone"].path == found["attention with its maps"].path == 1
        assert found["convolution"].path == -(-(length - 1) // (window - 1))
        layers = 0
        while window**layers < length:  # ⌈log_k L⌉, in whole numbers
            layers += 1
        assert found["dilated convolution"].path == layers


def test_windowed_attention_is_masked_attention_without_the_masked_work() -> None:
    [kind] = [kind for kind in KINDS if kind.name == "windowed attention, core"]
    x_BTD = torch.randn(2, 9, 4, dtype=torch.float64)
    seen = Window(left=2).matrix(Scene(9, 9, x_BTD.device)) & torch.ones(9, 9, dtype=torch.bool).tril()
    x_BHTD = x_BTD[:, None]
    plain, _ = attend(x_BHTD, x_BHTD, x_BHTD, seen, score=lambda q, k: q @ k.mT)
    assert torch.allclose(kind.build(4, 3, 0)(x_BTD), plain[:, 0])


def test_a_recurrence_of_a_hundred_thousand_steps_is_counted_at_once() -> None:
    assert by_name(100_000, 1000, 3)["LSTM"].products == 8 * 10**11


@pytest.mark.parametrize(("sizes", "word"), [((0, 8, 3), "length"), ((8, 0, 3), "width"), ((8, 8, 1), "window")])
def test_impossible_sizes_are_refused(sizes: tuple[int, int, int], word: str) -> None:
    with pytest.raises(InputError, match=word):
        compare(*sizes)


def test_modules_are_torchs_own() -> None:
    built = {kind.name: kind.build(4, 3, 0) for kind in KINDS}
    assert isinstance(built["RNN"], nn.RNN) and isinstance(built["LSTM"], nn.LSTM) and isinstance(built["GRU"], nn.GRU)
