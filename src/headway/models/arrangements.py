"""How the blocks of a decoder arrange their norms and sublayers, as plain values: a kind of norm, where it stands, and
whether queries and keys have one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from torch import nn

from headway.models.llama import OneRmsNorm, RmsNorm
from headway.nn import embedding
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, ParallelBlock
from headway.nn.query_key_norm import HeadsLayerNorm, NormedSelfAttention, PerHead
from headway.nn.residual import Residual

MakeNorm = Callable[[], nn.Module]


@dataclass(frozen=True)
class LayerNorm:
    """(x − μ)/σ ⊙ w + b, or without b (Ba et al. 2016)."""

    name: ClassVar[str] = "layer"
    epsilon: float = 1e-5
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, self.epsilon, bias=self.bias)


Norm = RmsNorm | OneRmsNorm | LayerNorm


# How a block arranges its two sublayers and their norms.


@dataclass(frozen=True)
class Pre:
    """x + c·f(norm(x)) (Xiong et al. 2020); c is 1 but in Granite."""

    name: ClassVar[str] = "pre"
    scale: float = 1.0

    def block(self, attention: SelfAttention, feed_forward: nn.Module, norm: MakeNorm, dropout: float) -> nn.Module:
        after = partial(embedding.Scale, self.scale) if self.scale != 1 else nn.Identity
        return Block(attention, feed_forward, lambda: Residual(before=norm(), after=after(), dropout=dropout))

    def final(self, norm: MakeNorm) -> nn.Module:
        return norm()


@dataclass(frozen=True)
class Inside:
    """x + norm(f(x)) (OLMo Team 2024, 3.1)."""

    name: ClassVar[str] = "inside"

    def block(self, attention: SelfAttention, feed_forward: nn.Module, norm: MakeNorm, dropout: float) -> nn.Module:
        return Block(attention, feed_forward, lambda: Residual(after=norm(), dropout=dropout))

    def final(self, norm: MakeNorm) -> nn.Module:
        return norm()


@dataclass(frozen=True)
class Sandwich:
    """x + norm′(f(norm(x))) (Ding et al. 2021; Gemma Team 2024)."""

    name: ClassVar[str] = "sandwich"

    def block(self, attention: SelfAttention, feed_forward: nn.Module, norm: MakeNorm, dropout: float) -> nn.Module:
        return Block(attention, feed_forward, lambda: Residual(norm(), norm(), dropout=dropout))

    def final(self, norm: MakeNorm) -> nn.Module:
        return norm()


@dataclass(frozen=True)
class Post:
    """norm(x + f(x)) (Vaswani et al. 2017)."""

    name: ClassVar[str] = "post"

    def block(self, attention: SelfAttention, feed_forward: nn.Module, norm: MakeNorm, dropout: float) -> nn.Module:
        return Block(attention, feed_forward, lambda: Residual(outside=norm(), dropout=dropout))

    def final(self, norm: MakeNorm) -> nn.Module:
        return nn.Identity()


@dataclass(frozen=True)
class Parallel:
    """x + attention(norm(x)) + feed_forward(norm′(x)); of two norms, or of one that both read."""

    name: ClassVar[str] = "parallel"
    norms: Literal[1, 2] = 1

    def block(self, attention: SelfAttention, feed_forward: nn.Module, norm: MakeNorm, dropout: float) -> nn.Module:
        return ParallelBlock(attention, feed_forward, norm, self.norms, dropout)

    def final(self, norm: MakeNorm) -> nn.Module:
        return norm()


Arrangement = Pre | Inside | Sandwich | Post | Parallel


# Norms of queries and keys. Each gives the class of attention that has them.


@dataclass(frozen=True)
class NoNorm:
    name: ClassVar[str] = "none"

    def attention(self, norm: Norm) -> Callable[..., SelfAttention]:
        return SelfAttention


@dataclass(frozen=True)
class HeadNorm:
    """The model's kind of norm over each head, one gain for all heads (Qwen Team 2025)."""

    name: ClassVar[str] = "head"

    def attention(self, norm: Norm) -> Callable[..., SelfAttention]:
        return partial(NormedSelfAttention, norm=lambda heads, width: PerHead(heads, norm.build(width)))


@dataclass(frozen=True)
class HeadsNorm:
    """A layer norm over each head, each with its own gain (Dehghani et al. 2023)."""

    name: ClassVar[str] = "heads"

    def attention(self, norm: Norm) -> Callable[..., SelfAttention]:
        def build(heads: int, width: int) -> nn.Module:
            return PerHead(heads, HeadsLayerNorm(heads, width, norm.epsilon))

        return partial(NormedSelfAttention, norm=build)


@dataclass(frozen=True)
class WholeNorm:
    """The model's kind of norm over all heads at once (OLMo Team 2024, 3.1)."""

    name: ClassVar[str] = "whole"

    def attention(self, norm: Norm) -> Callable[..., SelfAttention]:
        return partial(NormedSelfAttention, norm=lambda heads, width: norm.build(heads * width))


QueryKeyNorm = NoNorm | HeadNorm | HeadsNorm | WholeNorm
