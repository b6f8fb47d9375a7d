"""The fused kernels against their readable twins, on a GPU or in Triton's interpreter (`TRITON_INTERPRET=1`)."""

import os

import pytest
import torch
from readable_loss import readable_paired_cross_entropy, smoothed_cross_entropy
from torch._subclasses.fake_tensor import FakeTensorMode

from headway.errors import InputError
from headway.fast import cross_entropy as kernels
from headway.fast.cross_entropy import available, cross_entropy_rows, paired_rows
from headway.nn.loss import linear_cross_entropy, paired_cross_entropy

# Triton's interpreter runs the kernels without a GPU: TRITON_INTERPRET=1 where triton is installed.
INTERPRETED = kernels.triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]
on_each_device = pytest.mark.parametrize("device", DEVICES)
WHOLE = 2 * kernels.STEPS[1]  # a row of whole steps; one that is longer by little has a rest


def batch(V, scale, dtype, device, ignore=0, N=6):
    torch.manual_seed(V)
    logits_2NV = ((torch.rand(2, N, V) * 2 - 1) * scale).to(dtype)
    labels_N = torch.randint(1, V, (N,))
    labels_N[[1, 4]] = ignore
    return logits_2NV.to(device), labels_N.to(device)


def twin(logits, labels_N, ignore, function, *numbers):
    """Sums and gradient of a readable twin in float64, over the kept rows (gather takes no negative label)."""
    exact = logits.detach().double().requires_grad_()
    kept = labels_N != ignore
    rows = exact[kept] if exact.dim() == 2 else exact[:, kept].flatten(0, 1)
    loss, nll = function(rows, labels_N[kept], *numbers)
    return loss.detach(), nll.detach(), torch.autograd.grad(loss, exact)[0]


def assert_near(mine, expected, ignored, dtype):
    (grad, loss_N, nll_N), (loss, nll, exact) = mine, expected
    assert grad.dtype == dtype and loss_N.dtype == nll_N.dtype == torch.float32
    torch.testing.assert_close(loss_N.double().sum(), loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll_N.double().sum(), nll, rtol=1e-5, atol=1e-5)
    # A gradient of a KL is a difference of products as large as the largest of them.
    precision = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert (grad.double() - exact).abs().max() <= precision * exact.abs().max().clamp(min=1)
    assert not loss_N[ignored].any() and not nll_N[ignored].any() and not grad[..., ignored, :].any()


@on_each_device
@pytest.mark.parametrize("scale", [1e-3, 3, 60])
@pytest.mark.parametrize("V", [7, 101, 5003, 10000])
def test_float32_rows_equal_the_readable_twins(V, scale, device):
    logits_2NV, labels_N = batch(V, scale, torch.float32, device)
    one = twin(logits_2NV[0], labels_N, 0, smoothed_cross_entropy, 0.1, 0)
    assert_near(cross_entropy_rows(logits_2NV[0], labels_N, 0.1, 0), one, labels_N == 0, torch.float32)
    two = twin(logits_2NV, labels_N, 0, readable_paired_cross_entropy, 0.1, 0, 2.5)
    assert_near(paired_rows(logits_2NV, labels_N, 0.1, 0, 2.5), two, labels_N == 0, torch.float32)


