"""A Transformer over its own past: an action may depend on any of the last steps, which attention finds again.

B rows, T steps, L steps that are remembered, M numbers of them, S width of a state, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models import parts
from headway.models.protocols import Acts, Encoded
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.mask import Scene, Segments, Window
from headway.nn.position import Rotary


@dataclass(frozen=True)
class PolicyTransformerConfig:
    """past: steps before its own that each layer looks back to. max_length: steps of a row in training."""

    name: ClassVar[str] = "policy-transformer"
    practises: ClassVar[bool] = True
    layers: int = 2
    width: int = 64
    inner: int = 0
    heads: int = 4
    dropout: float = 0.0
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    feed_forward: parts.FeedForward = field(default_factory=parts.Relu)
    past: int = 32
    max_length: int = 32

    def __post_init__(self) -> None:
        refuse(self.past < 1, f"model.past must be at least 1, not {self.past}")


@final
class PolicyTransformer(Acts):
    """h = layers(relu(s_t W + b), those of the last steps). What is remembered are the inputs of so many steps that the
    last layer sees them through all others: read step by step or at once, the vectors are the same."""

    def __init__(self, config: PolicyTransformerConfig, states: int, actions: int) -> None:
        super().__init__()
        self.config, self.width, self.dropout = config, config.width, config.dropout
        self.kept = config.layers * config.past
        self.context = self.kept + 1
        self.memory = self.kept * (config.width + 1)
        self.embed = nn.Linear(states, config.width)
        self.decoder = Stack(
            config.layers,
            config.norm.final(config.width),
            partial(SelfAttention, config.width, config.heads, 0.0, None, True),
            partial(config.feed_forward.build, config.width, config.inner or 4 * config.width),
            config.norm.residual(config.width, config.dropout),
        )
        self.position = Rotary(config.width // config.heads, length=2 * self.kept)

    def entering(self, inputs: Any) -> Tensor:
        """(B, T, D + 1): what enters the first layer, each with a 1."""
        x_BTD = F.relu(self.embed(inputs.states_BTS.to(self.embed.weight.dtype)))
        return torch.cat([x_BTD, x_BTD.new_ones(*x_BTD.shape[:2], 1)], -1)

    def seen(self, x_BNE: Tensor) -> Tensor:
        """(B, N, D). A step without a 1 is none: no other looks at it."""
        length, there_BN = x_BNE.shape[1], x_BNE[..., -1].long()
        scene = Scene(length, length, x_BNE.device, query_segments_BT=there_BN, key_segments_BS=there_BN)
        view = (Window(self.config.past) & Segments()).view(scene).placed(self.position)
        return self.decoder.walk(x_BNE[..., :-1], [(view,)] * self.config.layers)

    def follow(self, inputs: Any, memory_RM: Tensor) -> tuple[Encoded, Tensor]:
        own_BTE = self.entering(inputs)
        before_BLE = memory_RM.to(own_BTE.dtype).unflatten(-1, (self.kept, self.width + 1))
        all_BNE = torch.cat([before_BLE, own_BTE], 1)
        return Encoded(self.seen(all_BNE)[:, self.kept :]), all_BNE[:, -self.kept :].flatten(1)

    def encode(self, inputs: Any) -> Encoded:
        if inputs.memory_BM is None:
            return Encoded(self.seen(self.entering(inputs)))
        return self.follow(inputs, inputs.memory_BM)[0]
