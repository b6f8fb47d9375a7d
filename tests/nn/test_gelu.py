"""The GELU kernels against torch's, on a GPU or in Triton's interpreter (`TRITON_INTERPRET=1`)."""

import os
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode

from headway.errors import InputError
from headway.fast import gelu as module
from headway.fast.gelu import fused_gelu, fused_gelu_backward
from headway.fast.jit import triton
from headway.models import parts
from headway.nn.feed_forward import gelu
from headway.nn.product import activation_name

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]
on_each_device = pytest.mark.parametrize("device", DEVICES)
ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-11}  # of a result to the nearest number of 8 or 11 bits
OPS = {
    torch.ops.headway.gelu.default: torch.ops.aten.gelu.default,
    torch.ops.headway.gelu_backward.default: torch.ops.aten.gelu_backward.default,
}


def grid(dtype, device):
    """Many small values, where most activations lie, and some as far out as nothing is left of one side."""
    return torch.linspace(-12, 12, 40_003, device=device).to(dtype)


def twin(x, grad):
    """torch's GELU and its gradient in float64."""
    exact = x.detach().double().requires_grad_()
    y = F.gelu(exact)
    return y.detach(), torch.autograd.grad(y, exact, grad.double())[0]


def both(function, x, grad):
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y, x, grad)[0]


@on_each_device
def test_float32_values_and_gradients_are_torchs(device):
    x = grid(torch.float32, device)
    for mine, exact, bound in zip(
        both(fused_gelu, x, torch.ones_like(x)), twin(x, torch.ones_like(x)), (3e-7, 7.5e-7), strict=True
    ):
        assert mine.dtype == torch.float32
        assert ((mine.double() - exact).abs() <= bound * x.abs().clamp(min=1)).all()


@on_each_device
@pytest.mark.parametrize("dtype", ROUNDING)
def test_narrow_values_and_gradients_lose_one_rounding(dtype, device):
    x = grid(dtype, device)
    torch.manual_seed(0)
    grad = torch.randn(x.shape, device=device).to(dtype)
    # Triton's interpreter cuts bfloat16 off where a GPU rounds it.
    cut = 2 if device == "cpu" and dtype == torch.bfloat16 else 1
    for mine, exact in zip(both(fused_gelu, x, grad), twin(x, grad), strict=True):
        assert mine.dtype == dtype
        before = 7.5e-7 * grad.double().abs().clamp(min=1) * x.double().abs().clamp(min=1)  # what float32 lost
        assert ((mine.double() - exact).abs() <= cut * ROUNDING[dtype] * exact.abs() + before).all()


@on_each_device
def test_what_is_no_number_is_none_afterwards_and_infinity_stays(device):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 0.0, -0.0], device=device)
    y, grad = both(fused_gelu, x, torch.ones_like(x))
    exact, slope = twin(x, torch.ones_like(x))
    assert exact[:3].isnan().tolist() == [True, False, True]
    torch.testing.assert_close(y, exact.float(), equal_nan=True)
    torch.testing.assert_close(grad, slope.float(), equal_nan=True)


@on_each_device
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5, 7), (module.BLOCK,), (2, module.BLOCK + 1)])
def test_every_size_is_written_to_its_end_and_no_further(shape, device):
    x = torch.randn(shape, device=device)
    y, grad = both(fused_gelu, x, torch.ones_like(x))
    assert y.shape == grad.shape == shape
    torch.testing.assert_close(y, F.gelu(x))
    torch.testing.assert_close(grad, twin(x, torch.ones_like(x))[1].float())


@on_each_device
def test_a_turned_tensor_and_a_spread_gradient_are_read_right(device):
    x = torch.randn(33, 20, device=device)
    y, grad = both(fused_gelu, x.T, torch.tensor(2.0, device=device).expand(20, 33))
    assert y.is_contiguous()
    torch.testing.assert_close(y, F.gelu(x.T))
    torch.testing.assert_close(grad, 2 * twin(x.T, torch.ones_like(x.T))[1].float())


