"""Choices of part as plain values: what a config holds, and how each becomes a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.nn import feed_forward, norm, position, residual
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.block_masks import EndBlocks, FirstBlockRepeated, NearBlocks, RandomBlocks
from headway.nn.feed_forward import gelu
from headway.nn.mask import Mask, Padding


@dataclass(frozen=True)
class Room:
    """What a position is built for."""

    width: int
    heads: int
    length: int
    both_ways: bool = False  # an encoder, whose queries see what comes after them too
    head_width: int = 0  # 0: width/heads


@dataclass(frozen=True)
class Sinusoidal:
    """`order`: sine and cosine of each frequency side by side, or all sines first, as in Marian; fairseq has other
    frequencies too. `first`: the position of the first token."""

    name: ClassVar[str] = "sinusoidal"
    base: float = 10_000.0
    order: Literal["pairs", "halves", "fairseq"] = "pairs"
    first: int = 0

    def build(self, room: Room) -> position.Position:
        formulas = {
            "pairs": position.sinusoid,
            "halves": position.halved_sinusoid,
            "fairseq": position.fairseq_sinusoid,
        }
        return position.Sinusoidal(room.width, self.base, room.length, formulas[self.order], self.first)


@dataclass(frozen=True)
class Learned:
    """`first`: the row of the first token."""

    name: ClassVar[str] = "learned"
    first: int = 0

    def build(self, room: Room) -> position.Position:
        return position.Learned(room.width, room.length, self.first)


@dataclass(frozen=True)
class Rotary:
    name: ClassVar[str] = "rotary"
    base: float = 10_000.0

    def build(self, room: Room) -> position.Position:
        return position.Rotary(room.width // room.heads, self.base, room.length)


@dataclass(frozen=True)
class RelativeBias:
    name: ClassVar[str] = "relative"
    buckets: int = 32
    farthest: int = 128

    def __post_init__(self) -> None:
        refuse(self.buckets < 4, f"model.position.buckets must be at least 4, not {self.buckets}")
        if self.farthest <= self.buckets // 2:
            raise InputError(
                f"model.position.farthest must be above {self.buckets // 2}, half of the buckets, not {self.farthest}"
            )

    def build(self, room: Room) -> position.Position:
        return position.RelativeBias(room.heads, self.buckets, self.farthest, room.both_ways)


@dataclass(frozen=True)
class LinearBias:
    name: ClassVar[str] = "linear-bias"

    def build(self, room: Room) -> position.Position:
        return position.LinearBias(room.heads)


@dataclass(frozen=True)
class Index:
    """The position itself as a number. `everywhere`: added to every number of a vector, or to the first alone."""

    name: ClassVar[str] = "index"
    everywhere: bool = True

    def build(self, room: Room) -> position.Position:
        return position.Index(room.width, room.length, self.everywhere)


@dataclass(frozen=True)
class NoPosition:
    name: ClassVar[str] = "none"

    def build(self, room: Room) -> position.Position:
        return position.Position()


@dataclass(frozen=True)
class Plain:
    """Abstract. One activation between two maps."""

    function: ClassVar[Any]  # an `Activation`
    dropout: float = 0.0

    def build(self, width: int, inner: int, bias: bool = True) -> nn.Module:
        return feed_forward.MLP(width, inner, self.function, self.dropout, bias)


@dataclass(frozen=True)
class Relu(Plain):
    name: ClassVar[str] = "relu"
    function = staticmethod(F.relu)


@dataclass(frozen=True)
class Silu(Plain):
    name: ClassVar[str] = "silu"
    function = staticmethod(F.silu)


@dataclass(frozen=True)
class Gelu(Plain):
    """`approximate=tanh` is the formula that GPT-2 was trained with."""

    name: ClassVar[str] = "gelu"
    approximate: Literal["none", "tanh"] = "none"

    @property
    def function(self) -> feed_forward.Activation:
        if self.approximate != "none":
            return partial(F.gelu, approximate=self.approximate)
        # With a dropout behind it: a compiler makes one pass of the two, which it cannot of a kernel of ours.
        return F.gelu if self.dropout else gelu


GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu, "gelu": F.gelu, "gelu-tanh": partial(F.gelu, approximate="tanh"), "relu": F.relu,
}  # fmt: skip


@dataclass(frozen=True)
class Gated:
    """SwiGLU with SiLU, GEGLU with GELU. `biased`: all of its maps have a bias, which they lack as a rule."""

    name: ClassVar[str] = "gated"
    dropout: float = 0.0
    activation: Literal["silu", "gelu", "gelu-tanh", "relu"] = "silu"
    biased: bool = False

    def build(self, width: int, inner: int, bias: bool = True) -> nn.Module:
        return feed_forward.GatedMLP(width, inner, GATES[self.activation], self.dropout, self.biased)


Around = Callable[[], residual.Residual | residual.Bare]  # what stands around each sublayer of a block


@dataclass(frozen=True)
class PostNorm:
    """2017's placement: the norm outside the sum."""

    name: ClassVar[str] = "post"
    epsilon: float = 1e-5

    def norm(self, width: int, bias: bool = True) -> nn.Module:
        return nn.LayerNorm(width, self.epsilon, bias=bias)

    def residual(self, width: int, dropout: float, bias: bool = True) -> Around:
        return residual.post_norm(partial(self.norm, width, bias), dropout)

    def final(self, width: int, bias: bool = True) -> nn.Module:
        return nn.Identity()


