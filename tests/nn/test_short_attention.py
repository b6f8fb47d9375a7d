"""The kernels for short sequences against `attend` in float64, on a GPU or in Triton's interpreter
(`TRITON_INTERPRET=1`)."""

import os

import pytest
import torch

from headway.fast import short_attention as kernels
from headway.fast.jit import triton
from headway.fast.short_attention import attend_short, takes
from headway.nn.attention import SelfAttention, attend
from headway.nn.mask import Causal, Padding, Scene
from headway.nn.view import View, triangle

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]
on_each_device = pytest.mark.parametrize("device", DEVICES)
PRECISION = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
ROWS, HEADS = 3, 2
VIEWS = ["all", "causal", "first keys", "matrix of rows", "matrix for all"]


def given(queries, keys, width, dtype, device):
    """As they come from one projection: strided, one after the other."""
    torch.manual_seed(0)
    q, kv = torch.randn(ROWS, queries, HEADS, width), torch.randn(ROWS, keys, 2, HEADS, width)
    parts = q, kv[:, :, 0], kv[:, :, 1]
    return [part.to(dtype).to(device).transpose(1, 2).requires_grad_() for part in parts]


def seen(view, queries, keys, device):
    """What the kernel is told, and the matrix of it."""
    if view == "causal":
        return {"causal": True}, triangle(queries, keys, device)
    if view == "first keys":
        lengths_B = torch.tensor([keys, max(keys // 2, 1), 0], device=device)
        return {"lengths_B": lengths_B}, (torch.arange(keys, device=device) < lengths_B[:, None])[:, None, None]
    if view == "all":
        return {}, None
    shape = (ROWS, 1, queries, keys) if view == "matrix of rows" else (queries, keys)
    matrix = torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(device) < 0.6
    matrix[..., queries // 2, :] = False  # a query that sees nothing
    return {"seen_BHTS": matrix}, matrix


def both(function, parts, grad):
    """What it gives and its gradients."""
    mixed = function(*parts)
    return [mixed.detach(), *torch.autograd.grad(mixed, parts, grad.to(mixed.dtype))]


def compare(parts, expected, dtype, **told):
    grad = torch.randn(parts[0].shape, generator=torch.Generator().manual_seed(2)).to(parts[0].device)
    mine = both(lambda q, k, v: attend_short(q, k, v, **told), parts, grad)
    exact = both(expected, [part.detach().double().requires_grad_() for part in parts], grad.double())
    for one, other in zip(mine, exact, strict=True):
        assert one.dtype == dtype and not one.isnan().any()
        torch.testing.assert_close(one.double(), other, rtol=PRECISION[dtype], atol=2 * PRECISION[dtype])


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("queries", "keys", "width"), [(1, 1, 16), (7, 19, 64), (65, 65, 24), (100, 70, 64), (40, 128, 32)]
)
def test_values_and_gradients_are_those_of_the_readable_twin(queries, keys, width, view, dtype, device):
    if device == "cpu" and dtype == torch.bfloat16:
        pytest.skip("the interpreter has no product of bfloat16 matrices")
    told, matrix = seen(view, queries, keys, device)
    parts = given(queries, keys, width, dtype, device)
    compare(parts, lambda q, k, v: attend(q, k, v, matrix)[0], dtype, **told)
    assert attend_short(*parts, **told).transpose(1, 2).is_contiguous()


@on_each_device
def test_a_scale_of_the_scores(device):
    parts = given(9, 9, 16, torch.float32, device)
    compare(parts, lambda q, k, v: attend(q, k, v, score=lambda q, k: 0.7 * q @ k.mT)[0], torch.float32, scale=0.7)


def weights(parts, p, seed, **told):
    """What is left of the weights after dropout: values that are the identity show them."""
    q, k, v = (part.detach() for part in parts)
    torch.manual_seed(seed)
    eye = torch.eye(k.shape[2], v.shape[3], dtype=v.dtype, device=v.device).expand_as(v)
    return attend_short(q, k, eye, dropout=p, **told)[..., : k.shape[2]]


@on_each_device
def test_dropped_weights_have_their_share_and_the_same_gradients(device):
    dtype, p, keys = torch.float32 if device == "cpu" else torch.float16, 0.3, 64
    parts = given(50, keys, 64, dtype, device)
    left = weights(parts, p, 5)
    whole = weights(parts, 0.0, 5)
    kept = (left != 0) | (whole == 0)
    assert 0.27 < 1 - kept.float().mean().item() < 0.33
    torch.testing.assert_close(left[kept], whole[kept] / (1 - p), rtol=0, atol=PRECISION[dtype])
    assert (weights(parts, p, 5) == left).all() and (weights(parts, p, 6) != left).any()  # of torch's generator

    def expected(q, k, v):
        shares = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        return (shares * kept / (1 - p)) @ v

    torch.manual_seed(5)
    compare(parts, expected, dtype, dropout=p)


@on_each_device
def test_every_head_of_every_row_drops_other_weights(device):
    parts = given(16, 16, 16, torch.float32, device)
    dropped = (weights(parts, 0.5, 1) == 0).flatten(0, 1).flatten(1).float()
    agree = (dropped[:, None] == dropped).float().mean(-1)
    assert (agree.fill_diagonal_(0) < 0.75).all()


def test_what_it_takes(monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda x: True)
    q = torch.zeros(2, 4, 65, 64, dtype=torch.bfloat16)
    assert takes(q, q, q)
    assert not takes(q.float(), q.float(), q.float())
    assert not takes(q, q[:, :2], q[:, :2])  # shared keys
    long = torch.zeros(2, 4, kernels.LONGEST + 1, 64, dtype=torch.bfloat16)
    assert not takes(q, long, long) and not takes(long, q, q)
    assert not takes(q[..., :12], q[..., :12], q[..., :12])
    with torch.no_grad():
        assert not takes(q, q, q)


def test_fused_attention_calls_it_with_what_the_view_says(monkeypatch):
    """Each kind of view gives the kernel the form that it has, and attention with a bias does not come here."""
    from headway.nn import attention

    told = []

    def twin(q, k, v, *, causal, lengths_B, seen_BHTS, scale, dropout):
        told.append((causal, lengths_B is not None, seen_BHTS is not None, dropout))
        matrix = triangle(q.shape[2], k.shape[2], q.device) if causal else seen_BHTS
        if lengths_B is not None:
            matrix = View(prefix_B=lengths_B).matrix(q.shape[2], k.shape[2], q.device)
        return attend(q, k, v, matrix)[0]

    monkeypatch.setattr(attention.short, "takes", lambda *given: True)
    monkeypatch.setattr(attention.short, "attend_short", twin)
    torch.manual_seed(0)
    layer, x = SelfAttention(16, 2).double(), torch.randn(3, 6, 16, dtype=torch.float64)
    lengths = torch.tensor([6, 3, 1])
    scene = Scene(6, 6, torch.device("cpu"), key_lengths_B=lengths)
    for view in (View(), Causal().view(scene), Padding().view(scene), (Padding() & Causal()).view(scene)):
        matrix = view.matrix(6, 6, x.device)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in layer.qkv(x).chunk(3, -1))
        expected = layer.output(attend(q, k, v, matrix)[0].transpose(1, 2).flatten(2))
        torch.testing.assert_close(layer(x, view), expected)
    assert [one[:3] for one in told] == [
        (False, False, False), (True, False, False), (False, True, False), (False, False, True),
    ]  # fmt: skip
    before = len(told)
    q = torch.randn(1, 2, 4, 8)
    attention.fused_attend(q, q, q, View(), torch.zeros(1, 2, 4, 4))
    assert len(told) == before
