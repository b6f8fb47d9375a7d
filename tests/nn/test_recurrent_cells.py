"""Recurrent parts against torch.nn: values, gradients, carried state, padded rows; and against their readable twins."""

import pytest
import torch
from torch import nn

from headway.nn import recurrent, tap
from headway.nn.dropout import Dropout, LockedDropout, WordDropout
from headway.nn.recurrent import GRUCell, LSTMCell, RecurrentLayer, RecurrentStack, RNNCell

CELLS = {"rnn": (RNNCell, nn.RNN), "lstm": (LSTMCell, nn.LSTM), "gru": (GRUCell, nn.GRU)}
each_cell = pytest.mark.parametrize("kind", CELLS)


def pair(kind, layers=2, inputs=5, width=7, learned=False):
    """A stack and torch's own module with the same weights, in float64."""
    torch.manual_seed(3)
    cell, module = CELLS[kind]
    parts = [RecurrentLayer(cell(inputs if at == 0 else width, width)) for at in range(layers)]
    stack = RecurrentStack(parts, nn.Identity(), nn.Identity(), nn.Identity(), learned).double()
    oracle = module(inputs, width, layers, batch_first=True).double()
    with torch.no_grad():
        for at, layer in enumerate(parts):
            getattr(oracle, f"weight_ih_l{at}").copy_(layer.cell.from_input.weight)
            getattr(oracle, f"weight_hh_l{at}").copy_(layer.cell.from_state.weight)
            getattr(oracle, f"bias_ih_l{at}").copy_(layer.cell.from_input.bias)
            bias = layer.cell.from_state.bias
            getattr(oracle, f"bias_hh_l{at}").copy_(torch.zeros(()) if bias is None else bias)
    return stack, oracle


def torch_state(state):
    """As torch.nn has it: a tensor of all layers, or two."""
    parts = [torch.stack(parts) for parts in zip(*(slot.tensors for slot in state["layers"]), strict=True)]
    return parts[0] if len(parts) == 1 else tuple(parts)


def drawn(state):
    return state.of([torch.randn_like(part) for part in state.parts()])


def tensors(state):
    return list(state) if isinstance(state, tuple) else [state]


@each_cell
@pytest.mark.parametrize("readable", [False, True])
def test_a_stack_gives_torchs_values_gradients_and_carried_state(kind, readable):
    stack, oracle = pair(kind)
    x = torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)
    state, expected_state = stack.start(3, x), None
    for _ in range(2):  # the second time from the state that the first has left
        if readable:
            with tap.record(stack):
                y, state = stack(x, state)
        else:
            y, state = stack(x, state)
        expected, expected_state = oracle(x, expected_state)
        torch.testing.assert_close(y, expected)
        for mine, its in zip(tensors(torch_state(state)), tensors(expected_state), strict=True):
            torch.testing.assert_close(mine, its)
    mine = torch.autograd.grad((y**2).sum(), [x, *(layer.cell.from_state.weight for layer in stack.layers)])
    its = torch.autograd.grad((expected**2).sum(), [x, oracle.weight_hh_l0, oracle.weight_hh_l1])
    for a, b in zip(mine, its, strict=True):
        torch.testing.assert_close(a, b)


@each_cell
@pytest.mark.parametrize("lengths", [None, [2, 6, 4]])
def test_units_that_only_fill_up_change_nothing(kind, lengths, monkeypatch):
    stack, _ = pair(kind)
    x = torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)
    lengths = None if lengths is None else torch.tensor(lengths)
    first = drawn(stack.start(3, x))
    found = []
    for multiple in (1, 8):
        monkeypatch.setattr(recurrent, "alignment", lambda x, multiple=multiple: multiple)
        y, state = stack(x, first, lengths)
        grads = torch.autograd.grad((y**2).sum() + sum(part.sum() for part in state.parts()), [x, *stack.parameters()])
        found.append([y, *state.parts(), *grads])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:RNN module weights")
@each_cell
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 2e-3), (torch.bfloat16, 3e-2)])
def test_on_a_gpu_widths_that_are_no_multiple_give_the_same(kind, dtype, within):
    stack, oracle = pair(kind, inputs=13, width=75)
    x = torch.randn(3, 6, 13, dtype=torch.float64)
    expected, _ = oracle(x)
    fast = stack.to("cuda", dtype)
    y, _ = fast(x.to("cuda", dtype), fast.start(3, x.to("cuda", dtype)))
    assert y.shape == expected.shape
    torch.testing.assert_close(y.cpu().double(), expected, rtol=0, atol=within)


