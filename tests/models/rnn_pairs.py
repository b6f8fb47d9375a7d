"""Recurrent encoder-decoders of every kind, and the same written out by hand with torch's cells."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from headway.models.recurrent import Lstm, Rnn
from headway.models.rnn_seq2seq import (
    ConvolutionalEncoder,
    Dot,
    Multiplicative,
    NoAttention,
    RnnSeq2Seq,
    RnnSeq2SeqConfig,
    ScaledDot,
)
from headway.nn.recurrent import GRUCell, LSTMCell, RNNCell

CPU = torch.device("cpu")
SMALL = RnnSeq2SeqConfig(width=12, dropout=0.3, max_length=64)
PLAIN = replace(SMALL, attention=NoAttention(), direction="backwards", start="copied")
EACH = {
    "gru": SMALL,
    "lstm": replace(SMALL, cell=Lstm(), encoder_layers=2, decoder_layers=2, embeddings="separate"),
    "rnn": replace(SMALL, cell=Rnn(), decoder_layers=2, embeddings="tied"),
    "plain": replace(PLAIN, cell=Lstm(), encoder_layers=2, decoder_layers=2),
    "plain-gru": replace(PLAIN, direction="both", embeddings="separate", embedding=7, bias=True),
    "plain-rnn": replace(PLAIN, cell=Rnn(), direction="forwards"),
    "one-way": replace(SMALL, cell=Lstm(), direction="forwards", attention=Dot()),
    "reversed": replace(SMALL, direction="backwards", attention=Multiplicative(), bias=True),
    "before": replace(SMALL, cell=Lstm(), decoder_layers=2, form="before"),
    "before-scaled": replace(SMALL, form="before", attention=ScaledDot(), embeddings="separate", embedding=8),
    "feeding": replace(SMALL, cell=Lstm(), decoder_layers=2, form="feeding", attention=Multiplicative()),
    "feeding-dot": replace(SMALL, form="feeding", attention=Dot(), encoder_layers=2),
    "scaled": replace(SMALL, cell=Lstm(), attention=ScaledDot()),
}
CONVOLVED = replace(SMALL, encoder=ConvolutionalEncoder(), encoder_layers=2)
ATTENTIVE = {name: config for name, config in EACH.items() if "plain" not in name}
each_config = pytest.mark.parametrize("config", EACH.values(), ids=EACH)
LENGTHS = torch.tensor([6, 1, 4])


def build(config, vocabulary=30, sharp=1.0, seed=0):
    torch.manual_seed(seed)
    model = RnnSeq2Seq(config, vocabulary, vocabulary).double().eval()
    with torch.no_grad():
        model.head.weight.mul_(sharp)
    return model


def pairs(vocabulary=30):
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(vocabulary, (3, length), generator=generator) for length in (6, 5))


def copied(oracle, cells):
    """torch's module with the weights of these cells, one for each layer and direction."""
    ends = [name.removeprefix("weight_ih") for name, _ in oracle.named_parameters() if name.startswith("weight_ih")]
    with torch.no_grad():
        for end, cell in zip(ends, cells, strict=True):
            getattr(oracle, f"weight_ih{end}").copy_(cell.from_input.weight)
            getattr(oracle, f"weight_hh{end}").copy_(cell.from_state.weight)
            getattr(oracle, f"bias_ih{end}").copy_(cell.from_input.bias)
            bias = cell.from_state.bias
            getattr(oracle, f"bias_hh{end}").copy_(torch.zeros_like(cell.from_input.bias) if bias is None else bias)
    return oracle


