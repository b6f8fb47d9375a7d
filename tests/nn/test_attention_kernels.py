"""The decoding kernels against `attend`, on a GPU or in Triton's interpreter (`TRITON_INTERPRET=1`)."""

import os

import pytest
import torch

from headway.fast import attention as kernels
from headway.fast.attention import attend_prefix, attend_step, takes, takes_step
from headway.fast.jit import triton
from headway.nn import attention
from headway.nn.attention import attend, fused_attend
from headway.nn.mask import Causal, Padding, Scene
from headway.nn.view import View

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]
on_each_device = pytest.mark.parametrize("device", DEVICES)
PRECISION = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
LENGTHS = [0, 1, 5, 37, 50]


def queries_keys_values(heads, width, queries, dtype=torch.float32, device="cpu", keys=50):
    """Keys and values as a cache holds them: the length first."""
    torch.manual_seed(0)
    q_BHTK = torch.randn(len(LENGTHS), queries, heads, width).transpose(1, 2)
    k_BHSK, v_BHSK = torch.randn(2, keys, len(LENGTHS), heads, width).permute(0, 2, 3, 1, 4)
    prefix_B = torch.tensor(LENGTHS)
    for b, length in enumerate(LENGTHS):  # whatever memory holds there must not be read
        k_BHSK[b, :, length:], v_BHSK[b, :, length:] = torch.nan, torch.nan
    # `to` keeps the strides.
    return *(x.to(dtype).to(device) for x in (q_BHTK, k_BHSK, v_BHSK)), prefix_B.to(device)


