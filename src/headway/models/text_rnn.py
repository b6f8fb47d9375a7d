"""A recurrent encoder of a text: RNN, LSTM or GRU over its words.

With `head.pooling=last` the last state stands for the text.

B batch, T length, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from torch import nn

from headway.models.protocols import Encoded, Encodes
from headway.models.recurrent import Gru, Lstm, Rnn
from headway.nn import tap
from headway.nn.dropout import Dropout
from headway.nn.embedding import token_table
from headway.nn.recurrent import RecurrentLayer, RecurrentStack

STD = 0.1


@dataclass(frozen=True)
class TextRnnConfig:
    """`dropout`: of words and between layers, and that of a head which has none of its own."""

    name: ClassVar[str] = "text-rnn"
    cell: Rnn | Lstm | Gru = field(default_factory=Lstm)
    layers: int = 1
    width: int = 300
    dropout: float = 0.5
    max_length: int = 512


@final
class TextRnn(Encodes):
    """h_t = cell(E[x_t], h_{t−1}) of every word."""

    def __init__(self, config: TextRnnConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.context = config, config.max_length
        self.width, self.dropout = config.width, config.dropout
        self.embed = token_table(vocabulary, config.width, STD)
        layers = [RecurrentLayer(config.cell.build(config.width, config.width, 0.0)) for _ in range(config.layers)]
        self.states = RecurrentStack(layers, Dropout(config.dropout), Dropout(config.dropout), nn.Identity())

    @property
    def table(self) -> nn.Embedding:
        return self.embed

    def encode(self, inputs: Any) -> Encoded:
        """Rows are padded on the right: padding is read last, so that no word depends on it."""
        x_BTD = tap.save(self.embed, "tokens", self.embed(inputs.ids_BT))
        states_BTD, _ = self.states(x_BTD, self.states.start(len(x_BTD), x_BTD))
        return Encoded(states_BTD, inputs.lengths_B)
