"""A carried state: gradients of truncated back-propagation, whatever pieces a batch comes in; and what AWD adds."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.data.streams import StreamBatches
from headway.errors import InputError
from headway.models.recurrent import Locked, Recurrent, RecurrentConfig
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.objective import Carried
from headway.train.gauge import operations_per_token
from headway.train.optimiser import AveragedSgd, Masters, Sgd
from headway.train.schedule import Staircase
from headway.train.step import TrainStep
from small_world import TokenArray

CPU = torch.device("cpu")
CONFIG = RecurrentConfig(width=6, layers=2, max_length=5)


def model(**changes):
    """With 64 words the head has no rows that are none."""
    torch.manual_seed(1)
    return Recurrent(replace(CONFIG, **changes), 64).double()


def batches(jitter=0.0):
    ids = np.random.Generator(np.random.PCG64(0)).integers(4, 64, 200)
    return StreamBatches(TokenArray(ids), 3, 5, 1, jitter)


def truncated(twin, some):
    """The oracle: torch's own loss, on a state that is detached by hand; the gradients of each batch."""
    state, found = None, []
    for batch in some:
        state = None if bool(batch.fresh) else state.of([part.detach() for part in state.parts()])
        logits, state = twin(batch.ids_BT, state)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels_BT.flatten(), reduction="sum") / 15
        found.append(torch.autograd.grad(loss, list(twin.parameters()), allow_unused=True))
    return found


@pytest.mark.parametrize("first", ["zero", "learned"])
@pytest.mark.parametrize(("parts", "jitter"), [(1, 0.0), (2, 0.0), (1, 0.25)])
def test_gradients_are_those_of_truncated_back_propagation(first, parts, jitter):
    """Over an epoch's end too: there the state begins anew, and only there a first state is learned."""
    mine, stream = model(first=first), batches(jitter)
    some = [stream.batch(step) for step in range(2 * stream.per_epoch)]
    step = TrainStep(Carried().build(mine), Masters(mine.named_parameters(), Sgd()))  # its rate is 0
    for batch, expected in zip(some, truncated(mine, some), strict=True):
        step(batch, parts)
        for weight, grad in zip(mine.parameters(), expected, strict=True):
            assert weight.grad is not None
            torch.testing.assert_close(weight.grad, torch.zeros_like(weight) if grad is None else grad)


def test_a_batch_that_is_not_finite_does_not_spoil_those_after_it():
    mine, stream = model(), batches()
    masters = Masters(mine.named_parameters(), Sgd())
    objective = Carried().build(mine)
    step = TrainStep(objective, masters)
    step(stream.batch(0))
    with torch.no_grad():
        mine.table.weight[int(stream.batch(1).ids_BT[0, 0])] = math.nan
    assert step(stream.batch(1))["bad"] == 1
    assert all(place.isfinite().all() for place in objective.places)
    with torch.no_grad():
        mine.table.weight.nan_to_num_()
    assert step(stream.batch(2))["bad"] == 0


def test_counting_operations_leaves_what_is_carried_alone():
    mine, stream = model(dropout=Locked()), batches()
    objective = Carried().build(mine)
    objective(stream.batch(0))
    before = {name: tensor.clone() for name, tensor in objective.carried().items()}
    assert operations_per_token(objective, stream.batch(1), CPU) > 0
    assert before.keys() == objective.carried().keys()
    assert all(torch.equal(tensor, objective.carried()[name]) for name, tensor in before.items())


def test_the_operations_of_an_lstm_are_those_of_a_count_by_hand():
    """Six for each weight that a token meets, those inside the fused kernel too."""
    mine = model(width=32).float()
    counted = operations_per_token(Carried().build(mine), batches().batch(0), CPU)
    assert counted == pytest.approx(6 * (2 * 4 * 32 * (32 + 32) + 64 * 32), rel=0.02)


def test_activation_and_change_are_what_the_equations_say():
    mine, batch = model(), batches().batch(0)
    triples = Carried(activation=2.0, change=0.5).build(mine)(batch)
    h_BTD, _ = mine.read(batch.ids_BT)
    torch.testing.assert_close(triples["activation"][0], h_BTD.square().mean(-1).sum())
    torch.testing.assert_close(triples["change"][0], (h_BTD[:, 1:] - h_BTD[:, :-1]).square().mean(-1).sum())
    assert triples["activation"][1] == 2.0 and triples["change"][1] == 0.5
    assert set(Carried().build(mine)(batch)) == {"loss", "nll"}


