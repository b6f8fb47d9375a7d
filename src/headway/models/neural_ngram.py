"""The neural n-gram (Bengio et al. 2003, "A Neural Probabilistic Language Model").

R rows, T length, N words that it sees (one fewer than its order), E embedding width, D width of what the head reads,
V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from headway.errors import InputError, refuse
from headway.models.language import NextTokenModel
from headway.models.protocols import Embedded
from headway.nn import tap
from headway.nn.dropout import Dropout
from headway.nn.embedding import biased_head, token_table
from headway.nn.feed_forward import TanhLayer
from headway.nn.slots import BLANK, Recent
from headway.nn.state import State


@dataclass(frozen=True)
class NeuralNGramConfig:
    """order: a word is predicted from the `order` − 1 before it. width: of a word's vector; hidden: of the tanh layer.
    direct: the path Wx past that layer. tied: U is the table of the words' vectors (then hidden = width).
    max_length: tokens in a row of a training batch; the model reads any number.
    """

    name: ClassVar[str] = "neural-ngram"
    order: int = 5
    width: int = 64
    hidden: int = 128
    direct: bool = True
    tied: bool = False
    dropout: float = 0.0
    max_length: int = 64

    def __post_init__(self) -> None:
        refuse(self.order < 2, f"model.order must be at least 2, not {self.order}: of order 1 nothing would be seen")
        refuse(self.hidden < 1, f"model.hidden must be at least 1, not {self.hidden}")
        if self.tied and self.hidden != self.width:
            raise InputError(f"model.tied needs model.hidden equal to model.width: {self.hidden} is not {self.width}")


@final
class NeuralNGram(NextTokenModel):
    """p(x_i | x_{i−1} … x_{i−n+1}) = softmax(y), y = b + Wx + U tanh(d + Hx), x = [φ(x_{i−1}); … ; φ(x_{i−n+1})]."""

    def __init__(self, config: NeuralNGramConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        self.reach = config.order - 2  # positions that it looks back
        seen = (config.order - 1) * config.width
        self.table = token_table(vocabulary, config.width)
        self.layer = TanhLayer(seen, config.hidden)
        self.dropout = Dropout(config.dropout)
        # [U W b] is one matrix, and what it is multiplied with [tanh(d + Hx); x; 1].
        columns = (seen if config.direct else 0) + 1
        tied = self.table if config.tied else None
        self.output = biased_head(config.hidden, vocabulary, tied, columns, drawn=True)

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        return State({"last": [Recent.start(rows, self.config.order - 1, device)]})

    def embed(
        self, ids_RT: Tensor, state: State, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        (last,) = state["last"]
        seen_RTN = last.read(ids_RT, lengths_R)
        if segments_RT is not None:
            # What belongs to another document is as if it had not been written.
            of_RTN = Recent(segments_RT[:, :1].expand(-1, seen_RTN.shape[2])).read(segments_RT)
            seen_RTN = seen_RTN.masked_fill(of_RTN != segments_RT[..., None], BLANK)
        scale = self.config.width**0.5  # vectors of unit variance, as a head tied to them wants them small
        return Embedded(self.dropout((self.table(seen_RTN) * scale).flatten(2)), lengths_R, segments_RT)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        x_RTE = embedded.x_RTD
        if tap.recording():  # of each place's own word
            tap.save(self, "embed.tokens", x_RTE[..., -self.config.width :])
        layer_RTD = tap.save(self, "layer.hidden", self.dropout(self.layer(x_RTE)))
        direct = (x_RTE,) if self.config.direct else ()
        return torch.cat([layer_RTD, *direct, torch.ones_like(x_RTE[..., :1])], -1), state
