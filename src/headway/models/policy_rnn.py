"""A recurrent policy: what it has seen stays in its state, and an action may depend on what is no longer in sight.

B rows, T steps, M numbers that are remembered, S width of a state, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.models.protocols import Acts, Encoded
from headway.models.recurrent import Gru, Lstm, Rnn
from headway.nn.dropout import Dropout
from headway.nn.recurrent import RecurrentLayer, RecurrentStack


@dataclass(frozen=True)
class PolicyRnnConfig:
    """max_length: steps of a row in training, through which gradients flow back."""

    name: ClassVar[str] = "policy-rnn"
    practises: ClassVar[bool] = True
    cell: Rnn | Lstm | Gru = field(default_factory=Lstm)
    layers: int = 1
    width: int = 64
    dropout: float = 0.0
    max_length: int = 32


@final
class PolicyRnn(Acts):
    """h_t = cell(relu(s_t W + b), h_{t−1})"""

    def __init__(self, config: PolicyRnnConfig, states: int, actions: int) -> None:
        super().__init__()
        self.config, self.width, self.dropout = config, config.width, config.dropout
        self.embed = nn.Linear(states, config.width)
        cells = [config.cell.build(config.width, config.width, 0.0) for _ in range(config.layers)]
        drop = Dropout(config.dropout)
        self.states = RecurrentStack([RecurrentLayer(cell) for cell in cells], nn.Identity(), drop, nn.Identity())
        self.memory = sum(config.width * len(cell.parts) for cell in cells)

    def follow(self, inputs: Any, memory_RM: Tensor) -> tuple[Encoded, Tensor]:
        x_BTD = F.relu(self.embed(inputs.states_BTS.to(self.embed.weight.dtype)))
        before = self.states.start(len(x_BTD), x_BTD).of(list(memory_RM.to(x_BTD.dtype).split(self.width, -1)))
        h_BTD, behind = self.states(x_BTD, before)
        return Encoded(h_BTD), torch.cat(behind.parts(), -1)

    def encode(self, inputs: Any) -> Encoded:
        memory_BM = inputs.memory_BM
        if memory_BM is None:
            memory_BM = self.start(len(inputs.states_BTS), inputs.states_BTS.device)
        return self.follow(inputs, memory_BM)[0]
