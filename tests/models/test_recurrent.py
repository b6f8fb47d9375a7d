"""Recurrent language models: the same whether a text is read whole, in parts, padded or packed, and as torch has it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from headway.errors import InputError
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.models.recurrent import SIZES, Gru, Locked, Lstm, Recurrent, RecurrentConfig, Rnn, Stepwise
from headway.nn import tap
from headway.plain import change, from_plain, to_plain

SMALL = RecurrentConfig(width=12, max_length=8)
EACH = {
    "rnn": replace(SMALL, cell=Rnn()),
    "lstm": SMALL,
    "gru": replace(SMALL, cell=Gru(), layers=3, first="learned"),
    "awd": replace(SMALL, embedding=5, tied=True, dropout=Locked(), layers=3),
}
each_config = pytest.mark.parametrize("config", EACH.values(), ids=EACH)


def build(config, vocabulary=37):
    torch.manual_seed(0)
    model = Recurrent(config, vocabulary).double().eval()
    for name, weight in model.named_parameters():
        if ".first." in name:
            nn.init.normal_(weight)
    return model


def test_the_model_is_torchs_lstm_between_two_tables():
    model = build(SMALL)
    oracle = nn.LSTM(12, 12, 2, batch_first=True).double()
    with torch.no_grad():
        for at, layer in enumerate(model.stack.layers):
            getattr(oracle, f"weight_ih_l{at}").copy_(layer.cell.from_input.weight)
            getattr(oracle, f"weight_hh_l{at}").copy_(layer.cell.from_state.weight)
            getattr(oracle, f"bias_ih_l{at}").copy_(layer.cell.from_input.bias)
            getattr(oracle, f"bias_hh_l{at}").zero_()
    ids = torch.randint(37, (3, 9))
    expected = oracle(model.table.weight[ids])[0] @ model.output.weight[:37].T
    torch.testing.assert_close(model(ids)[0], expected)


@each_config
def test_a_text_read_in_parts_is_the_text_read_whole(config):
    model, ids = build(config), torch.randint(37, (2, 11))
    whole, last = model(ids)
    state, parts = None, []
    for start, end in ((0, 4), (4, 5), (5, 11)):
        logits, state = model(ids[:, start:end], state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(state.parts(), last.parts())


@each_config
def test_padded_rows_go_on_as_each_would_alone(config):
    model, ids = build(config), torch.randint(37, (3, 6))
    lengths = torch.tensor([6, 0, 3])
    _, state = model.read(ids, lengths_R=lengths)
    following = torch.randint(37, (3, 2))
    together, _ = model(following, state)
    for row, length in enumerate(lengths.tolist()):
        text = torch.cat([ids[row, :length], following[row]])[None]
        torch.testing.assert_close(together[row], model(text)[0][0, length:])


@each_config
def test_packed_documents_do_not_see_each_other(config):
    model, ids = build(config), torch.randint(37, (1, 10))
    packed = model.score(ids, torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1, 1]]))
    torch.testing.assert_close(packed[:, :5], model.score(ids[:, :5]))
    torch.testing.assert_close(packed[:, 5:], model.score(ids[:, 4:])[:, 1:])


@each_config
def test_a_trace_changes_nothing_and_shows_the_gates(config):
    model, ids = build(config), torch.randint(37, (2, 7))
    expected, _ = model(ids)
    with tap.record(model) as seen:
        logits, _ = model(ids)
    torch.testing.assert_close(logits, expected)
    width = model.stack.layers[0].cell.width
    assert seen.tensors["stack.0.hidden"].shape == (2, 7, width)
    if config.cell.name != "rnn":
        gate = seen.tensors["stack.1.forget" if config.cell.name == "lstm" else "stack.1.update"]
        assert gate.min() > 0 and gate.max() < 1


def test_tied_weights_are_one_table_and_the_last_layer_fits_it():
    model = build(EACH["awd"])
    assert model.output.weight is model.table.weight and model.table.weight.shape == (64, 5)
    assert [layer.cell.width for layer in model.stack.layers] == [12, 12, 5]
    model.train()
    model(torch.randint(37, (2, 4)))[0].sum().backward()
    assert model.table.weight.grad.abs().sum() > 0


def test_dropout_is_drawn_in_training_only_and_where_it_was_asked_for():
    ids = torch.randint(37, (2, 6))
    for dropout in (Stepwise(0.5), Locked()):
        model = build(replace(SMALL, dropout=dropout))
        assert torch.equal(model(ids)[0], model(ids)[0])
        model.train()
        assert not torch.equal(model(ids)[0], model(ids)[0])
    model = build(replace(SMALL, dropout=Locked(0.0, 0.0, 0.5, 0.0, 0.0))).train()
    hidden, _ = model.read(ids)
    dropped = hidden == 0
    assert dropped.any() and torch.equal(dropped, dropped[:, :1].expand_as(dropped))


def test_the_published_sizes_have_the_published_counts():
    """AWD-LSTM's published code has 24,221,600: a second bias for each gate and one in the head are not needed here."""
    awd = 24_221_600 - 4 * (1150 + 1150 + 400) - 10_000
    medium = 2 * 10_000 * 650 + 2 * 4 * 650 * (650 + 650 + 1)
    for size, expected in (("medium", medium), ("awd", awd)):
        with torch.device("meta"):
            model = Recurrent(SIZES[size], 10_000)
        padding = (model.table.num_embeddings - 10_000) * model.table.embedding_dim
        count = sum(weight.numel() for weight in model.parameters())
        count -= padding * (1 if SIZES[size].tied else 2)
        assert count == expected


def test_a_new_lstm_remembers_when_it_is_told_to():
    open_, half = (build(replace(SMALL, cell=Lstm(forget))).stack.layers[0].cell for forget in (1.0, 0.0))
    torch.testing.assert_close(open_.from_input.bias[12:24] - half.from_input.bias[12:24], torch.ones(12).double())
    torch.testing.assert_close(open_.from_input.bias[:12], half.from_input.bias[:12])


def test_a_config_is_plain_and_says_what_is_wrong_with_it():
    config = EACH["awd"]
    assert from_plain(RecurrentConfig, to_plain(config)) == config
    changed = change(SMALL, ["cell=gru", "dropout=locked", "dropout.weights=0.3"])
    assert changed.cell == Gru() and changed.dropout == Locked(weights=0.3)
    with pytest.raises(InputError, match=r"model\.dropout\.weights must be at least 0 and below 1, not 1"):
        change(SMALL, ["dropout=locked", "dropout.weights=1"])
    with pytest.raises(InputError, match=r"model\.embedding must be at least 0"):
        replace(SMALL, embedding=-1)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_rows_are_continued_as_each_would_be_alone(kind):
    """Prompts of different lengths, one of a single token, admitted and stepped together."""
    model = build(EACH[kind])
    with torch.no_grad():
        model.output.weight.mul_(20)  # so that choices differ
    texts = [[5], [7, 8, 9], list(range(4, 30)), [3] * 60]
    prompts = [Request(ids, Sampling(0), max_new=12, stops=frozenset()) for ids in texts]
    written = generate_all(model, prompts, context=1 << 30, device=torch.device("cpu"))
    for ids, (found,) in zip(texts, written, strict=True):
        text = list(ids)
        for _ in range(12):
            text.append(int(model(torch.tensor([text]))[0][0, -1].argmax()))
        assert found.ids == text[len(ids) :]
