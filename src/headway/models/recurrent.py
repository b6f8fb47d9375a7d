"""Recurrent language models: RNN, LSTM and GRU (Mikolov et al. 2010, Zaremba et al. 2014, Merity et al. 2018).

    h_t = cell(E[x_t], h_{t−1}),    p(x_{t+1} | x_≤t) = softmax(W h_t)

All that is known of the past is h: it has the same size after ten words and after ten thousand.

R rows, T length, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models.language import NextTokenModel
from headway.models.protocols import Embedded
from headway.nn import recurrent, tap
from headway.nn.dropout import Dropout, LockedDropout, WordDropout
from headway.nn.embedding import Head, padded
from headway.nn.state import State


@dataclass(frozen=True)
class Rnn:
    name: ClassVar[str] = "rnn"

    def build(self, inputs: int, width: int, spread: float) -> recurrent.Cell:
        return recurrent.RNNCell(inputs, width, spread)


@dataclass(frozen=True)
class Lstm:
    """`forget` is added to the forget gate's bias at the start: at 1 it is open, at 0 half open."""

    name: ClassVar[str] = "lstm"
    forget: float = 1.0

    def build(self, inputs: int, width: int, spread: float) -> recurrent.Cell:
        return recurrent.LSTMCell(inputs, width, spread, self.forget)


@dataclass(frozen=True)
class Gru:
    name: ClassVar[str] = "gru"

    def build(self, inputs: int, width: int, spread: float) -> recurrent.Cell:
        return recurrent.GRUCell(inputs, width, spread)


class Slots(NamedTuple):
    """Where dropout stands in a recurrent model; `weights` is a share of the matrices from state to state."""

    words: nn.Module
    inputs: nn.Module
    between: nn.Module
    outputs: nn.Module
    weights: float = 0.0


class _Shares:
    """Abstract: dropout whose fields are all shares."""

    def __post_init__(self) -> None:
        for share in fields(self):  # type: ignore[arg-type]
            value = getattr(self, share.name)
            refuse(not 0 <= value < 1, f"model.dropout.{share.name} must be at least 0 and below 1, not {value}")


@dataclass(frozen=True)
class Stepwise(_Shares):
    """A new mask at each step, on what goes into each layer and out of the last, never on the way from state to state
    (Zaremba et al. 2014)."""

    name: ClassVar[str] = "stepwise"
    share: float = 0.0

    def slots(self, vocabulary: int) -> Slots:
        part = Dropout(self.share)
        return Slots(WordDropout(0.0, vocabulary), part, part, part)


@dataclass(frozen=True)
class Locked(_Shares):
    """One mask for all steps of a window (Gal and Ghahramani 2016), with the shares that AWD-LSTM's code was published
    with for the Penn Treebank.

    weights: of the matrices from state to state. words: of the vocabulary, wherever they stand.
    """

    name: ClassVar[str] = "locked"
    inputs: float = 0.4
    between: float = 0.25
    outputs: float = 0.4
    weights: float = 0.5
    words: float = 0.1

    def slots(self, vocabulary: int) -> Slots:
        inputs, between, outputs = (LockedDropout(share) for share in (self.inputs, self.between, self.outputs))
        return Slots(WordDropout(self.words, vocabulary), inputs, between, outputs, self.weights)


@dataclass(frozen=True)
class RecurrentConfig:
    """embedding: its width (0: that of the layers). tied: one table for embedding and head; the last layer is then as
    wide as that. first: the state before the first word, zero or learned. spread: embedding and head are drawn from ±
    this (Adam learns slowly from small ones). cell_spread: the weights of the cells from ± this (0: 1/√width).
    max_length: steps through which a gradient goes back; the state is carried on beyond.
    """

    name: ClassVar[str] = "recurrent"
    cell: Rnn | Lstm | Gru = field(default_factory=Lstm)
    layers: int = 2
    width: int = 650
    embedding: int = 0
    tied: bool = False
    first: Literal["zero", "learned"] = "zero"
    dropout: Stepwise | Locked = field(default_factory=Stepwise)
    spread: float = 0.5
    cell_spread: float = 0.0
    max_length: int = 35

    def __post_init__(self) -> None:
        for name in ("embedding", "spread", "cell_spread"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"model.{name} must be at least 0, not {getattr(self, name)}")


SIZES = {
    "small": RecurrentConfig(Lstm(0.0), 2, 200, spread=0.1, cell_spread=0.1, max_length=20),
    "medium": RecurrentConfig(Lstm(0.0), 2, 650, dropout=Stepwise(0.5), spread=0.05, cell_spread=0.05),
    "large": RecurrentConfig(Lstm(0.0), 2, 1500, dropout=Stepwise(0.65), spread=0.04, cell_spread=0.04),
    "awd": RecurrentConfig(Lstm(0.0), 3, 1150, embedding=400, tied=True, dropout=Locked(), spread=0.1, max_length=70),
}


class Recurrent(NextTokenModel):
    """p(x_t | x_<t) = softmax(W h_{t−1}), h the last of a stack of recurrent layers."""

    carries: ClassVar[bool] = True

    def __init__(self, config: RecurrentConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        rows = padded(vocabulary)
        narrow = config.embedding or config.width
        widths = [narrow, *[config.width] * (config.layers - 1), narrow if config.tied else config.width]
        self.table = nn.Embedding(rows, narrow)
        slots = config.dropout.slots(rows)
        cells = (config.cell.build(a, b, config.cell_spread) for a, b in zip(widths, widths[1:], strict=False))
        layers = [recurrent.RecurrentLayer(cell, slots.weights) for cell in cells]
        self.words = slots.words
        learned = config.first == "learned"
        self.stack = recurrent.RecurrentStack(layers, slots.inputs, slots.between, slots.outputs, learned)
        self.output = Head(widths[-1], rows, self.table if config.tied else None)
        for table in (self.table, self.output):
            nn.init.uniform_(table.weight, -config.spread, config.spread)

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        return self.stack.start(rows, torch.empty(0, device=device, dtype=self.table.weight.dtype))

    def embed(
        self, ids_RT: Tensor, state: State, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        words_RTD = tap.save(self, "embed.tokens", self.words(self.table(ids_RT), ids_RT))
        return Embedded(words_RTD, lengths_R, segments_RT)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        anew_RT, segments_RT = None, embedded.segments_RT
        if segments_RT is not None:
            anew_RT = nn.functional.pad(segments_RT[:, 1:] != segments_RT[:, :-1], (1, 0))
        hidden_RTD, behind = self.stack(embedded.x_RTD, state, embedded.lengths_R, anew_RT)
        return hidden_RTD, state.renew(behind.parts())
