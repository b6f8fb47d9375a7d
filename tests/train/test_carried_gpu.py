"""Recurrent models on a GPU: cuDNN against the readable cells, captured steps against launched ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headway.data.streams import StreamBatches
from headway.models.recurrent import Gru, Locked, Recurrent, RecurrentConfig, Rnn
from headway.nn import tap
from headway.tasks.objective import Carried
from headway.train.optimiser import AveragedSgd, Masters, Sgd
from headway.train.step import GraphStep, TrainStep
from small_world import TokenArray

pytestmark = [
    pytest.mark.gpu,
    # What `headway.nn.recurrent` says of it holds here too.
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk"),
]
CONFIG = RecurrentConfig(width=64, layers=2, max_length=12)


def model(**changes):
    torch.manual_seed(1)
    return Recurrent(replace(CONFIG, **changes), 128).cuda()


def batches(jitter=0.0):
    ids = np.random.Generator(np.random.PCG64(0)).integers(4, 128, 4000)
    return StreamBatches(TokenArray(ids), 8, 12, 1, jitter)


@pytest.mark.parametrize("changes", [{}, {"cell": Rnn()}, {"cell": Gru()}, {"tied": True, "embedding": 32}])
def test_cudnn_gives_what_the_readable_cells_give(changes):
    reader, ids = model(**changes).double(), torch.randint(128, (5, 9), device="cuda")
    fast, state = reader(ids)
    with tap.record(reader):
        slow, readable = reader(ids)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(state.parts(), readable.parts())
    grads = [torch.autograd.grad(logits.square().sum(), list(reader.parameters())) for logits in (fast, slow)]
    torch.testing.assert_close(*grads)
    lengths = torch.tensor([9, 0, 3, 1, 9], device="cuda")
    _, padded = reader.read(ids, lengths_R=lengths)
    with tap.record(reader):
        _, readable = reader.read(ids, lengths_R=lengths)
    torch.testing.assert_close(padded.parts(), readable.parts())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("optimiser", [Sgd(), AveragedSgd(wait=0)])
def test_captured_steps_carry_the_state_as_launched_ones_do(dtype, optimiser):
    """Over an epoch's end and several lengths; the mean of the weights begins on the way."""
    stream, ends = batches(jitter=0.25), []
    for kind in (TrainStep, GraphStep):
        learner = model(first="learned").to(dtype)
        masters = Masters(learner.named_parameters(), optimiser, clip=0.25)
        objective = Carried(activation=2.0, change=0.5).build(learner)
        step = kind(objective, masters)
        for number in range(2 * stream.per_epoch):
            masters.set_rate(1.0)
            step(stream.batch(number).map(torch.Tensor.cuda))
            if number == 30:
                masters.follow_scores([1.0, 0.5])
        with masters.judged():
            weights = [weight.detach().float().clone() for weight in masters.masters]
        ends.append((weights, [place.float().clone() for place in objective.places]))
    near = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.02}
    torch.testing.assert_close(*ends, **near)


def test_captured_steps_draw_new_dropout_each_time():
    learner = model(dropout=Locked())
    step = GraphStep(Carried().build(learner), Masters(learner.named_parameters(), Sgd()))  # its rate is 0
    batch = batches().batch(0).map(torch.Tensor.cuda)
    losses = [float(step(batch)["loss"]) for _ in range(8)]
    assert len(set(losses)) == 8