@on_each_device
def test_the_operators_keep_the_rules_of_torch_library(device):
    x = torch.randn(3, 70, device=device)
    torch.library.opcheck(fused_gelu, (x.clone().requires_grad_(),))
    torch.library.opcheck(fused_gelu_backward, (torch.randn_like(x), x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiler_sees_shapes_and_dtypes_without_a_run(dtype):
    with FakeTensorMode():
        x = torch.empty(7, 5, dtype=dtype).T
        made = [fused_gelu(x), fused_gelu_backward(x, x)]
    for y in made:
        assert y.shape == (5, 7) and y.dtype == dtype and y.is_contiguous()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_step_has_one_kernel_each_way(dynamic, monkeypatch):
    """Traced as for a GPU; it runs here because torch's operators then stand in for ours."""
    calls = []

    def stand_in(way, graph, _):
        for node in graph.graph.nodes:
            if node.target in OPS:
                calls.append((way, node.target.name()))
                node.target = OPS[node.target]
            elif "gelu" in str(node.target) or "erf" in str(node.target):
                calls.append((way, str(node.target)))
        graph.recompile()
        return make_boxed_func(graph)

    backend = aot_autograd(
        fw_compiler=partial(stand_in, "forward"),
        bw_compiler=partial(stand_in, "backward"),
        partition_fn=min_cut_rematerialization_partition,
    )
    torch.manual_seed(0)
    layer = parts.Gelu().build(6, 24).double()
    x_BTD = torch.randn(2, 3, 6, dtype=torch.float64)
    layer(x_BTD).square().sum().backward()
    expected = [weight.grad.clone() for weight in layer.parameters()]
    layer.zero_grad()
    monkeypatch.setattr(module, "available", lambda x: True)
    monkeypatch.setattr(module, "LEAST", 144)
    torch.compile(layer, backend=backend, fullgraph=True, dynamic=dynamic)(x_BTD).square().sum().backward()
    assert calls == [("forward", "headway::gelu"), ("backward", "headway::gelu_backward")]
    for weight, grad in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, grad)


def test_a_cpu_takes_torchs_own(monkeypatch):
    monkeypatch.setattr(module, "LEAST", 1)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(9, dtype=dtype, requires_grad=True)
        assert not module.takes(x) and torch.equal(gelu(x), F.gelu(x))


@pytest.mark.skipif(triton is not None, reason="triton is here")
def test_without_triton_a_call_says_what_to_do():
    with pytest.raises(InputError, match=r"pip install triton, or take torch\.nn\.functional\.gelu"):
        fused_gelu(torch.zeros(2, 3))


def test_a_model_has_the_kernel_where_no_dropout_stands_behind_it():
    assert parts.Gelu().function is gelu and activation_name(gelu) == "gelu"
    assert parts.Gelu(dropout=0.1).function is F.gelu
    assert activation_name(parts.Gelu(approximate="tanh").function) == "tanh"


@pytest.mark.gpu
def test_a_large_gpu_tensor_takes_the_kernel_where_it_learns(monkeypatch):
    monkeypatch.setattr(module, "LEAST", 64)
    assert module.takes(torch.zeros(8, 8, device="cuda"))
    assert not module.takes(torch.zeros(7, 9, device="cuda"))
    assert not module.takes(torch.zeros(8, 8, 2, device="cuda")[..., 0])
    assert not module.takes(torch.zeros(8, 8, device="cuda", dtype=torch.float64))
    with torch.no_grad():
        assert not module.takes(torch.zeros(8, 8, device="cuda"))


def layer_and_input(dtype):
    torch.manual_seed(0)
    layer = parts.Gelu().build(64, 256).to("cuda", dtype)
    return layer, torch.randn(33, 64, device="cuda", dtype=dtype)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "compiled", [None, {"dynamic": False}, {"dynamic": True}], ids=["plain", "compiled", "dynamic"]
)
def test_a_layer_on_a_gpu_has_the_gradients_of_its_twin(compiled, monkeypatch):
    monkeypatch.setattr(module, "LEAST", 64)
    layer, x_ND = layer_and_input(torch.float32)
    y_ND = (torch.compile(layer, fullgraph=True, **compiled) if compiled else layer)(x_ND)
    mine = torch.autograd.grad(y_ND.sum(), list(layer.parameters()))
    slow = layer.double()
    slow.activation = F.gelu
    exact = slow(x_ND.double())
    assert (y_ND.double() - exact).norm() / exact.norm() < 3e-6
    for grad, expected in zip(mine, torch.autograd.grad(exact.sum(), list(slow.parameters())), strict=True):
        assert (grad.double() - expected).norm() / expected.norm() < 3e-6


def launches(step):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
        torch.cuda.synchronize()
    counts = {event.key: event.count for event in profile.key_averages()}
    return [counts.get(name, 0) for name in ("headway::gelu", "headway::gelu_backward", "aten::gelu")]


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_on_a_gpu_calls_each_kernel_once(compiled, monkeypatch):
    monkeypatch.setattr(module, "LEAST", 64)
    layer, x_ND = layer_and_input(torch.bfloat16)
    run = torch.compile(layer, fullgraph=True) if compiled else layer
    run(x_ND).sum().backward()  # compiled here, and not counted
    assert launches(lambda: run(x_ND).sum().backward()) == [1, 1, 0]


@pytest.mark.gpu
def test_a_captured_graph_replays_the_kernels_on_new_numbers():
    x, grad = torch.randn(999, device="cuda"), torch.randn(999, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both(fused_gelu, x, grad)  # Triton compiles at the first call, and cannot while a graph is captured
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = both(fused_gelu, x, grad)
    x.copy_(x.flip(0) * 2)
    graph.replay()
    for mine, plain in zip(captured, both(fused_gelu, x, grad), strict=True):
        assert torch.equal(mine, plain)


@pytest.mark.gpu
def test_more_values_than_32_bits_count_are_all_written():
    if torch.cuda.mem_get_info()[0] < 24e9:
        pytest.skip("needs 24 GB of GPU memory")
    x = torch.full((2**31 + 4096,), -1.5, device="cuda", dtype=torch.bfloat16)
    x[-1] = 2.0
    y = fused_gelu(x)
    assert torch.equal(y[-4096:], F.gelu(x[-4096:])) and torch.equal(y[:4096], F.gelu(x[:4096]))
    grad = fused_gelu_backward(x, x)
    torch.testing.assert_close(grad[-4096:], torch.ops.aten.gelu_backward(x[-4096:], x[-4096:]))