@each_cell
@pytest.mark.parametrize("readable", [False, True])
def test_padded_rows_leave_the_state_behind_their_own_last_step(kind, readable):
    stack, oracle = pair(kind)
    x, lengths = torch.randn(5, 6, 5, dtype=torch.float64), torch.tensor([2, 6, 0, 1, 5])
    first = drawn(stack.start(5, x))
    if readable:
        with tap.record(stack):
            y, state = stack(x, first, lengths)
    else:
        y, state = stack(x, first, lengths)
    for row, length in enumerate(lengths.tolist()):
        expected = _row(torch_state(first), row)
        if length:
            alone, expected = oracle(x[row : row + 1, :length], expected)
            torch.testing.assert_close(y[row, :length], alone[0])
        assert not y[row, length:].any()
        for mine, its in zip(tensors(_row(torch_state(state), row)), tensors(expected), strict=True):
            torch.testing.assert_close(mine, its)


def _row(state, row):
    parts = [part[:, row : row + 1].contiguous() for part in tensors(state)]
    return parts[0] if len(parts) == 1 else tuple(parts)


@each_cell
def test_a_row_that_begins_anew_forgets_what_came_before(kind):
    stack, _ = pair(kind, learned=True)
    nn.init.normal_(stack.first[0])
    x = torch.randn(2, 6, 5, dtype=torch.float64)
    anew = torch.zeros(2, 6, dtype=torch.bool)
    anew[0, 3] = True
    y, state = stack(x, stack.start(2, x), anew_BT=anew)
    whole, behind = stack(x, stack.start(2, x))
    later, behind_later = stack(x[:1, 3:], stack.start(1, x))
    torch.testing.assert_close(y[1], whole[1])
    torch.testing.assert_close(y[0], torch.cat([whole[0, :3], later[0]]))
    a, b, c = (found["layers"][1].tensors[0] for found in (state, behind_later, behind))
    torch.testing.assert_close(a, torch.cat([b, c[1:]]))


def test_a_learned_first_state_is_learned_and_a_zero_one_is_zero():
    stack, _ = pair("lstm", learned=True)
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    y, _ = stack(x, stack.start(2, x))
    grads = torch.autograd.grad(y.sum(), list(stack.first))
    assert len(grads) == 4 and all(grad.abs().sum() > 0 for grad in grads)
    zero, _ = pair("lstm")
    assert not list(zero.first) and not any(part.any() for part in zero.start(2, x).parts())


@each_cell
def test_gates_are_seen_over_time_and_make_the_state(kind):
    stack, _ = pair(kind)
    x = torch.randn(2, 5, 5, dtype=torch.float64)
    with tap.record(stack) as seen:
        y, _ = stack(x, stack.start(2, x))
    found = {name: seen.tensors[f"layers.1.{name}"] for name in (*CELLS[kind][0].parts, *_gates(kind))}
    assert all(tensor.shape == (2, 5, 7) for tensor in found.values())
    assert seen.axes["layers.1.hidden"] == ("row", "target", "unit")
    torch.testing.assert_close(found["hidden"], y)
    before = torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1]], 1)
    if kind == "lstm":
        c = torch.cat([torch.zeros_like(y[:, :1]), found["cell"][:, :-1]], 1)
        torch.testing.assert_close(found["cell"], found["forget"] * c + found["input"] * found["candidate"])
        torch.testing.assert_close(y, found["output"] * found["cell"].tanh())
    if kind == "gru":
        torch.testing.assert_close(y, (1 - found["update"]) * found["candidate"] + found["update"] * before)


def _gates(kind):
    return () if kind == "rnn" else CELLS[kind][0].gates


