"""The search kernels against their readable twin, on a GPU or in Triton's interpreter (`TRITON_INTERPRET=1`)."""

import math
import os

import pytest
import torch

from headway.fast import sampling as kernels
from headway.fast.jit import triton
from headway.fast.sampling import continuations
from headway.generate import noise
from headway.generate.samples import Chosen, Outputs, SampleRows, readable_note
from headway.generate.top_k import best_continuations, readable_continuations

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]
on_each_device = pytest.mark.parametrize("device", DEVICES)
all_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])


def rows_of(V, dtype, device, R=5):
    torch.manual_seed(V)
    logits_RV = torch.randn(R, V) * torch.tensor([1e-3, 1.0, 3.0, 30.0, 1.0])[:R, None]
    logits_RV[-1, V // 2 :] = -math.inf  # a word that a model rules out has no part in the sum
    return logits_RV.to(dtype).to(device)


@on_each_device
@all_dtypes
@pytest.mark.parametrize(("V", "k"), [(7, 3), (40, 11), (64, 10), (2048, 10), (2100, 11), (4161, 10)])
def test_continuations_equal_the_twin_and_the_first_of_equals_wins(V, k, dtype, device):
    logits_RV = rows_of(V, dtype, device)
    values_RC, ids_RC, ends_R = continuations(logits_RV, k, 3)
    exact_RC, _, exact_R = readable_continuations(logits_RV.double(), k, 3)
    assert values_RC.dtype == ends_R.dtype == torch.float32 and ids_RC.dtype == torch.long
    torch.testing.assert_close(values_RC.double(), exact_RC, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(ends_R.double(), exact_R, rtol=1e-6, atol=1e-5)
    assert torch.equal(ids_RC, logits_RV.float().sort(dim=1, descending=True, stable=True).indices[:, :k])


@on_each_device
def test_many_equal_logits_in_many_blocks_are_taken_in_order(device):
    logits_RV = torch.zeros(2, 1000, device=device)
    logits_RV[1, 70::70] = 1.0
    _, ids_RC, _ = continuations(logits_RV, 16, 3)
    assert ids_RC[0].tolist() == list(range(16))
    assert ids_RC[1].tolist() == [*range(70, 1000, 70), 0, 1]


@on_each_device
def test_rows_with_gaps_between_them_and_columns_first_are_read_right(device):
    logits_RTV = torch.randn(4, 3, 200, device=device)
    for rows_RV in (logits_RTV[:, -1], logits_RTV[:, 0].T.contiguous().T):
        for mine, plain in zip(continuations(rows_RV, 5, 199), continuations(rows_RV.clone(), 5, 199), strict=True):
            assert torch.equal(mine, plain)
    assert [len(x) for x in continuations(logits_RTV[:0, 0], 5, 3)] == [0, 0, 0]


@on_each_device
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_a_row_that_has_diverged_shows_as_nan(device):
    logits_RV = rows_of(2100, torch.float32, device, R=4)
    logits_RV[1], logits_RV[3, 5] = math.nan, math.nan
    values_RC, ids_RC, ends_R = continuations(logits_RV, 4, 3)
    assert values_RC.isnan().all(1).tolist() == ends_R.isnan().tolist() == [False, True, False, True]
    assert ids_RC.min() >= 0 and ids_RC.max() < 2100


@on_each_device
def test_where_too_few_are_possible_the_others_have_no_probability(device):
    logits_RV = torch.full((1, 300), -math.inf, device=device)
    logits_RV[0, [7, 200]] = torch.tensor([1.0, 2.0], device=device)
    values_RC, ids_RC, ends_R = continuations(logits_RV, 4, 3)
    assert ids_RC[0, :2].tolist() == [200, 7] and ids_RC.max() < 300
    assert values_RC[0, 2:].tolist() == [-math.inf, -math.inf] and ends_R.tolist() == [-math.inf]


@on_each_device
@pytest.mark.parametrize("R", [1, 5, 200])
def test_noise_is_the_twins_bit_for_bit(R, device):
    seeds_R, steps_R = torch.arange(R, device=device) * 2**40 - 7, torch.arange(R, device=device) % 11
    streams_R = noise.streams(seeds_R, steps_R)
    assert torch.equal(kernels.uniforms(streams_R, steps_R), noise.uniforms(streams_R, steps_R))
    assert len(kernels.uniforms(streams_R[:0], steps_R[:0])) == 0


def noted(kernel, logits_RV, tokens_R, top, steps=3):
    """Texts of all lengths, one of them at the end of its room, and what a few steps have written there."""
    R, L, device = len(logits_RV), 8, logits_RV.device
    lengths_R = torch.tensor([1, 4, L - 1, 0, L - 2], device=device)[:R]
    ids_RL = torch.arange(R * L, device=device).view(R, L)
    sheet = SampleRows(None, ids_RL, lengths_R, lengths_R.clone(), lengths_R.clone(), lengths_R.clone())
    outputs = Outputs.blank(4, R, top, device)
    homes = [tensor.data_ptr() for tensor in sheet.tensors().values()]
    values_RA, ids_RA, _ = continuations(logits_RV, max(1, top), 0)
    for _ in range(steps):
        if kernel:
            book = outputs.packed_GRS, outputs.turns_R
            kernels.note(logits_RV, tokens_R, ids_RA, values_RA, ids_RL, sheet.newest_R, sheet.lengths_R, *book)
        else:
            readable_note(sheet, Chosen(logits_RV, tokens_R, ids_RA, values_RA), outputs)
    assert [tensor.data_ptr() for tensor in sheet.tensors().values()] == homes
    return [*sheet.tensors().values(), outputs.packed_GRS, outputs.turns_R]


@on_each_device
@all_dtypes
@pytest.mark.parametrize("top", [0, 1, 3])
@pytest.mark.parametrize("drawn", [True, False])
@pytest.mark.filterwarnings("ignore:All-NaN slice", "ignore:invalid value")
def test_what_is_noted_equals_what_the_twin_notes(drawn, top, dtype, device):
    logits_RV = rows_of(300, dtype, device)
    logits_RV[1], logits_RV[3] = -math.inf, math.nan
    tokens_R = torch.tensor([7, -1, 299, -1, 0], device=device) if drawn else None
    for rows in (5, 1):
        some_RV, some_R = logits_RV[:rows], None if tokens_R is None else tokens_R[:rows]
        found, expected = noted(True, some_RV, some_R, top), noted(False, some_RV, some_R, top)
        for mine, twin in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, twin, rtol=0, atol=0, equal_nan=True)
    assert drawn or found[-2][0, 0, 0] == logits_RV[0].argmax()
    lengths_R, packed_GRS, turns_R = noted(True, logits_RV, tokens_R, top)[1], *found[-2:]
    assert lengths_R.tolist() == [4, 7, 7, 3, 7] and turns_R.tolist() == [3] and packed_GRS[3].eq(0).all()


@on_each_device
def test_logits_of_a_wider_head_are_noted_right(device):
    logits_RV = rows_of(320, torch.float32, device)[:, :300]
    tokens_R = torch.tensor([7, 1, 299, 2, 0], device=device)
    for mine, plain in zip(
        noted(True, logits_RV, tokens_R, 2), noted(True, logits_RV.clone(), tokens_R, 2), strict=True
    ):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0, equal_nan=True)


def test_on_a_cpu_the_twin_is_taken():
    logits_RV = rows_of(2100, torch.float64, "cpu")
    for mine, plain in zip(best_continuations(logits_RV, 4, 3), readable_continuations(logits_RV, 4, 3), strict=True):
        assert torch.equal(mine, plain) and mine.dtype in (torch.float64, torch.int64)


@pytest.mark.gpu
def test_a_captured_graph_replays_the_kernel_on_new_numbers():
    logits_RV = rows_of(10_000, torch.bfloat16, "cuda")
    best_continuations(logits_RV, 10, 3)  # Triton compiles at the first call
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = best_continuations(logits_RV, 10, 3)
    logits_RV.copy_(logits_RV.flip(-1))
    graph.replay()
    torch.testing.assert_close(captured[0], readable_continuations(logits_RV, 10, 3)[0])
