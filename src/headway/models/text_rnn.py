"""A recurrent encoder of a text: RNN, LSTM or GRU over its words, in one direction or both.

With `head.pooling=last` the last state stands for the text. With `direction=both` and letters it is the encoder of a
tagger (Lample et al. 2016, Ma and Hovy 2016).

B batch, T length, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

from torch import Tensor, nn

from headway.errors import refuse
from headway.models.configs import letters
from headway.models.letters import Letters, NoLetters
from headway.models.protocols import Encoded, Encodes
from headway.models.recurrent import Gru, Lstm, Rnn
from headway.nn import tap
from headway.nn.directed import BACKWARDS, FORWARDS, DirectedLayer, DirectedStack
from headway.nn.dropout import Dropout
from headway.nn.embedding import token_table
from headway.nn.recurrent import RecurrentLayer, RecurrentStack

STD = 0.1


@dataclass(frozen=True)
class TextRnnConfig:
    """`dropout`: of words and between layers, and that of a head which has none of its own. `direction`: with `both`
    each has half the width. `words`: the width of their vectors (0: `width`). `letters`: what is read of a word beside
    its vector."""

    name: ClassVar[str] = "text-rnn"
    cell: Rnn | Lstm | Gru = field(default_factory=Lstm)
    layers: int = 1
    width: int = 300
    dropout: float = 0.5
    max_length: int = 512
    direction: Literal["forwards", "both"] = "forwards"
    words: int = 0
    letters: Letters = field(default_factory=NoLetters)

    def __post_init__(self) -> None:
        refuse(self.words < 0, f"model.words must be 0 (as model.width) or more, not {self.words}")
        refuse(
            self.direction == "both" and self.width % 2,
            f"model.direction=both gives each half of model.width, which must be even, not {self.width}",
        )


class OneWay(RecurrentStack):
    """h_t = cell(x_t, h_{t−1}). Rows are padded on the right: padding is read last, so that no word depends on it."""

    def __init__(self, config: TextRnnConfig, inputs: int) -> None:
        widths = [inputs, *[config.width] * (config.layers - 1)]
        layers = [RecurrentLayer(config.cell.build(below, config.width, 0.0)) for below in widths]
        super().__init__(layers, Dropout(config.dropout), Dropout(config.dropout), nn.Identity())

    def read(self, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
        states_BTD: Tensor = self(x_BTD, self.start(len(x_BTD), x_BTD))[0]
        return states_BTD


class BothWays(DirectedStack):
    """[h→_t; h←_t] (Schuster and Paliwal 1997)."""

    def __init__(self, config: TextRnnConfig, inputs: int) -> None:
        layers, half = [], config.width // 2
        for below in [inputs, *[config.width] * (config.layers - 1)]:
            cells = {direction: config.cell.build(below, half, 0.0) for direction in (FORWARDS, BACKWARDS)}
            layers.append(DirectedLayer(cells))
        super().__init__(layers, Dropout(config.dropout))
        self.inputs = Dropout(config.dropout)

    def read(self, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
        states_BTD: Tensor = self(self.inputs(x_BTD), lengths_B).x_BSD
        return states_BTD


WAYS: dict[str, type[OneWay | BothWays]] = {"forwards": OneWay, "both": BothWays}


@final
class TextRnn(Encodes):
    """The states of every word's vector, with its letters where they are read."""

    def __init__(self, config: TextRnnConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.context = config, config.max_length
        self.width, self.dropout = config.width, config.dropout
        self.embed = token_table(vocabulary, config.words or config.width, STD)
        self.spelling, self.letters = config.letters.build(), letters(config)
        self.states = WAYS[config.direction](config, self.embed.embedding_dim + self.spelling.width)

    @property
    def table(self) -> nn.Embedding:
        return self.embed

    def encode(self, inputs: Any) -> Encoded:
        x_BTD = self.spelling(tap.save(self.embed, "tokens", self.embed(inputs.ids_BT)), inputs.letters_BTC)
        return Encoded(self.states.read(x_BTD, inputs.lengths_B), inputs.lengths_B)
