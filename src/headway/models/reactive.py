"""A policy without a memory: an action from the state alone. What it learns from trajectories is called cloning.

B rows, T steps, S width of a state, A width of an action, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import nn

from headway.errors import refuse
from headway.models.protocols import Acts, Encoded
from headway.nn.dropout import Dropout


@dataclass(frozen=True)
class ReactiveConfig:
    """layers: hidden ones. wanted: whether it is told the return to reach, too. max_length: steps of a row, each of
    which stands alone."""

    name: ClassVar[str] = "reactive"
    practises: ClassVar[bool] = True
    layers: int = 2
    width: int = 256
    dropout: float = 0.1
    wanted: bool = False
    max_length: int = 1

    def __post_init__(self) -> None:
        refuse(self.layers < 1, f"model.layers must be at least 1, not {self.layers}")


@final
class Reactive(Acts):
    """relu(… relu(sW + b) …)"""

    def __init__(self, config: ReactiveConfig, states: int, actions: int) -> None:
        super().__init__()
        self.config, self.width, self.dropout, self.context = config, config.width, config.dropout, config.max_length
        self.told = config.wanted
        widths = [states + config.wanted, *[config.width] * config.layers]
        self.layers = nn.Sequential(
            *(
                part
                for width, to in zip(widths, widths[1:], strict=False)
                for part in (nn.Linear(width, to), nn.ReLU(), Dropout(config.dropout))
            )
        )

    def encode(self, inputs: Any) -> Encoded:
        seen = [inputs.states_BTS, *([inputs.returns_BT[..., None]] if self.told else [])]
        x_BTS = torch.cat(seen, -1).to(next(self.parameters()).dtype)
        return Encoded(self.layers(x_BTS))