def exact(q, k, v, prefix_B):
    seen = View(prefix_B=prefix_B).matrix(q.shape[2], k.shape[2], q.device)
    return attend(q.double(), k.double().nan_to_num(), v.double().nan_to_num(), seen)[0]


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("queries", [1, 5, 16])
@pytest.mark.parametrize(("heads", "width"), [(4, 32), (2, 8), (3, 20), (16, 64), (1, 128)])
def test_the_first_keys_of_each_row_equal_the_readable_twin(heads, width, queries, dtype, device):
    if device == "cpu" and dtype == torch.bfloat16 and queries > 1:
        pytest.skip("the interpreter has no product of bfloat16 matrices")
    q, k, v, prefix_B = queries_keys_values(heads, width, queries, dtype, device)
    mixed = attend_prefix(q, k, v, prefix_B)
    assert mixed.dtype == dtype and mixed.transpose(1, 2).is_contiguous()
    torch.testing.assert_close(mixed.double(), exact(q, k, v, prefix_B), rtol=0, atol=PRECISION[dtype])
    assert not mixed[0].any()


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(("heads", "width", "keys"), [(4, 32, 700), (3, 20, 513), (8, 64, 1504)])
def test_many_keys_are_read_by_many_programs(heads, width, keys, dtype, device, monkeypatch):
    """Rows of all lengths, one of no key and one of a few in the first tile."""
    split, seen = kernels._split, []
    monkeypatch.setattr(kernels, "_split", lambda *given: seen.append(1) or split(*given))
    lengths = [0, 3, keys // 2, keys - 4, keys]
    q, k, v = (torch.randn(len(lengths), heads, count, width) for count in (1, keys, keys))
    for b, length in enumerate(lengths):
        k[b, :, length:], v[b, :, length:] = torch.nan, torch.nan
    q, k, v = (x.to(dtype).to(device) for x in (q, k, v))
    prefix_B = torch.tensor(lengths, device=device)
    mixed = attend_prefix(q, k, v, prefix_B)
    assert seen and mixed.dtype == dtype
    torch.testing.assert_close(mixed.double(), exact(q, k, v, prefix_B), rtol=0, atol=PRECISION[dtype])
    assert not mixed[0].any()


@on_each_device
@pytest.mark.parametrize("queries", [1, 3])
def test_any_strides_are_read_right(queries, device):
    q, k, v, prefix_B = queries_keys_values(4, 32, queries, device=device)
    plain = attend_prefix(q, k, v, prefix_B)
    turned = [x.mT.contiguous().mT for x in (q, k, v)]
    # A compiler may sum in another order for another layout.
    torch.testing.assert_close(attend_prefix(*turned, prefix_B), plain)
    assert torch.equal(attend_prefix(q.contiguous(), k.contiguous(), v.contiguous(), prefix_B.int()), plain)
    assert torch.equal(attend_prefix(q, k, v, prefix_B.repeat_interleave(2)[::2]), plain)


@on_each_device
def test_large_scores_do_not_overflow_and_no_rows_are_no_error(device):
    q, k, v, prefix_B = queries_keys_values(2, 16, 2, device=device)
    for queries in (q, q[:, :, :1]):
        mixed = attend_prefix(queries * 300, k, v, prefix_B)
        torch.testing.assert_close(mixed.double(), exact(queries * 300, k, v, prefix_B), rtol=0, atol=1e-3)
    assert attend_prefix(q[:0], k[:0], v[:0], prefix_B[:0]).shape == (0, 2, 2, 16)


@on_each_device
def test_the_operator_keeps_the_rules_of_torch_library(device):
    arguments = queries_keys_values(4, 32, 3, device=device)
    torch.library.opcheck(kernels._attend_prefix, arguments, test_utils=("test_schema", "test_faketensor"))


@on_each_device
def test_fused_attend_takes_the_kernel_where_nothing_else_is_asked(device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(kernels, "available", lambda tensor: True)
    calls = []
    monkeypatch.setattr(kernels, "attend_prefix", lambda *them: calls.append(1) or attend_prefix(*them))
    q, k, v, prefix_B = queries_keys_values(4, 32, 1, device=device)
    k, v = k.nan_to_num(), v.nan_to_num()
    view = Causal().view(Scene(1, 50, q.device, prefix_B - 1))
    slow = fused_attend(q, k, v, view)
    assert not calls  # a gradient may be asked for
    with torch.no_grad():
        torch.testing.assert_close(fused_attend(q, k, v, view), slow)
        assert calls == [1] and takes(q, k, v)
        fused_attend(q, k, v, view, bias_BHTS=torch.zeros(1, 1, 1, 50, device=device))
        fused_attend(q, k, v, Causal().view(Scene(1, 50, q.device, 49)))
        fused_attend(q.expand(-1, -1, 17, -1), k, v, Padding().view(Scene(17, 50, q.device, key_lengths_B=prefix_B)))
    assert calls == [1]


def a_step(heads, width, dtype, device, capacity=51):
    """A new token for each row of a cache whose rows have `LENGTHS` entries; what stands behind them is NaN."""
    torch.manual_seed(0)
    qkv_BD = torch.randn(len(LENGTHS), 3 * heads * width)
    kv_2CBHK = torch.randn(2, capacity, len(LENGTHS), heads, width)
    for b, length in enumerate(LENGTHS):
        kv_2CBHK[:, length:, b] = torch.nan
    return [x.to(dtype).to(device) for x in (qkv_BD, kv_2CBHK)] + [torch.tensor(LENGTHS, device=device)]


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(("heads", "width"), [(4, 32), (2, 8), (3, 20), (25, 64), (1, 128)])
def test_a_step_writes_its_key_and_value_and_looks_at_all_up_to_them(heads, width, dtype, device):
    qkv_BD, kv_2CBHK, lengths_B = a_step(heads, width, dtype, device)
    expected_2CBHK = kv_2CBHK.clone()
    q_BHK, k_BHK, v_BHK = qkv_BD.view(len(LENGTHS), 3, heads, width).unbind(1)
    for b, length in enumerate(LENGTHS):
        expected_2CBHK[0, length, b], expected_2CBHK[1, length, b] = k_BHK[b], v_BHK[b]
    mixed_BD = attend_step(qkv_BD, kv_2CBHK, lengths_B)
    assert torch.equal(kv_2CBHK.nan_to_num(), expected_2CBHK.nan_to_num())
    k_BHSK, v_BHSK = kv_2CBHK.permute(0, 2, 3, 1, 4)
    expected = exact(q_BHK[:, :, None], k_BHSK, v_BHSK, lengths_B + 1).flatten(1)
    torch.testing.assert_close(mixed_BD.double(), expected, rtol=0, atol=PRECISION[dtype])


@on_each_device
def test_a_full_row_stays_inside_its_cache(device):
    qkv_BD, kv_2CBHK, lengths_B = a_step(2, 8, torch.float32, device, capacity=50)
    around = torch.full((2, 52, *kv_2CBHK.shape[2:]), 7.0, device=device)
    around[:, 1:51] = kv_2CBHK
    mixed_BD = attend_step(qkv_BD, around[:, 1:51], lengths_B + 9)
    assert (around[:, 0] == 7).all() and (around[:, 51] == 7).all() and mixed_BD.shape == (5, 16)


@on_each_device
def test_the_step_keeps_the_rules_of_torch_library(device):
    qkv_BD, kv_2CBHK, lengths_B = a_step(2, 8, torch.float32, device)
    arguments = (qkv_BD, kv_2CBHK.nan_to_num(), lengths_B)
    torch.library.opcheck(attend_step, arguments, test_utils=("test_schema", "test_faketensor"))


def test_the_step_is_for_keys_of_every_head_on_a_gpu(monkeypatch):
    qkv_BD, kv_2CBHK, _ = a_step(4, 8, torch.float32, "cpu")
    assert not takes_step(qkv_BD, kv_2CBHK)
    monkeypatch.setattr(kernels, "available", lambda tensor: True)
    assert takes_step(qkv_BD, kv_2CBHK) and not takes_step(qkv_BD, kv_2CBHK.half())
    assert not takes_step(qkv_BD[:, :64], kv_2CBHK[:, :, :, :2])  # four queries share two keys


def test_without_a_gpu_the_kernel_is_not_taken():
    q, k, v, _ = queries_keys_values(4, 32, 1)
    assert not takes(q, k, v) and attention.kernels is kernels


@pytest.mark.gpu
def test_what_the_kernel_is_not_made_for_is_left_to_torch():
    for heads, width, queries, dtype in [(65, 8, 1, None), (1, 160, 1, None), (4, 32, 17, None), (4, 32, 1, "double")]:
        q, k, v, _ = queries_keys_values(heads, width, queries, torch.float64 if dtype else torch.float32, "cuda")
        assert not takes(q, k, v)


@pytest.mark.gpu
@pytest.mark.parametrize("queries", [1, 5])
def test_a_captured_graph_replays_the_kernel_on_new_lengths(queries):
    q, k, v, prefix_B = queries_keys_values(4, 32, queries, torch.bfloat16, "cuda")
    attend_prefix(q, k, v, prefix_B)  # Triton compiles at the first call
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attend_prefix(q, k, v, prefix_B)
    prefix_B.copy_(torch.tensor([0, 1, 3, 20, 49]))
    graph.replay()
    torch.testing.assert_close(captured, attend_prefix(q, k, v, prefix_B))
