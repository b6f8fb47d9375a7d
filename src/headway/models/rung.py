"""The ladder from the bag of words to the Transformer (Artzi, CS5740, "Neural Language Models and Transformers").

Every rung is the same block, z = around(mix(x)), h = around(feed_forward(z)), with other parts in its slots; `RUNGS`
names them in their order, and each differs from the one before in one line.

B batch, T length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.models import parts
from headway.models.decoder_only import DecoderOnly, caches
from headway.nn import bag, feed_forward, residual
from headway.nn.attention import SelfAttention
from headway.nn.block import INTO_SUM, Block, Stack
from headway.nn.cache import fresh_caches
from headway.nn.embedding import AppendOne, Head, JoinedHead, StepEmbedding, token_table
from headway.nn.state import State

SOFT = 0.2  # of their usual size: the weights that write into a residual sum, at the start


@dataclass(frozen=True)
class Uniform:
    """All past words alike: the bag of words."""

    name: ClassVar[str] = "uniform"
    heads: ClassVar[int] = 1

    def build(self, width: int) -> bag.RunningMean:
        return bag.RunningMean()

    def start(self, layers: int, rows: int, like: Tensor, room: int | None) -> State:
        _, clock = fresh_caches(0, rows, like.device, room)
        sums = (
            like.new_zeros(rows, like.shape[1], dtype=torch.promote_types(like.dtype, torch.float32))
            for _ in range(layers)
        )
        return State({"caches": [bag.Total(sum_RD) for sum_RD in sums]}, clock)


@dataclass(frozen=True)
class Attention:
    """Past words, weighed by the query of the latest one."""

    name: ClassVar[str] = "attention"
    heads: int = 1

    def build(self, width: int) -> SelfAttention:
        return SelfAttention(width, self.heads)

    def start(self, layers: int, rows: int, like: Tensor, room: int | None) -> State:
        return caches(layers, rows, like.device, room)


@dataclass(frozen=True)
class Tanh:
    """One layer of the same width, with the head behind it: Bengio's network without its direct path."""

    name: ClassVar[str] = "tanh"

    def build(self, width: int, inner: int) -> nn.Module:
        return feed_forward.TanhLayer(width, width)


@dataclass(frozen=True)
class NoNorm:
    """Neither norm nor residual."""

    name: ClassVar[str] = "none"

    def residual(self, width: int, dropout: float) -> Callable[[], residual.Bare]:
        return lambda: residual.Bare(dropout)

    def final(self, width: int) -> nn.Module:
        return nn.Identity()


@dataclass(frozen=True)
class RungConfig:
    """`inner`: 0 for four times the width. Every rung reads at most `max_length` tokens, those too that could read
    more, so that all are judged alike."""

    name: ClassVar[str] = "rung"
    mixing: Uniform | Attention = field(default_factory=Uniform)
    position: parts.Position = field(default_factory=parts.NoPosition)
    norm: NoNorm | parts.PostNorm | parts.PreNorm = field(default_factory=NoNorm)
    feed_forward: Tanh | parts.Relu | parts.Gelu | parts.Gated = field(default_factory=Tanh)
    layers: int = 1
    width: int = 128
    inner: int = 0
    dropout: float = 0.0
    tied: bool = False
    max_length: int = 64

    def __post_init__(self) -> None:
        if self.mixing.heads < 1 or self.width % self.mixing.heads:
            raise InputError(
                f"model.width {self.width} is not a multiple of model.mixing.heads {self.mixing.heads}"
            )  # fmt: skip


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
        super().__init__()
        self.config, self.vocabulary, self.context = config, vocabulary, config.max_length
        width, inner = config.width, config.inner or 4 * config.width
        table = token_table(vocabulary, width)
        position = config.position.build(parts.Room(width, config.mixing.heads, config.max_length))
        self.embed = StepEmbedding(table, position, config.dropout)
        around = config.norm.residual(width, config.dropout)

        def block() -> Block:
            return Block(config.mixing.build(width), config.feed_forward.build(width, inner), around)

        self.decoder = Stack(config.layers, block, config.norm.final(width))
        self._soften()
        # b″ is the last column; what it is multiplied with is 1.
        self.into_head = AppendOne()
        if config.tied:
            self.output = JoinedHead(table, 1)
            nn.init.zeros_(self.output.rest_VC)
        else:
            self.output = Head(width + 1, vocabulary)
            nn.init.zeros_(self.output.weight[:, -1])

    def _soften(self) -> None:
        """What is added to a residual sum starts small: a fresh block then hands on what it was given."""
        for block in self.decoder.layers:
            if isinstance(block.around_attention, residual.Residual):
                for name, weight in block.named_parameters():
                    if name.endswith(INTO_SUM):
                        weight.data.mul_(SOFT)

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        like_VD = self.embed.table.weight.detach().new_empty(0, self.config.width, device=device)
        return self.config.mixing.start(self.config.layers, rows, like_VD, room)
