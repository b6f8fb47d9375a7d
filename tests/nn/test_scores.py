"""Scores other than the dot, and shared keys, in every path of attention, against the equation in float64."""

import math

import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend

from headway.nn import attention, tap
from headway.nn.attention import (
    Additive,
    CrossAttention,
    Multiplicative,
    SelfAttention,
    attend,
    dot,
    flex_attend,
    fused_attend,
    scaled_dot,
)
from headway.nn.mask import Causal, Everything, Global, Padding, Random, Segments, Window
from headway.nn.position import LinearBias, Scene

CPU = torch.device("cpu")
WIDTH, HEADS, HEAD = 12, 4, 3
SCORES = {
    "dot": lambda: dot,
    "scaled": lambda: scaled_dot,
    "multiplicative": lambda: Multiplicative(HEAD, HEAD),
    "additive": lambda: Additive(HEAD, HEAD, 5),
}
every_score = pytest.mark.parametrize("name", SCORES)


def number(score, q_K, k_K):
    """The score of one query and one key, as the papers write it."""
    if isinstance(score, Additive):
        return score.v.weight[0] @ torch.tanh(score.query.weight @ q_K + score.key.weight @ k_K)
    if isinstance(score, Multiplicative):
        return k_K @ (score.weight.weight @ q_K)
    return q_K @ k_K / (math.sqrt(len(q_K)) if score is scaled_dot else 1.0)


def by_loops(score, q_HTK, k_GSK, v_GSK, visible_TS):
    """One row: head h uses keys and values of group h // (H / G)."""
    mixed_HTK = torch.zeros_like(q_HTK)
    for h, q_TK in enumerate(q_HTK):
        k_SK, v_SK = (part[h // (len(q_HTK) // len(k_GSK))] for part in (k_GSK, v_GSK))
        for t, q_K in enumerate(q_TK):
            seen = [s for s in range(len(k_SK)) if visible_TS[t, s]]
            if seen:
                weights = torch.stack([number(score, q_K, k_SK[s]) for s in seen]).softmax(0)
                mixed_HTK[h, t] = sum(weight * v_SK[s] for weight, s in zip(weights, seen, strict=True))
    return mixed_HTK


def expected(part, q_BTD, kv_BSD, visible_TS):
    """A whole attention part by loops; q_BTD and kv_BSD are its projections."""
    q_BHTK = q_BTD.unflatten(-1, (part.heads, -1)).transpose(1, 2)
    k_BGSK, v_BGSK = (x.unflatten(-1, (-1, HEAD)).transpose(1, 2) for x in kv_BSD.chunk(2, -1))
    rows = [by_loops(part.score, *row, visible_TS) for row in zip(q_BHTK, k_BGSK, v_BGSK, strict=True)]
    return part.output(torch.stack(rows).transpose(1, 2).flatten(2))


class Growing:
    """A cache for tests: what was appended, side by side."""

    k = v = None

    def append(self, k, v):
        self.k, self.v = (new if old is None else torch.cat([old, new], 2) for old, new in ((self.k, k), (self.v, v)))
        return self.k, self.v


def self_attention(name, shared=None):
    torch.manual_seed(0)
    return SelfAttention(WIDTH, HEADS, shared_heads=shared, score=SCORES[name]()).double()


@every_score
@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("training", [False, True])
def test_every_score_is_its_equation_with_and_without_shared_keys(name, shared, training):
    part = self_attention(name, shared).train(training)
    x_BTD = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    q_BTD, kv_BSD = part.qkv(x_BTD).split([WIDTH, 2 * shared * HEAD], -1)
    wanted = expected(part, q_BTD, kv_BSD, torch.ones(5, 5).tril())
    found = part(x_BTD, Causal().view(Scene(5, 5, CPU)))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    weights = list(part.parameters())
    for mine, theirs in zip(
        torch.autograd.grad(found.square().sum(), weights),
        torch.autograd.grad(wanted.square().sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)


@every_score
def test_a_trace_changes_nothing_and_keeps_the_weights(name):
    part = self_attention(name, 2).eval()
    x_BTD, view = torch.randn(2, 5, WIDTH, dtype=torch.float64), Causal().view(Scene(5, 5, CPU))
    plain = part(x_BTD, view)
    with tap.record(nn.ModuleDict({"part": part})) as recorder:
        torch.testing.assert_close(part(x_BTD, view), plain, rtol=0, atol=1e-12)
    kept = recorder.tensors
    assert kept["part.weights"].shape == kept["part.scores"].shape == (2, HEADS, 5, 5)
    assert kept["part.keys"].shape == kept["part.queries"].shape == (2, HEADS, 5, HEAD)
    mixed = kept["part.weights"] @ kept["part.values"]
    torch.testing.assert_close(mixed, kept["part.mixed"], rtol=0, atol=1e-12)


@every_score
@pytest.mark.parametrize("shared", [2, 4])
def test_steps_with_a_cache_are_the_whole_text(name, shared):
    part, cache = self_attention(name, shared).eval(), Growing()
    x_BTD = torch.randn(2, 6, WIDTH, dtype=torch.float64)
    whole = part(x_BTD, Causal().view(Scene(6, 6, CPU)))
    cuts = [(0, 3), (3, 4), (4, 6)]
    steps = [part(x_BTD[:, a:b], Causal().view(Scene(b - a, b, CPU, a)), cache) for a, b in cuts]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-12)


@every_score
def test_several_hypotheses_of_a_source_look_at_one_copy_of_it(name):
    torch.manual_seed(0)
    part = CrossAttention(WIDTH, HEADS, score=SCORES[name]()).double().eval()
    x_RTD, source_BSD = torch.randn(6, 2, WIDTH).double(), torch.randn(3, 7, WIDTH).double()
    lengths_B = torch.tensor([7, 2, 4])
    scene = Scene(1, 7, CPU, key_lengths_B=lengths_B)
    found = part(x_RTD, part.remember(source_BSD), Padding().view(scene))
    for b in range(3):
        rows = slice(2 * b, 2 * b + 2)
        visible_TS = (torch.arange(7) < lengths_B[b]).expand(2, -1)
        kv_BSD = part.key_value(source_BSD[b].expand(2, -1, -1))
        wanted = expected(part, part.query(x_RTD[rows]), kv_BSD, visible_TS)
        torch.testing.assert_close(found[rows], wanted, rtol=0, atol=1e-12)


LENGTHS, SEGMENTS = torch.tensor([6, 2, 5]), torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 2, 2, 2], [0] * 6])
MASKS = {
    "everything": Everything(),
    "causal": Causal(),
    "window": Window(2, 1),
    "global, window or random": Global(1) | Window(1) | Random(0.3),
    "segments": Segments(),
    "padding": Padding(),
    "causal segments, padded": Causal() & Segments() & Padding(),
}