@dataclass(frozen=True)
class PreNorm:
    """The norm before the sublayer; the stack's sum then needs one of its own at the end."""

    name: ClassVar[str] = "pre"
    epsilon: float = 1e-5

    def norm(self, width: int, bias: bool = True) -> nn.Module:
        return nn.LayerNorm(width, self.epsilon, bias=bias)

    def residual(self, width: int, dropout: float, bias: bool = True) -> Around:
        return residual.pre_norm(partial(self.norm, width, bias), dropout)

    def final(self, width: int, bias: bool = True) -> nn.Module:
        return self.norm(width, bias)


@dataclass(frozen=True)
class PostRmsNorm(PostNorm):
    """`PostNorm` with RMS norm, which neither subtracts the mean nor adds a bias (Zhang and Sennrich 2019)."""

    name: ClassVar[str] = "post-rms"

    def norm(self, width: int, bias: bool = True) -> nn.Module:
        return nn.RMSNorm(width, self.epsilon)


@dataclass(frozen=True)
class PreRmsNorm(PreNorm):
    """`PreNorm` with RMS norm, as Llama has it."""

    name: ClassVar[str] = "pre-rms"

    def norm(self, width: int, bias: bool = True) -> nn.Module:
        return nn.RMSNorm(width, self.epsilon)


@dataclass(frozen=True)
class PostNormAndFinal(PostNorm):
    """As `PostNorm`, with one more norm behind each stack: `torch.nn.Transformer` has it wherever the others stand."""

    name: ClassVar[str] = "post-final"

    def final(self, width: int, bias: bool = True) -> nn.Module:
        return nn.LayerNorm(width, self.epsilon, bias=bias)


@dataclass(frozen=True)
class BatchNorm(PostNorm):
    """Outside the sum, with the mean and variance of the batch (graph Transformers: Dwivedi and Bresson 2021). In a
    causal model a token is then scaled by later tokens of its batch while it trains, and by none in evaluation."""

    name: ClassVar[str] = "batch"
    momentum: float = 0.1

    def norm(self, width: int, bias: bool = True) -> nn.Module:
        return norm.BatchNorm(width, self.epsilon, self.momentum)


@dataclass(frozen=True)
class NormOnly(PostNorm):
    """The norm without the sum: LN(f(x))."""

    name: ClassVar[str] = "norm-only"

    def residual(self, width: int, dropout: float, bias: bool = True) -> Around:
        return lambda: residual.Bare(dropout, self.norm(width, bias))


@dataclass(frozen=True)
class ResidualOnly:
    """The sum without a norm: x + f(x)."""

    name: ClassVar[str] = "residual-only"
    epsilon: ClassVar[float] = 1e-5  # of a norm elsewhere in the model

    def residual(self, width: int, dropout: float, bias: bool = True) -> Around:
        return lambda: residual.Residual(dropout=dropout)

    def final(self, width: int, bias: bool = True) -> nn.Module:
        return nn.Identity()


@dataclass(frozen=True)
class NoNorm(ResidualOnly):
    """Neither norm nor residual: f(x)."""

    name: ClassVar[str] = "none"

    def residual(self, width: int, dropout: float, bias: bool = True) -> Around:
        return lambda: residual.Bare(dropout)


@dataclass(frozen=True)
class Whole:
    """Every token sees the whole text."""

    name: ClassVar[str] = "whole"

    def rules(self, length: int, training: bool, layers: int) -> list[Mask]:
        """What is seen in each of so many layers of a text of so many tokens."""
        return [Padding()] * layers


@dataclass(frozen=True)
class Blocks:
    """Blocks of `size` tokens: each sees its neighbours, the first and the last block, which see everything, and
    `random` others, drawn once for each layer (Zaheer et al. 2020, 2). Batches of up to 5 + 2·random blocks are seen
    whole. resting: what stands for the random blocks when the model is not trained: the same ones, or the first block
    so often, which is what transformers computes."""

    name: ClassVar[str] = "blocks"
    size: int = 64
    random: int = 3
    resting: Literal["random", "first"] = "random"

    def __post_init__(self) -> None:
        refuse(self.size < 1, f"model.pattern.size must be at least 1, not {self.size}")
        refuse(self.random < 0, f"model.pattern.random must be 0 or more, not {self.random}")

    def rules(self, length: int, training: bool, layers: int) -> list[Mask]:
        if length <= (5 + 2 * self.random) * self.size:
            return Whole().rules(length, training, layers)
        fixed = NearBlocks(self.size) | EndBlocks(self.size)
        if not self.random:
            return [Padding() & fixed] * layers
        if self.resting == "first" and not training:
            return [Padding() & (fixed | FirstBlockRepeated(self.size, 1 + self.random))] * layers
        return [Padding() & (fixed | RandomBlocks(self.size, self.random, layer)) for layer in range(layers)]


def stack(config: Any, layers: int) -> Stack:
    """So many blocks, as a config with one attention, feed-forward and norm describes them."""
    width, norm = config.width, config.norm
    attention = partial(SelfAttention, width, config.heads, config.attention_dropout)
    feed_forward = partial(config.feed_forward.build, width, config.inner)
    return Stack(layers, norm.final(width), attention, feed_forward, norm.residual(width, config.dropout))


Position = Sinusoidal | Learned | Rotary | RelativeBias | LinearBias | Index | NoPosition
FeedForward = Relu | Gelu | Silu | Gated
Norm = PostNorm | PreNorm | PostNormAndFinal | PostRmsNorm | PreRmsNorm | BatchNorm | NormOnly | ResidualOnly | NoNorm
