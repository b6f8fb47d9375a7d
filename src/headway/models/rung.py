"""The ladder from the bag of words to the Transformer (Artzi, CS5740, "Neural Language Models and Transformers").

Every rung is the same block, z = around(mix(x)), h = around(feed_forward(z)), with other parts in its slots; `RUNGS`
names them in their order, and each differs from the one before in one line.

B batch, T length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.models import parts
from headway.models.language import DecoderOnly
from headway.nn import attention, bag, feed_forward, residual
from headway.nn.attention import SelfAttention
from headway.nn.block import INTO_SUM, Stack
from headway.nn.embedding import AppendOne, StepEmbedding, biased_head, token_table
from headway.nn.slots import Slot
from headway.nn.state import State

SOFT = 0.2  # of their usual size: the weights that write into a residual sum, at the start


@dataclass(frozen=True)
class Uniform:
    """All past words alike: the bag of words."""

    name: ClassVar[str] = "uniform"
    heads: ClassVar[int] = 1

    def build(self, width: int) -> bag.RunningMean:
        return bag.RunningMean()

    def slots(self, caches: Sequence[Slot], zero_RD: Tensor) -> list[Slot]:
        return [bag.Total(zero_RD) for _ in caches]


@dataclass(frozen=True)
class Attention:
    """Past words, weighed by the query of the latest one."""

    name: ClassVar[str] = "attention"
    heads: int = 1

    def build(self, width: int) -> SelfAttention:
        return SelfAttention(width, self.heads)

    def slots(self, caches: Sequence[Slot], zero_RD: Tensor) -> Sequence[Slot]:
        return caches


@dataclass(frozen=True)
class Unprojected(Attention):
    """Past words, weighed by how like the latest one they are: no W^Q, W^K, W^V, Wᴼ."""

    name: ClassVar[str] = "unprojected"

    def build(self, width: int) -> SelfAttention:
        return attention.Unprojected(width, self.heads)


@dataclass(frozen=True)
class Tanh:
    """One layer of the same width, with the head behind it: Bengio's network without its direct path."""

    name: ClassVar[str] = "tanh"

    def build(self, width: int, inner: int) -> nn.Module:
        return feed_forward.TanhLayer(width, width)


@dataclass(frozen=True)
class RungConfig:
    """`inner`: 0 for four times the width. Every rung reads at most `max_length` tokens, those too that could read
    more, so that all are judged alike."""

    name: ClassVar[str] = "rung"
    mixing: Uniform | Attention | Unprojected = field(default_factory=Uniform)
    position: parts.Position = field(default_factory=parts.NoPosition)
    norm: parts.NoNorm | parts.PostNorm | parts.PreNorm = field(default_factory=parts.NoNorm)
    feed_forward: Tanh | parts.Relu | parts.Gelu | parts.Gated = field(default_factory=Tanh)
    layers: int = 1
    width: int = 128
    inner: int = 0
    dropout: float = 0.0
    tied: bool = False
    max_length: int = 64

    def __post_init__(self) -> None:
        heads = self.mixing.heads
        if heads < 1 or self.width % heads:
            raise InputError(f"model.width {self.width} is not a multiple of model.mixing.heads {heads}")


BAG = RungConfig()
ATTENTION = replace(BAG, mixing=Attention())
POSITIONS = replace(ATTENTION, position=parts.RelativeBias())
HEADS = replace(POSITIONS, mixing=Attention(heads=4))
BLOCK = replace(HEADS, norm=parts.PostNorm(), feed_forward=parts.Gelu())
STACK = replace(BLOCK, layers=4)

RUNGS = {
    "bow": BAG, "attention": ATTENTION, "positions": POSITIONS, "heads": HEADS, "block": BLOCK, "stack": STACK,
}  # fmt: skip


@final
class Rung(DecoderOnly):
    """p(x_{i+1} | x_1 … x_i) = softmax(W″h_i + b″), h_i = block(… block(φ(x_1) + φ_p(1), … φ(x_i) + φ_p(i)))."""

    def __init__(self, config: RungConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        width, norm = config.width, config.norm
        table = token_table(vocabulary, width)
        position = config.position.build(parts.Room(width, config.mixing.heads, config.max_length))
        self.embed = StepEmbedding(table, position, config.dropout)
        feed_forward = partial(config.feed_forward.build, width, config.inner or 4 * width)
        mixing, residual = partial(config.mixing.build, width), norm.residual(width, config.dropout)
        self.decoder = Stack(config.layers, norm.final(width), mixing, feed_forward, residual)
        self._soften()
        self.into_head = AppendOne()
        self.output = biased_head(width, vocabulary, table if config.tied else None)

    def _soften(self) -> None:
        """What is added to a residual sum starts small: a fresh block then hands on what it was given."""
        for block in self.decoder.layers:
            if isinstance(block.around_attention, residual.Residual):
                for name, weight in block.named_parameters():
                    if name.endswith(INTO_SUM):
                        weight.data.mul_(SOFT)

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        state = super().start(inputs, rows, device, room)
        wide = torch.promote_types(self.embed.table.weight.dtype, torch.float32)
        zero_RD = torch.zeros(rows, self.config.width, dtype=wide, device=device)
        state.slots = {"caches": self.config.mixing.slots(state["caches"], zero_RD)}
        return state