@pytest.mark.parametrize("readable", [False, True])
def test_weight_dropout_is_one_matrix_for_all_steps_and_none_in_evaluation(readable):
    """The outputs are those of torch's cell with the very matrix that was drawn."""
    torch.manual_seed(0)
    layer = RecurrentLayer(RNNCell(4, 16), weight_dropout=0.5).double()
    x, first = torch.randn(2, 9, 4, dtype=torch.float64), (torch.zeros(2, 16, dtype=torch.float64),)
    torch.manual_seed(5)
    with tap.record(layer) if readable else torch.enable_grad():
        y, _ = layer(x, first)
    torch.manual_seed(5)
    dropped = Dropout(0.5)(layer.cell.from_state.weight).detach()
    assert 0.3 < (dropped == 0).double().mean() < 0.7
    h = torch.zeros(2, 16, dtype=torch.float64)
    for t in range(9):
        h = torch.tanh(layer.cell.from_input(x[:, t]) + h @ dropped.T)
        torch.testing.assert_close(y[:, t], h)
    layer.eval()
    assert torch.equal(layer(x, first)[0], layer(x, first)[0])


def test_locked_dropout_has_one_mask_for_all_steps_of_a_row():
    torch.manual_seed(0)
    y = LockedDropout(0.5)(torch.ones(8, 6, 32))
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert not torch.equal(y[0], y[1])
    assert set(y.unique().tolist()) == {0.0, 2.0}
    x = torch.randn(2, 3, 4)
    assert torch.equal(LockedDropout(0.5).eval()(x), x)


def test_word_dropout_drops_a_word_everywhere():
    torch.manual_seed(0)
    ids = torch.randint(50, (4, 30))
    part = WordDropout(0.4, 50)
    kept = part(torch.ones(4, 30, 3), ids)[..., 0]
    for word in ids.unique():
        assert len(kept[ids == word].unique()) == 1
    shares = torch.stack([part(torch.ones(1, 50, 1), torch.arange(50)[None]) for _ in range(200)])
    assert abs((shares == 0).float().mean().item() - 0.4) < 0.02
    assert abs(shares.mean().item() - 1) < 0.05


def test_a_state_is_reordered_kept_repeated_inserted_and_forked():
    stack, _ = pair("lstm")
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    _, state = stack(x, stack.start(3, x))
    before = [part.clone() for part in state.parts()]

    def rows():
        return state.parts()[-1][:, 0].tolist()

    a, b, c = rows()
    twin = state.fork()
    state.reorder(torch.tensor([2, 0, 0]))
    assert rows() == [c, a, a]
    state.keep(torch.tensor([1, 0]))
    assert rows() == [a, c]
    state.widen(2)
    assert rows() == [a, a, c, c] and (state.rows, state.group) == (4, 2)
    state = twin.steady(5, 1, capacity=0)
    state.insert(twin, torch.tensor([4, 0, 2]))
    assert rows() == [b, 0, c, 0, a] and state.rows == 5
    state.move(torch.tensor([4, 2]), torch.tensor([1, 3]), 9)
    assert rows() == [b, a, c, c, a]
    for mine, its in zip(twin.parts(), before, strict=True):
        assert torch.equal(mine, its)
    again = twin.of([part.detach() for part in twin.parts()])
    assert not again.parts()[0].requires_grad and torch.equal(again.parts()[2], twin.parts()[2])


def test_a_state_at_fixed_addresses_steps_as_any_other():
    stack, _ = pair("lstm")
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    with torch.no_grad():
        _, free = stack(x[:, :2], stack.start(3, x))
        whole = free.steady(5, 1, capacity=0)
        whole.insert(free, torch.arange(3))
        room = whole.first(4, [])
        homes = room.parts()
        for t in range(2, 6):
            y, free = stack(x[:, t : t + 1], free)
            padded = torch.cat([x[:, t : t + 1], x[:1, :1]])  # a row that nobody reads
            found, new = stack(padded, room)
            room = new
            room.settle(homes)
            torch.testing.assert_close(found[:3], y)
            assert all(a is b for a, b in zip(room.parts(), homes, strict=True))
    torch.testing.assert_close([part[:3] for part in whole.parts()], free.parts())


@each_cell
def test_held_rows_are_packed_rows_gradients_too(kind):
    stack, _ = pair(kind)
    x = torch.randn(4, 6, 5, dtype=torch.float64, requires_grad=True)
    lengths, first, found = torch.tensor([2, 6, 0, 4]), drawn(stack.start(4, x)), []
    for holds in (False, True):
        for layer in stack.layers:
            layer.holds = holds
        y, state = stack(x, first, lengths)
        whole = (y**2).sum() + sum((part**2).sum() for part in state.parts())
        found.append([y, *state.parts(), *torch.autograd.grad(whole, [x, *stack.parameters()])])
    for packed, held in zip(*found, strict=True):
        torch.testing.assert_close(held, packed)
