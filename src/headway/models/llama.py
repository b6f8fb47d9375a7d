"""The decoder-only Transformer as it is built since 2023: RMS norm, rotary positions, gated layers, shared keys
(Touvron et al. 2023). Mistral, Qwen2 and Gemma are other choices of the same parts.

B batch, T length, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal, final

import torch
from torch import nn

from headway.models import parts
from headway.models.language import DecoderOnly
from headway.models.rotary_scaling import Scaling, Unscaled, angles
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack, draw_normal
from headway.nn.embedding import Head, StepEmbedding, token_table
from headway.nn.mask import Causal, Scene, Segments, Window
from headway.nn.norm import OneRMSNorm
from headway.nn.position import Rotary
from headway.nn.residual import pre_norm
from headway.nn.view import View

STD = 0.02


@dataclass(frozen=True)
class RmsNorm:
    name: ClassVar[str] = "rms"
    module: ClassVar[type[nn.RMSNorm]] = nn.RMSNorm
    epsilon: float = 1e-6

    def build(self, width: int) -> nn.Module:
        return self.module(width, self.epsilon)


@dataclass(frozen=True)
class OneRmsNorm(RmsNorm):
    name: ClassVar[str] = "one-rms"
    module = OneRMSNorm


@dataclass(frozen=True)
class LlamaConfig:
    """`shared_heads`: keys and values that the heads share (0: one each). `head_width`: 0 for width/heads. `bias`:
    which maps have one. `base`, `scaling`: of the rotary positions. `window`: how many tokens a layer sees, its
    own among them (0: all); the layers before `windowed_from` see all. `scaled`: embeddings are multiplied by √width.
    `widths`: whether a rate that was chosen at one width holds for others.
    """

    name: ClassVar[str] = "llama"
    layers: int = 4
    width: int = 256
    inner: int = 688
    heads: int = 8
    shared_heads: int = 0
    head_width: int = 0
    attention_dropout: float = 0.0
    bias: Literal["none", "qkv", "all"] = "none"
    tied: bool = False
    scaled: bool = False
    base: float = 10_000.0
    scaling: Scaling = field(default_factory=Unscaled)
    norm: RmsNorm | OneRmsNorm = field(default_factory=RmsNorm)
    feed_forward: parts.Gated = field(default_factory=parts.Gated)
    window: int = 0
    windowed_from: int = 0
    max_length: int = 2048


@final
class Llama(DecoderOnly):
    """p(x_t | x_<t) = softmax(head(decoder(x_<t)))."""

    def __init__(self, config: LlamaConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        width, heads = config.width, config.heads
        head_width = config.head_width or width // heads
        table = token_table(vocabulary, width, STD)
        turns = partial(angles, config.scaling, head_width, config.base)
        position = Rotary(head_width, config.base, config.max_length, turns, config.scaling.gain)
        self.embed = StepEmbedding(table, position, dropout=0.0, scale=width**0.5 if config.scaled else 1.0)
        norm = partial(config.norm.build, width)
        attention = partial(
            SelfAttention, width, heads, config.attention_dropout, config.shared_heads or None,
            bias=config.bias != "none", head_width=config.head_width or None, output_bias=config.bias == "all",
        )  # fmt: skip
        feed_forward = partial(config.feed_forward.build, width, config.inner)
        self.decoder = Stack(config.layers, norm(), attention, feed_forward, pre_norm(norm, 0.0))
        self.output = Head(width, vocabulary, table if config.tied else None)
        draw_normal(self, STD)

    def views(self, scene: Scene, dtype: torch.dtype) -> list[View]:
        rule, window, far = Causal() & Segments(), self.config.window, self.config.windowed_from
        whole = rule.view(scene).placed(self.embed.position)
        near = whole
        if 0 < window < self.config.max_length:
            near = (rule & Window(window - 1)).view(scene).placed(self.embed.position)
        return [near if number >= far else whole for number in range(self.config.layers)]
