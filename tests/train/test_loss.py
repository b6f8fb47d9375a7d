"""The chunked loss against its readable twin and against torch's own cross-entropy."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from readable_loss import readable_paired_cross_entropy, smoothed_cross_entropy

from headway.nn import loss as module
from headway.nn.loss import linear_cross_entropy


def one_pass(hidden, weight, labels, smoothing, ignore, rows):
    """`linear_cross_entropy` in chunks of so many rows, the ignored ones among them."""
    return module._Chunks.apply(hidden, weight, labels, partial(module._in_few_passes, smoothing, ignore), rows)


def two_passes(monkeypatch, hidden, weight, labels, smoothing, ignore, distance, rows):
    monkeypatch.setattr(module, "_rows", lambda *sizes: rows)
    return module.paired_cross_entropy(hidden, weight, labels, smoothing, ignore, distance)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_pieces_equal_the_whole_with_gradients(smoothing, rows):
    torch.manual_seed(0)
    hidden = torch.randn(13, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (13,))
    labels[[2, 5]] = 0
    slow, slow_nll = smoothed_cross_entropy(hidden @ weight.T, labels, smoothing, ignore=0)
    fast, fast_nll = one_pass(hidden, weight, labels, smoothing, 0, rows)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-11)
    torch.testing.assert_close(fast_nll, slow_nll, rtol=0, atol=1e-11)
    scale = 0.37
    expected = torch.autograd.grad(scale * slow, (hidden, weight))
    for mine, theirs in zip(torch.autograd.grad(scale * fast, (hidden, weight)), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)
    whole, _ = linear_cross_entropy(hidden, weight, labels, smoothing, ignore=0)
    for mine, theirs in zip(torch.autograd.grad(scale * whole, (hidden, weight)), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


def test_the_readable_twin_is_torchs_cross_entropy():
    torch.manual_seed(0)
    logits, labels = torch.randn(9, 7, dtype=torch.float64), torch.randint(0, 7, (9,))
    mine, nll = smoothed_cross_entropy(logits, labels, 0.1, ignore=0)
    torch.testing.assert_close(
        mine, F.cross_entropy(logits, labels, label_smoothing=0.1, ignore_index=0, reduction="sum")
    )
    torch.testing.assert_close(nll, F.cross_entropy(logits, labels, ignore_index=0, reduction="sum"))


def test_bfloat16_stays_near_float32(without_onednn):
    torch.manual_seed(0)
    hidden, weight = torch.randn(64, 32), torch.randn(101, 32) / 6
    labels = torch.randint(1, 101, (64,))
    exact = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    rough = [hidden.bfloat16().requires_grad_(), weight.bfloat16().requires_grad_()]
    a, _ = smoothed_cross_entropy(exact[0] @ exact[1].T, labels, 0.1, 0)
    b, _ = one_pass(*rough, labels, 0.1, 0, 16)
    assert b.dtype == torch.float32
    torch.testing.assert_close(a, b, rtol=5e-3, atol=0)
    for mine, theirs in zip(torch.autograd.grad(b, rough), torch.autograd.grad(a, exact), strict=True):
        assert (mine.float() - theirs).norm() / theirs.norm() < 2e-2


def test_without_gradients_nothing_is_made_for_them():
    hidden, weight, labels = torch.randn(5, 4), torch.randn(9, 4), torch.tensor([1, 2, 0, 4, 5])
    with torch.no_grad():
        loss, _ = linear_cross_entropy(hidden, weight, labels, 0.1, 0)
    torch.testing.assert_close(loss, smoothed_cross_entropy(hidden @ weight.T, labels, 0.1, 0)[0])


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_paired_pieces_equal_the_readable_twin_with_gradients(rows, monkeypatch):
    torch.manual_seed(0)
    hidden = torch.randn(26, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (13,))
    labels[[2, 5]] = 0
    slow, slow_nll = readable_paired_cross_entropy(hidden @ weight.T, labels, 0.1, 0, 2.5)
    fast, fast_nll = two_passes(monkeypatch, hidden, weight, labels, 0.1, 0, 2.5, rows)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-11)
    torch.testing.assert_close(fast_nll, slow_nll, rtol=0, atol=1e-11)
    expected = torch.autograd.grad(0.37 * slow, (hidden, weight))
    for mine, theirs in zip(torch.autograd.grad(0.37 * fast, (hidden, weight)), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_label_that_is_no_id_is_ignored(device: str, smoothing: float) -> None:
    """−1, since in a vocabulary from elsewhere any id may be a word; 0 counts as any other."""
    torch.manual_seed(2)
    hidden = torch.randn(7, 8, device=device, requires_grad=True)
    weight = torch.randn(50, 8, device=device, requires_grad=True)
    labels = torch.tensor([0, -1, 49, 0, -1, 3, 1], device=device)
    kept = labels >= 0
    expected = smoothed_cross_entropy(hidden[kept] @ weight.T, labels[kept], smoothing, -1)
    wanted = torch.autograd.grad(expected[0], (hidden, weight))
    for found in (
        linear_cross_entropy(hidden, weight, labels, smoothing, -1),
        smoothed_cross_entropy(hidden @ weight.T, labels, smoothing, -1),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        gradients = torch.autograd.grad(found[0], (hidden, weight))
        torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        judged = linear_cross_entropy(hidden, weight, labels, smoothing, -1)
    torch.testing.assert_close(judged, expected, rtol=1e-4, atol=1e-4)


on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@on_each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_first_product_writes_and_the_next_adds_in_float32(dtype, device):
    torch.manual_seed(3)
    grads_2NV, hidden_2ND = (torch.randn(2, 300, size).to(device, dtype) for size in (40, 24))
    total_VD = torch.full((40, 24), torch.nan, device=device)  # what it held must not matter
    for grad_NV, h_ND, first in zip(grads_2NV, hidden_2ND, (True, False), strict=True):
        module._add_product(total_VD, grad_NV, h_ND, first)
    exact_VD = (grads_2NV.double().mT @ hidden_2ND.double()).sum(0)
    # A CPU rounds each product to the narrow dtype before it is added; a GPU never does.
    rounded = dtype if device == "cpu" else torch.float32
    precision = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}[rounded]
    assert (total_VD.double() - exact_VD).norm() / exact_VD.norm() < precision


@on_each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_rows_have_gradients_of_zero(dtype, device):
    hidden, weight = (torch.randn(n, 8, dtype=dtype, device=device, requires_grad=True) for n in (0, 11))
    labels = torch.empty(0, dtype=torch.long, device=device)
    for loss, _ in (
        linear_cross_entropy(hidden, weight, labels, 0.1, 0),
        module.paired_cross_entropy(hidden, weight, labels, 0.1, 0, 2.5),
    ):
        grad_hidden, grad_weight = torch.autograd.grad(loss, (hidden, weight))
        assert loss == 0 and grad_hidden.shape == (0, 8) and not grad_weight.any()


def bfloat16_pieces(monkeypatch, hidden, weight, labels):
    """Loss and gradients over several pieces, of one pass and of a pair."""
    monkeypatch.setattr(module, "_rows", lambda *sizes: 24)
    one, _ = linear_cross_entropy(hidden, weight, labels, 0.1, 0)
    two, _ = two_passes(monkeypatch, hidden, weight, labels[:32], 0.1, 0, 2.5, 12)
    return one, two, *torch.autograd.grad(0.37 * one, (hidden, weight)), *torch.autograd.grad(two, (hidden, weight))


@pytest.mark.gpu
@pytest.mark.parametrize("V", [101, 20000])
def test_captured_bfloat16_pieces_replay_to_the_float64_gradients(V, monkeypatch):
    torch.manual_seed(4)
    hidden = torch.randn(64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = (torch.randn(V, 32, device="cuda") / 6).bfloat16().requires_grad_()
    labels = torch.randint(0, V, (64,), device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        bfloat16_pieces(
            monkeypatch, hidden, weight, labels
        )  # what is compiled or chosen at a first call cannot be while captured
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = bfloat16_pieces(monkeypatch, hidden, weight, labels)
    with torch.no_grad():
        hidden.copy_(hidden.flip(0) / 2)
    labels.copy_(labels.flip(0))
    graph.replay()
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    logits = exact[0] @ exact[1].T
    one, _ = smoothed_cross_entropy(logits, labels, 0.1, 0)
    two, _ = readable_paired_cross_entropy(logits, labels[:32], 0.1, 0, 2.5)
    gradients = *torch.autograd.grad(0.37 * one, exact, retain_graph=True), *torch.autograd.grad(two, exact)
    for mine, theirs in zip(captured, (one, two, *gradients), strict=True):
        assert (mine.double() - theirs).norm() / theirs.norm() < 2e-2
