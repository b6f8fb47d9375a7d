"""Mamba: a language model of selective state spaces, whose state does not grow with the text (Gu and Dao 2023).

B batch, R rows, T length, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from headway.models.language import NextTokenModel
from headway.models.llama import RmsNorm
from headway.models.protocols import Embedded
from headway.nn import tap
from headway.nn.block import BlockStack
from headway.nn.embedding import Head, token_table
from headway.nn.state import State
from headway.nn.state_space import SelectiveStates, StateSpaceBlock

STD = 0.02


@dataclass(frozen=True)
class MambaConfig:
    """`expand`: the inner width over the width. `states`: numbers of a state for each inner one. `taps`: tokens that
    the convolution sees. `rank`: of the map to the step sizes (0: a sixteenth of the width). `max_length`: tokens of a
    window in training; a text may be of any length."""

    name: ClassVar[str] = "mamba"
    layers: int = 4
    width: int = 256
    expand: int = 2
    states: int = 16
    taps: int = 4
    rank: int = 0
    bias: bool = False
    taps_bias: bool = True
    tied: bool = True
    norm: RmsNorm = field(default_factory=lambda: RmsNorm(1e-5))
    max_length: int = 512


@final
class Mamba(NextTokenModel):
    """p(x_t | x_<t) = softmax(head(blocks(x_<t)))."""

    carries: ClassVar[bool] = True

    def __init__(self, config: MambaConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        width, rank = config.width, config.rank or -(-config.width // 16)
        self.table = token_table(vocabulary, width, STD)
        blocks = [
            StateSpaceBlock(
                SelectiveStates(
                    width, config.expand * width, config.states, config.taps, rank, config.bias, config.taps_bias
                ),
                config.norm.build(width),
            )
            for _ in range(config.layers)
        ]
        self.decoder = BlockStack(blocks, config.norm.build(width))
        self.output = Head(width, vocabulary, self.table if config.tied else None)

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        like = torch.empty(0, device=device, dtype=self.table.weight.dtype)
        return State({"layers": [block.mix.start(rows, like) for block in self.decoder.layers]})

    def embed(
        self, ids_RT: Tensor, state: State, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        return Embedded(tap.save(self, "embed.tokens", self.table(ids_RT)), lengths_R, segments_RT)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, Any]:
        given = [(slot, embedded.lengths_R, embedded.segments_RT) for slot in state["layers"]]
        return self.decoder.walk(embedded.x_RTD, given), state