def drawn(groups, queries=6, dtype=torch.float64):
    torch.manual_seed(0)
    shapes = [(3, HEADS, queries, HEAD), (3, groups, 6, HEAD), (3, groups, 6, HEAD)]
    return [torch.randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("queries", "start"), [(6, 0), (1, 5), (2, torch.tensor([4, 1, 0]))])
@pytest.mark.parametrize("groups", [1, 2])
def test_shared_keys_equal_repeated_ones(mask, biased, queries, start, groups):
    q, k, v = drawn(groups, queries)
    scene = Scene(queries, 6, CPU, start, LENGTHS, SEGMENTS[:, 6 - queries :], SEGMENTS)
    view = MASKS[mask].view(scene)
    bias = torch.randn(1, HEADS, queries, 6, dtype=torch.float64) if biased else None
    repeated = [part.repeat_interleave(HEADS // groups, 1) for part in (k, v)]
    wanted, weights = attend(q, *repeated, MASKS[mask].matrix(scene), bias)
    readable, readable_weights = attend(q, k, v, view.matrix(queries, 6, CPU), bias)
    torch.testing.assert_close(readable_weights, weights, rtol=0, atol=1e-12)
    wanted_grads = torch.autograd.grad(wanted.square().sum(), (q, k, v), retain_graph=True)
    for found in (readable, fused_attend(q, k, v, view, bias)):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
        for mine, theirs in zip(torch.autograd.grad(found.square().sum(), (q, k, v)), wanted_grads, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


@torch.no_grad()
def test_a_step_reads_shared_keys_in_place(monkeypatch):
    q, k, v = drawn(2, 1)
    seen = []
    kernel = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        "torch.nn.functional.scaled_dot_product_attention", lambda *them, **named: seen.append(them) or kernel(*them)
    )
    fused_attend(q, k, v, Causal().view(Scene(1, 6, CPU, 5)))
    assert seen[0][1] is k and seen[0][2] is v


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("biased", "groups"), [(False, 4), (True, 2)])
@pytest.mark.parametrize(("queries", "start"), [(6, 0), (2, torch.tensor([4, 1, 0]))])
def test_a_block_mask_is_the_matrix(mask, biased, groups, queries, start):
    q, k, v = (part.detach() for part in drawn(groups, queries, torch.float32))  # no backward on a CPU
    scene = Scene(queries, 6, CPU, start, LENGTHS, SEGMENTS[:, 6 - queries :], SEGMENTS)
    view = MASKS[mask].view(scene)
    if biased:
        view = view.placed(LinearBias(HEADS))
    wanted, _ = attend(q, k, v, MASKS[mask].matrix(scene), view.bias(q))
    torch.testing.assert_close(flex_attend(q, k, v, view, view.bias(q)), wanted, rtol=0, atol=1e-6)


def on_gpu(groups, length, dtype, head_width=64):
    torch.manual_seed(0)
    shapes = [(3, 8, length, head_width), (3, groups, length, head_width), (3, groups, length, head_width)]
    return [torch.randn(*shape, dtype=dtype, device="cuda").requires_grad_() for shape in shapes]


@pytest.mark.gpu
@pytest.mark.parametrize("mask", [Causal(), Padding(), Causal() & Padding(), Window(40)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("length", [60, 300])
def test_shared_keys_on_a_gpu_equal_the_equation(mask, dtype, tolerance, length):
    q, k, v = on_gpu(2, length, dtype)
    scene = Scene(length, length, q.device, key_lengths_B=torch.tensor([length, 5, 33], device="cuda"))
    double = [part.detach().double().requires_grad_() for part in (q, k, v)]
    wanted, _ = attend(*double, mask.matrix(scene))
    found = fused_attend(q, k, v, mask.view(scene))
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    grads = torch.autograd.grad(found.float().square().sum(), (q, k, v))
    for mine, exact in zip(grads, torch.autograd.grad(wanted.square().sum(), double), strict=True):
        assert (mine.double() - exact).norm() < tolerance * exact.norm()


@pytest.mark.gpu
@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_a_step_with_shared_keys_takes_the_kernel(dtype, tolerance, monkeypatch):
    taken = []
    kernel = attention.kernels.attend_prefix
    monkeypatch.setattr(attention.kernels, "attend_prefix", lambda *them: taken.append(1) or kernel(*them))
    q, k, v = on_gpu(2, 300, dtype)
    q = q[:, :, :1]
    scene = Scene(1, 300, q.device, torch.tensor([299, 0, 70], device="cuda"))
    wanted, _ = attend(q.double(), k.double(), v.double(), Causal().matrix(scene))
    found = fused_attend(q, k, v, Causal().view(scene))
    assert taken
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
def test_a_compiled_model_takes_block_masks_for_long_packed_rows():
    torch.manual_seed(0)
    part = SelfAttention(64, 4, shared_heads=2).cuda()
    x_BTD = torch.randn(2, 1100, 64, device="cuda", requires_grad=True)
    segments_BT = (torch.arange(1100, device="cuda") // torch.tensor([[300], [170]], device="cuda")).contiguous()

    def model(x_BTD, segments_BT):
        scene = Scene(1100, 1100, x_BTD.device, 0, None, segments_BT, segments_BT)
        view = (Causal() & Segments()).view(scene)
        return part(part(x_BTD, view), view)

    codes, inductor = [], lookup_backend("inductor")

    def backend(graph, examples):
        codes.append(graph.code)  # now: the compiler changes it
        return inductor(graph, examples)

    wanted = model(x_BTD, segments_BT)
    found = torch.compile(model, backend=backend)(x_BTD, segments_BT)
    assert any("flex_attention" in code for code in codes), codes
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)
    mine, exact = (torch.autograd.grad(y.square().sum(), x_BTD)[0] for y in (found, wanted))
    assert (mine - exact).norm() < 5e-3 * exact.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("mask", [Causal(), Causal() & Segments() & Padding(), Global(3) | Window(40) | Random(0.05)])
def test_a_compiled_block_mask_equals_the_equation_with_gradients(mask):
    q, k, v = on_gpu(2, 300, torch.float32)
    lengths, segments = torch.tensor([300, 5, 133]), (torch.arange(300) // 70).expand(3, -1)
    scene = Scene(300, 300, q.device, 0, lengths.cuda(), segments.cuda(), segments.cuda())
    wanted, _ = attend(q, k, v, mask.matrix(scene))
    found = torch.compile(flex_attend)(q, k, v, mask.view(scene))
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-3)
    grads = torch.autograd.grad(found.square().sum(), (q, k, v))
    for mine, exact in zip(grads, torch.autograd.grad(wanted.square().sum(), (q, k, v)), strict=True):
        assert (mine - exact).norm() < 5e-3 * exact.norm()