def torch_encoder(model):
    config = model.config
    kind = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[config.cell.name]
    both = [part.cell for layer in model.encoder.layers for part in (layer.forwards, layer.backwards)]
    how = {"batch_first": True, "bidirectional": True, "dtype": torch.float64}
    return copied(kind(config.narrow, config.width // 2, config.encoder_layers, **how), both)


def score(cross, kind, d_D, h_D):
    """Of one query and one key, as the papers write it."""
    if kind == "additive":
        return cross.score.v.weight[0] @ torch.tanh(cross.query.weight @ d_D + cross.key_value.weight @ h_D)
    if kind == "dot":
        return d_D @ h_D
    if kind == "multiplicative":
        return d_D @ cross.key_value.weight @ h_D
    return (cross.query.weight @ d_D) @ (cross.key_value.weight @ h_D) / len(d_D) ** 0.5


def context(cross, kind, d_D, h_SD):
    """Σ_s a_s h_s, number by number."""
    powers = [score(cross, kind, d_D, h_D).exp() for h_D in h_SD]
    return sum(power / sum(powers) * h_D for power, h_D in zip(powers, h_SD, strict=True))


def torch_cell(cell):
    """torch's cell with the same weights."""
    kind = {LSTMCell: nn.LSTMCell, GRUCell: nn.GRUCell, RNNCell: nn.RNNCell}[type(cell)]
    made = kind(cell.from_input.in_features, cell.width).double()
    with torch.no_grad():
        made.weight_ih.copy_(cell.from_input.weight)
        made.weight_hh.copy_(cell.from_state.weight)
        made.bias_ih.copy_(cell.from_input.bias)
        made.bias_hh.copy_(torch.zeros(()) if cell.from_state.bias is None else cell.from_state.bias)
    return made


def run_cell(cell, x_D, state):
    """The next state, as a tuple, of a single row."""
    given = state if len(state) > 1 else state[0]
    found = cell(x_D[None], tuple(part[None] for part in given) if len(state) > 1 else given[None])
    return tuple(part[0] for part in found) if len(state) > 1 else (found[0],)


def hand_encoded(model, ids):
    """h of each token, and the last state of each layer, by torch's cells step by step."""
    x, last = [row * model.config.narrow**0.5 for row in model.embed_source.table.weight[ids]], []
    for layer in model.encoder.layers:
        sides, ends = [], []
        for direction in model.config.directions:
            cell = torch_cell(getattr(layer, direction).cell)
            state = tuple(torch.zeros(cell.hidden_size).double() for _ in getattr(layer, direction).cell.parts)
            outputs = []
            for x_D in x if direction == "forwards" else x[::-1]:
                state = run_cell(cell, x_D, state)
                outputs.append(state[0])
            sides.append(outputs if direction == "forwards" else outputs[::-1])
            ends.append(state)
        x = [torch.cat(parts) for parts in zip(*sides, strict=True)]
        last.append(tuple(torch.cat(parts) for parts in zip(*ends, strict=True)))
    return torch.stack(x), last


def hand_started(model, h_SD, last):
    config = model.config
    if config.start == "copied":
        return list(last)
    seen = h_SD[-1] if config.direction == "forwards" else h_SD[0]
    mapped = torch.tanh(model.first.weight @ seen[-model.first.in_features :] + model.first.bias)
    given = iter(mapped.split(config.width))
    return [tuple(next(given) for _ in layer.cell.parts) for layer in model.decoder.layers]


def hand_logits(model, source, target):
    """The whole model for one pair, word by word."""
    config, kind = model.config, model.config.attention.name
    h_SD, last = hand_encoded(model, source)
    states, top, rows = hand_started(model, h_SD, last), model.decoder.layers[-1], []
    cells = [torch_cell(layer.cell) for layer in model.decoder.layers]
    fed = torch.zeros(config.width).double()
    for y in target:
        x = model.embed_target.table.weight[y] * config.narrow**0.5
        if config.form == "before":
            c = context(top.cross, kind, states[-1][0], h_SD)
            x = torch.cat([x, c])
        if config.form == "feeding":
            x = torch.cat([x, fed])
        for number, cell in enumerate(cells):
            states[number] = run_cell(cell, x, states[number])
            x = states[number][0]
        if kind != "none":
            c = c if config.form == "before" else context(top.cross, kind, x, h_SD)
            x = fed = torch.tanh(top.cross.output.weight @ c + top.combine.weight @ x + top.combine.bias)
        rows.append(model.head.weight @ (torch.cat([x, x.new_ones(1)]) if config.bias else x))
    return torch.stack(rows)