@on_each_device
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("V", [WHOLE, WHOLE + 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_logits_lose_nothing_but_the_rounding_of_the_gradient(dtype, V, smoothing, device):
    logits_2NV, labels_N = batch(V, 8, dtype, device, ignore=-100)
    one = twin(logits_2NV[1], labels_N, -100, smoothed_cross_entropy, smoothing, -100)
    assert_near(cross_entropy_rows(logits_2NV[1], labels_N, smoothing, -100), one, labels_N == -100, dtype)
    two = twin(logits_2NV, labels_N, -100, readable_paired_cross_entropy, smoothing, -100, 1.0)
    assert_near(paired_rows(logits_2NV, labels_N, smoothing, -100, 1.0), two, labels_N == -100, dtype)


@on_each_device
def test_rows_that_are_not_contiguous_are_read_right(device):
    logits_2NV, labels_N = batch(33, 3, torch.float32, device)
    turned_NV = logits_2NV[0].T.contiguous().T
    for mine, plain in zip(
        cross_entropy_rows(turned_NV, labels_N, 0.1, 0),
        cross_entropy_rows(logits_2NV[0], labels_N, 0.1, 0),
        strict=True,
    ):
        assert mine.is_contiguous() and torch.equal(mine, plain)


@on_each_device
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("V", [kernels.STEPS[1] // 2, WHOLE, WHOLE + 900])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_its_label_anywhere(dtype, V, smoothing, device):
    """The first and the last word, and those on both sides of a step's and of a thread's end."""
    logits_2NV, _ = batch(V, 8, dtype, device, N=9)
    labels_N = torch.tensor([0, 3, 4, 7, 8, V // 2 - 1, -100, V // 2, V - 1], device=device)
    expected = twin(logits_2NV[0], labels_N, -100, smoothed_cross_entropy, smoothing, -100)
    mine = cross_entropy_rows(logits_2NV[0], labels_N, smoothing, -100)
    assert_near(mine, expected, labels_N == -100, dtype)
    # A wrong gradient of a likely label can hide in the precision of narrow numbers; its sign cannot.
    kept = labels_N != -100
    assert (mine[0][kept].gather(1, labels_N[kept, None]) < 0).all() and ((mine[0] < -smoothing).sum(1) == kept).all()


@on_each_device
def test_a_label_outside_the_vocabulary_shows_as_nan_and_touches_no_other_row(device):
    logits_2NV, labels_N = batch(33, 3, torch.float32, device)
    plain_NV, _, _ = cross_entropy_rows(logits_2NV[0], labels_N, 0.1, 0)
    labels_N[[2, 5]] = torch.tensor([33, -1], device=device)
    grad_NV, loss_N, nll_N = cross_entropy_rows(logits_2NV[0], labels_N, 0.1, 0)
    assert loss_N.isnan().nonzero().flatten().tolist() == nll_N.isnan().nonzero().flatten().tolist() == [2, 5]
    assert torch.equal(grad_NV[[0, 1, 3, 4]], plain_NV[[0, 1, 3, 4]]) and not grad_NV.isnan().any()


@on_each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_words_at_minus_infinity_are_no_words(dtype, device):
    """A whole step of them, some of a step, and all of the rest of a row."""
    V = WHOLE + 900
    logits_2NV, labels_N = batch(V, 8, dtype, device)
    words = torch.arange(V, device=device)
    left = (words >= kernels.STEPS[1] + 5) & (words < WHOLE)
    logits_NV = logits_2NV[0].masked_fill(~left, -torch.inf)
    labels_N = torch.where(labels_N == 0, 0, kernels.STEPS[1] + 5 + labels_N % (WHOLE - kernels.STEPS[1] - 5))
    grad_NV, loss_N, nll_N = cross_entropy_rows(logits_NV, labels_N, 0.0, 0)
    assert not grad_NV[:, ~left].any()
    shorter_N = torch.where(labels_N == 0, -1, labels_N - kernels.STEPS[1] - 5)
    expected = twin(logits_NV[:, left], shorter_N, -1, smoothed_cross_entropy, 0.0, -1)
    assert_near((grad_NV[:, left], loss_N, nll_N), expected, labels_N == 0, dtype)


@on_each_device
@pytest.mark.parametrize("stray", [torch.nan, torch.inf])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_logit_that_is_no_number_shows_as_nan_unless_its_row_is_ignored(smoothing, stray, device):
    logits_2NV, labels_N = batch(WHOLE + 900, 8, torch.bfloat16, device)
    plain = cross_entropy_rows(logits_2NV[0], labels_N, smoothing, 0)
    stray_NV = logits_2NV[0].clone()
    stray_NV[0, 17], stray_NV[1], stray_NV[5, -1] = stray, stray, stray  # the row in the middle is ignored
    for mine, sound in zip(cross_entropy_rows(stray_NV, labels_N, smoothing, 0), plain, strict=True):
        assert mine[[0, 5]].isnan().reshape(2, -1).any(1).all()
        assert torch.equal(mine[1:5], sound[1:5])


@on_each_device
def test_no_rows_are_no_error(device):
    empty_N = torch.empty(0, dtype=torch.long, device=device)
    grad_NV, loss_N, nll_N = cross_entropy_rows(torch.empty(0, 9, device=device), empty_N, 0.1, 0)
    assert grad_NV.shape == (0, 9) and loss_N.shape == nll_N.shape == (0,)


@on_each_device
def test_the_operators_keep_the_rules_of_torch_library(device):
    logits_2NV, labels_N = batch(101, 3, torch.float32, device)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(cross_entropy_rows, (logits_2NV[0], labels_N, 0.1, 0), test_utils=checks)
    torch.library.opcheck(paired_rows, (logits_2NV, labels_N, 0.1, 0, 2.5), test_utils=checks)


@on_each_device
def test_logits_that_do_not_fit_the_labels_are_refused(device):
    logits_2NV, labels_N = batch(33, 3, torch.float32, device)
    with pytest.raises(InputError, match="do not fit labels"):
        cross_entropy_rows(logits_2NV[0], labels_N[:-1], 0.1, 0)
    with pytest.raises(InputError, match="do not fit labels"):
        paired_rows(logits_2NV.flatten(0, 1), labels_N, 0.1, 0, 1.0)


def test_a_cpu_tensor_takes_the_readable_path():
    assert not available(torch.zeros(2, 3))


@pytest.mark.skipif(kernels.triton is not None, reason="triton is here")
def test_without_triton_a_call_says_what_to_do():
    with pytest.raises(InputError, match="pip install triton"):
        cross_entropy_rows(torch.zeros(2, 3), torch.tensor([1, 2]), 0.1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiler_sees_shapes_and_dtypes_without_a_run(dtype):
    def results(device):
        logits_2NV = torch.empty(2, 5, 11, dtype=dtype, device=device)
        labels_N = torch.empty(5, dtype=torch.long, device=device)
        return cross_entropy_rows(logits_2NV[0], labels_N, 0.1, 0), paired_rows(logits_2NV, labels_N, 0.1, 0, 1.0)

    with FakeTensorMode():
        fakes = results("cpu")
    for made in (fakes, results("meta")):
        for (grad, loss_N, nll_N), shape in zip(made, [(5, 11), (2, 5, 11)], strict=True):
            assert grad.shape == shape and grad.dtype == dtype
            assert loss_N.shape == nll_N.shape == (5,) and loss_N.dtype == nll_N.dtype == torch.float32


@pytest.mark.gpu
def test_a_gpu_tensor_takes_the_kernels():
    assert available(torch.zeros(2, 3, device="cuda")) and available(
        torch.zeros(2, device="cuda", dtype=torch.bfloat16)
    )
    assert not available(torch.zeros(2, 3, device="cuda", dtype=torch.float64))


def hidden_and_weight(N, V):
    torch.manual_seed(0)
    hidden_ND = torch.randn(N, 32, device="cuda", requires_grad=True)
    weight_VD = torch.randn(V, 32, device="cuda", requires_grad=True)
    labels_N = torch.randint(0, V, (N,), device="cuda")
    labels_N[3] = 0
    return hidden_ND, weight_VD, labels_N


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("V", [101, 20011])
def test_the_whole_loss_on_a_gpu_has_the_gradients_of_its_twin(V, compiled):
    hidden_ND, weight_VD, labels_N = hidden_and_weight(34, V)
    one, two = linear_cross_entropy, paired_cross_entropy
    if compiled:
        one, two = torch.compile(one), torch.compile(two)
    exact = [x.detach().double().requires_grad_() for x in (hidden_ND, weight_VD)]
    logits_NV = exact[0] @ exact[1].T
    pairs = [
        (one(hidden_ND, weight_VD, labels_N, 0.1, 0), smoothed_cross_entropy(logits_NV, labels_N, 0.1, 0)),
        (
            two(hidden_ND, weight_VD, labels_N[:17], 0.1, 0, 2.5),
            readable_paired_cross_entropy(logits_NV, labels_N[:17], 0.1, 0, 2.5),
        ),
    ]
    for (loss, nll), (slow, slow_nll) in pairs:
        torch.testing.assert_close(loss.double(), slow, rtol=1e-5, atol=0)
        torch.testing.assert_close(nll.double(), slow_nll, rtol=1e-5, atol=0)
        expected = torch.autograd.grad(0.37 * slow, exact, retain_graph=True)
        for mine, theirs in zip(torch.autograd.grad(0.37 * loss, (hidden_ND, weight_VD)), expected, strict=True):
            assert (mine.double() - theirs).norm() / theirs.norm() < 3e-5


def both_losses(logits_2NV, labels_N):
    grad_NV, loss_N, nll_N = cross_entropy_rows(logits_2NV[0] * 2, labels_N, 0.1, 0)
    grad_2NV, far_N, far_nll_N = paired_rows(logits_2NV * 2, labels_N, 0.1, 0, 2.5)
    return loss_N.sum(), nll_N.sum(), grad_NV + 1, far_N.sum(), far_nll_N.sum(), grad_2NV + 1


@pytest.mark.gpu
@pytest.mark.parametrize("V", [101, 20000])
def test_a_compiled_graph_holds_the_kernels_without_a_break(V):
    logits_2NV, labels_N = batch(V, 3, torch.float32, "cuda")
    compiled = torch.compile(both_losses, fullgraph=True)(logits_2NV, labels_N)
    for mine, plain in zip(compiled, both_losses(logits_2NV, labels_N), strict=True):
        torch.testing.assert_close(mine, plain)


@pytest.mark.gpu
@pytest.mark.parametrize("V", [101, 20000])
def test_a_captured_graph_replays_the_kernels_on_new_numbers(V):
    logits_2NV, labels_N = batch(V, 3, torch.bfloat16, "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both_losses(logits_2NV, labels_N)  # Triton compiles at the first call, and cannot while a graph is captured
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = both_losses(logits_2NV, labels_N)
    logits_2NV.copy_(logits_2NV.flip(-1) / 2)
    labels_N.copy_(labels_N.flip(0))
    graph.replay()
    for mine, plain in zip(captured, both_losses(logits_2NV, labels_N), strict=True):
        torch.testing.assert_close(mine, plain)
