"""Products of a step against plain layers; the kernels on a GPU or in Triton's interpreter (`TRITON_INTERPRET=1`)."""

import os
from functools import partial
from unittest.mock import MagicMock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.fast import product as product_kernels
from headway.fast.jit import triton
from headway.nn.embedding import Head
from headway.nn.product import activation_name, linear, product, readable_product
from headway.nn.weights import inputs_first, lay_out

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]
on_each_device = pytest.mark.parametrize("device", DEVICES)
PRECISION = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
ACTIVATIONS = [None, F.relu, F.gelu, partial(F.gelu, approximate="tanh")]
# rows, width, outputs: odd ones, GPT-2's narrowest, wider than a tile
SHAPES = [(1, 7, 5), (1, 48, 144), (1, 1600, 33), (3, 40, 70), (16, 130, 17), (5, 1600, 33)]


def parts(rows, width, outputs, dtype=torch.float64, device="cpu", bias=True, shift=True):
    torch.manual_seed(width)
    layer, norm = nn.Linear(width, outputs, bias=bias), nn.LayerNorm(width, bias=shift)
    with torch.no_grad():
        norm.weight.add_(0.3 * torch.randn(width))
        if shift:
            norm.bias.add_(0.3 * torch.randn(width))
    x_RD, residual_RN = 3 * torch.randn(rows, width) + 1, torch.randn(rows, outputs)
    return [thing.to(device, dtype) for thing in (x_RD, layer, norm, residual_RN)]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=range(4))
@pytest.mark.parametrize("normed", [True, False])
@torch.no_grad()
def test_the_readable_product_is_what_the_modules_do_one_by_one(activation, normed):
    x_RD, layer, norm, residual_RN = parts(3, 40, 70)
    expected = layer(norm(x_RD) if normed else x_RD)
    expected = (activation or nn.Identity())(expected)
    found = product(x_RD, layer, norm if normed else None, activation)
    torch.testing.assert_close(found, expected)
    found = product(x_RD, layer, norm if normed else None, activation, residual_RN)
    torch.testing.assert_close(found, expected + residual_RN)


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_one_row_of_bfloat16_is_a_product_with_a_vector(bias):
    x_RD, layer, _, _ = parts(1, 300, 70, torch.bfloat16, bias=bias)
    found, exact = linear(x_RD, layer.weight, layer.bias), layer.double()(x_RD.double())
    assert found.dtype == torch.bfloat16 and found.shape == (1, 70)
    assert (found.double() - exact).norm() / exact.norm() < PRECISION[torch.bfloat16]


@torch.no_grad()
def test_a_heads_step_is_its_product():
    head, hidden_BTD = Head(24, 64).double(), torch.randn(3, 1, 24, dtype=torch.float64)
    torch.testing.assert_close(head(hidden_BTD), hidden_BTD @ head.weight.T)
    torch.testing.assert_close(head(hidden_BTD[:, 0]), hidden_BTD[:, 0] @ head.weight.T)


@torch.no_grad()
def test_weights_in_another_order_of_memory_are_the_same_weights():
    head = Head(24, 64, tied=nn.Embedding(64, 24))
    model = nn.Sequential(nn.Linear(24, 24), head)
    x_BTD = torch.randn(3, 1, 24)
    before, weights = model(x_BTD), [weight.clone() for weight in model.parameters()]
    inputs_first(model)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert head.weight.T.is_contiguous() and torch.allclose(model(x_BTD), before, atol=1e-6)


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(("rows", "width", "outputs"), SHAPES)
@torch.no_grad()
def test_the_kernels_equal_their_readable_twin(rows, width, outputs, dtype, device):
    if device == "cpu" and dtype == torch.bfloat16 and rows > 1:
        pytest.skip("the interpreter has no product of bfloat16 matrices")
    for number, activation in enumerate(ACTIVATIONS):
        bias, shift = number != 1, number != 2
        x_RD, layer, norm, residual_RN = parts(rows, width, outputs, dtype, device, bias, shift)
        for given in ((norm, residual_RN), (norm, None), (None, residual_RN), (None, None)):
            found = product_kernels.product(x_RD, layer, given[0], activation_name(activation), given[1])
            double = [None if part is None else part.double() for part in (x_RD, layer, *given)]
            exact = readable_product(double[0], double[1], double[2], activation, double[3])
            for part in (layer, norm):
                part.to(dtype)
            assert found.dtype == dtype
            error = (found.double() - exact).norm() / exact.norm()
            assert error < PRECISION[dtype]


