"""What stands around a step's blocks against its readable twins; the kernels on a GPU or in Triton's interpreter
(`TRITON_INTERPRET=1`)."""

import os

import pytest
import torch
from torch import nn

from headway.fast import step as step_kernels
from headway.fast.jit import triton
from headway.nn import tap
from headway.nn.embedding import TokenEmbedding
from headway.nn.position import Learned, Position, Rotary, Sinusoidal
from headway.nn.slots import Clock

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]
on_each_device = pytest.mark.parametrize("device", DEVICES)
PRECISION = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
V, P = 50, 12


def embedding(width, position, scale=1.0, dtype=torch.float32, device="cpu"):
    torch.manual_seed(width)
    return TokenEmbedding(nn.Embedding(V, width), position, 0.1, scale, 0.1).to(device, dtype).eval()


def step_of(rows, device="cpu"):
    generator = torch.Generator().manual_seed(rows)
    ids_R1 = torch.randint(0, V, (rows, 1), generator=generator)
    return ids_R1.to(device), torch.randint(0, P, (rows,), generator=generator).to(device)


def readable(part, ids_RT, start_R):
    """√D · E[ids] + positions, dropout around them: what `TokenEmbedding` computes where the kernel is not taken."""
    tokens_RTD = part.words(part.table(ids_RT) * part.scale, ids_RT)
    return part.dropout(part.position.add(tokens_RTD, start_R))


@pytest.fixture
def taken(monkeypatch):
    """On any machine: what the kernel would have been asked for."""
    asked = []

    def embed(ids_R, places_R, table_VD, positions_PD, scale):
        asked.append(positions_PD)
        return scale * table_VD[ids_R] + (0 if positions_PD is None else positions_PD[places_R])

    monkeypatch.setattr(step_kernels, "available", lambda tensor: tensor.dtype == torch.float32)
    monkeypatch.setattr(step_kernels, "embed", embed)
    return asked


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(("rows", "width"), [(1, 7), (1, 768), (3, 1600), (70, 48)])
@torch.no_grad()
def test_an_embedded_step_is_the_twins(rows, width, dtype, device):
    ids_R1, places_R = step_of(rows, device)
    # A scale of 1 leaves a number as it is; of others float32 may add the product before it has rounded it.
    for scale, position in ((1.0, Learned(width, P)), (1.0, Position()), (width**0.5, Learned(width, P))):
        part = embedding(width, position, scale, dtype, device)
        positions_PD = part.position.table.weight if isinstance(part.position, Learned) else None
        found_RD = step_kernels.embed(ids_R1[:, 0], places_R, part.table.weight, positions_PD, scale)
        expected_RD = readable(part, ids_R1, places_R)[:, 0]
        # The interpreter cuts bfloat16 off where a GPU rounds.
        exact = scale == 1.0 and not (device == "cpu" and dtype == torch.bfloat16)
        error = (found_RD - expected_RD).double().norm() / expected_RD.double().norm()
        assert found_RD.dtype == dtype and error <= (0 if exact else PRECISION[dtype])
    assert step_kernels.embed(ids_R1[:0, 0], places_R[:0], part.table.weight, None, 1.0).shape == (0, width)


def test_the_kernel_is_taken_for_a_step_alone(taken):
    part = embedding(24, Learned(24, P))
    ids_R1, places_R = step_of(3)
    with torch.no_grad():
        assert torch.equal(part(ids_R1, places_R), readable(part, ids_R1, places_R)) and len(taken) == 1
        part(ids_R1, 4), part(ids_R1.expand(-1, 2), places_R)
        with tap.record(part):
            part(ids_R1, places_R)
        part.train()(ids_R1, places_R)
        part.eval().double()(ids_R1, places_R)
        sinusoidal = embedding(24, Sinusoidal(24))
        assert torch.equal(sinusoidal(ids_R1, places_R), readable(sinusoidal, ids_R1, places_R))
    part.float()(ids_R1, places_R).sum().backward()
    assert len(taken) == 1 and part.table.weight.grad is not None
    with torch.no_grad():
        embedding(24, Rotary(8))(ids_R1, places_R)
    assert len(taken) == 2 and taken[1] is None


@on_each_device
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_the_kernel_counts_on_as_its_twin_does(rows, device):
    lengths_R = torch.arange(rows, device=device) % 7
    for steps in (1, 2):
        found_R, expected_R = lengths_R.clone(), lengths_R.clone()
        step_kernels.launch_advance(found_R, steps, 6)
        step_kernels.readable_advance(expected_R, steps, 6)
        assert torch.equal(found_R, expected_R)


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(("places", "heads", "head_width"), [(1, 1, 5), (16, 4, 32), (33, 16, 96)])
def test_rows_are_picked_as_by_the_twin(places, heads, head_width, dtype, device):
    room_2CRHK = torch.randn(2, places + 3, 9, heads, head_width, device=device).to(dtype)
    kv_2CRHK, rows_R = room_2CRHK[:, :places, :6], torch.tensor([5, 0, 0, 3, 2, 2], device=device)
    found_2CRHK, expected_2CRHK = torch.zeros_like(room_2CRHK), torch.zeros_like(room_2CRHK)
    step_kernels.launch_pick(kv_2CRHK, rows_R, found_2CRHK[:, :places, :6])
    step_kernels.readable_pick(kv_2CRHK, rows_R, expected_2CRHK[:, :places, :6])
    assert torch.equal(found_2CRHK, expected_2CRHK) and expected_2CRHK.any()


def test_a_clock_that_stays_is_advanced_in_place_up_to_its_bound():
    clock = Clock(torch.arange(7), 6, even=False, last=6, steady=True)
    home_R, fork = clock.lengths_R, clock.fork()
    clock.advance(2)
    assert clock.lengths_R is home_R and home_R.tolist() == [2, 3, 4, 5, 6, 6, 6] and clock.longest == 6
    assert fork.lengths_R.tolist() == list(range(7))


def test_a_clock_that_grows_leaves_the_lengths_it_had():
    clock = Clock(torch.zeros(2, dtype=torch.long), 0)
    before_R = clock.lengths_R
    clock.advance(3)
    assert before_R.tolist() == [0, 0] and clock.lengths_R.tolist() == [3, 3] and clock.longest == 3