def test_plain_descent_follows_torchs_and_decays_matrices_only():
    torch.manual_seed(0)
    mine, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(mine.state_dict())
    masters = Masters(mine.named_parameters(), Sgd(decay=0.1), clip=0.5)
    groups = [{"params": [theirs.weight], "weight_decay": 0.1}, {"params": [theirs.bias]}]
    reference = torch.optim.SGD(groups, lr=0.3, foreach=False, fused=False)
    for _ in range(5):
        x = torch.randn(7, 4)
        for part in (mine, theirs):
            part(x).square().sum().backward()
        masters.set_rate(0.3)
        masters.step()
        masters.zero()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.step()
        reference.zero_grad()
    torch.testing.assert_close(mine.weight, theirs.weight)
    torch.testing.assert_close(mine.bias, theirs.bias)


def descend(masters, weight, values):
    """Steps that bring the weight to each of the values."""
    for value in values:
        weight.grad = weight.detach() - value
        masters.set_rate(1.0)
        masters.step()
        masters.zero()


def test_the_mean_begins_when_scores_stall_and_is_what_is_judged():
    weight = nn.Parameter(torch.zeros(2, 2))
    masters = Masters([("weight", weight)], AveragedSgd(wait=2))
    descend(masters, weight, [1.0, 5.0])
    assert not masters.follow_scores([1.0, 0.5]) and not masters.follow_scores([1.0, 1.1, 0.9]), (
        "no score is old enough"
    )
    assert not masters.follow_scores([1.0, 1.1, 1.2, 1.05]), "worse than the last ones only"
    with masters.judged():
        assert torch.equal(weight, torch.full((2, 2), 5.0)), "until it begins the mean is the weight itself"
    assert masters.follow_scores([1.0, 1.1, 1.2, 0.9]) and not masters.follow_scores([1.0, 1.1, 1.2, 0.9]), (
        "it begins once"
    )
    descend(masters, weight, [7.0, 3.0, 9.0])
    weight.grad = torch.full_like(weight, math.nan)
    masters.step()  # skipped, and not averaged
    with masters.judged():
        torch.testing.assert_close(weight.detach(), torch.full((2, 2), 6.0))  # of 5, 7, 3 and 9
        assert torch.equal(masters.named()["weight"], weight)
    assert torch.equal(weight, torch.full((2, 2), 9.0))
    again = nn.Parameter(torch.zeros(2, 2))
    twin = Masters([("weight", again)], AveragedSgd(wait=2))
    twin.resume(masters.state())
    for some, one in ((masters, weight), (twin, again)):
        descend(some, one, [1.0])
        with some.judged():
            torch.testing.assert_close(one.detach(), torch.full((2, 2), 5.0))


def test_the_mean_of_bfloat16_weights_is_that_of_their_masters():
    weight = nn.Parameter(torch.full((2, 2), 256.0, dtype=torch.bfloat16))
    masters = Masters([("weight", weight)], AveragedSgd(wait=0))
    assert masters.follow_scores([1.0, 0.5])
    for _ in range(2):
        weight.grad = torch.ones_like(weight)
        masters.set_rate(3.0)
        masters.step()
        masters.zero()
    with masters.judged():
        assert torch.equal(masters.named()["weight"], torch.full((2, 2), 253.0))
        assert torch.equal(weight, torch.full((2, 2), 253.0, dtype=torch.bfloat16))
    assert torch.equal(weight, torch.full((2, 2), 250.0, dtype=torch.bfloat16))


def test_a_staircase_holds_and_then_goes_down_once_an_epoch():
    schedule = Staircase(peak=1.0, hold=60, every=10, factor=0.5)
    rates = [schedule.rate(step, 100) for step in (1, 60, 61, 70, 71, 80, 81)]
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.order=epoch"], "go together"),
        (["objective=next-token"], "go together"),
        (["data.order=epoch", "objective=next-token", "data.jitter=0.1"], "moves the cuts of a stream"),
        (["data.train=a.txt", "data.weights=[1]"], "mix windows"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        change(RECIPES["lstm"].make(), settings)


def test_a_mean_from_the_first_step_is_that_of_all_weights():
    """Merity et al. 2018's fine-tuning: the weights that it starts from are the first term."""
    weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0]]))
    masters = Masters([("weight", weight)], AveragedSgd(at_once=True))
    masters.set_rate(0.5)
    seen = [weight.detach().clone()]
    for step in range(4):
        weight.grad = torch.full_like(weight, float(step + 1))
        masters.step()
        seen.append(weight.detach().clone())
    with masters.judged():
        torch.testing.assert_close(weight.detach(), torch.stack(seen).mean(0))
    torch.testing.assert_close(weight.detach(), seen[-1])