@on_each_device
@torch.no_grad()
def test_rows_that_do_not_lie_side_by_side_are_read_right(device):
    x_RD, layer, norm, _ = parts(3, 40, 70, torch.float32, device)
    expected = product_kernels.product(x_RD, layer, norm, "none", None)
    turned = x_RD.T.contiguous().T
    assert torch.equal(product_kernels.product(turned, layer, norm, "none", None), expected)
    assert product_kernels.product(x_RD[:0], layer, norm, "none", None).shape == (0, 70)


@on_each_device
def test_the_operator_keeps_the_rules_of_torch_library(device):
    x_RD, layer, norm, residual_RN = parts(1, 40, 70, torch.float32, device)
    arguments = (x_RD, layer.weight, layer.bias, norm.weight, norm.bias, residual_RN, 1e-5, "gelu")
    arguments = [part.detach() if isinstance(part, torch.Tensor) else part for part in arguments]
    torch.library.opcheck(product_kernels._product, arguments, test_utils=("test_schema", "test_faketensor"))


def test_activations_are_known_by_what_they_do():
    assert [activation_name(activation) for activation in ACTIVATIONS] == ["none", "relu", "gelu", "tanh"]
    assert activation_name(torch.tanh) is None and activation_name(partial(F.silu)) is None


def test_what_the_kernels_are_not_made_for_is_left_to_torch(monkeypatch):
    x_RD, layer, _, _ = parts(1, 40, 70, torch.float32)
    assert not product_kernels.takes(x_RD, layer.weight)  # on a CPU
    monkeypatch.setattr(product_kernels, "available", lambda tensor: tensor.dtype == torch.float32)
    assert product_kernels.takes(x_RD, layer.weight)
    assert not product_kernels.takes(x_RD.expand(17, -1), layer.weight)
    assert not product_kernels.takes(x_RD, layer.weight.T.contiguous().T)
    assert not product_kernels.takes(x_RD, layer.weight.half())
    refused = MagicMock()
    monkeypatch.setattr(product_kernels, "product", refused)
    product(x_RD, layer, activation=torch.tanh)
    assert not refused.called


@pytest.mark.gpu
@torch.no_grad()
def test_a_captured_graph_replays_the_product_on_new_rows():
    x_RD, layer, norm, residual_RN = parts(1, 768, 2304, torch.bfloat16, "cuda")
    product(x_RD, layer, norm, F.gelu, residual_RN)  # Triton compiles at the first call
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = product(x_RD, layer, norm, F.gelu, residual_RN)
    x_RD.normal_()
    graph.replay()
    torch.testing.assert_close(captured, product(x_RD, layer, norm, F.gelu, residual_RN))


@pytest.mark.parametrize(
    ("machine", "rows", "turned"),
    [("x86_64", "one", True), ("x86_64", "many", False), ("aarch64", "one", False), ("aarch64", "many", True),
     ("riscv64", "one", False)],
)  # fmt: skip
def test_the_layout_is_that_of_the_processor_and_of_the_rows(machine, rows, turned, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: machine)
    layer = nn.Linear(8, 4)
    before = layer.weight.clone()
    lay_out(layer, rows)
    assert layer.weight.T.is_contiguous() == turned and torch.equal(layer.weight, before)
