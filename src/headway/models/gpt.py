"""The decoder-only Transformer (Radford et al. 2018, 2019): each token from those before it.

B batch, T length, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, final

from headway.models import parts
from headway.models.language import DecoderOnly
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack, draw_normal
from headway.nn.embedding import Head, StepEmbedding, padded, token_table

STD = 0.02  # of every weight at the start (Radford et al. 2018, 4.1)


@dataclass(frozen=True)
class GPTConfig:
    """`shared_heads`: keys and values that the heads share (0: one each). `inner`: 0 for four times the width.
    `word_dropout`: the share of the vocabulary that is not there, wherever it stands in a batch."""

    name: ClassVar[str] = "gpt"
    layers: int = 12
    width: int = 768
    inner: int = 0
    heads: int = 12
    shared_heads: int = 0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    word_dropout: float = 0.0
    bias: bool = True
    tied: bool = True
    position: parts.Position = field(default_factory=parts.Learned)
    norm: parts.Norm = field(default_factory=parts.PreNorm)
    feed_forward: parts.FeedForward = field(default_factory=parts.Gelu)
    max_length: int = 1024


SIZES = {
    "char": GPTConfig(6, 384, heads=6, dropout=0.2, attention_dropout=0.2, bias=False, max_length=256),
    "124M": GPTConfig(12, 768, heads=12),
    "355M": GPTConfig(24, 1024, heads=16),
    "774M": GPTConfig(36, 1280, heads=20),
    "1.5B": GPTConfig(48, 1600, heads=25),
}


@final
class GPT(DecoderOnly):
    """p(x_t | x_<t) = softmax(head(decoder(x_<t)))."""

    def __init__(self, config: GPTConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        width, heads, bias = config.width, config.heads, config.bias
        rows = padded(vocabulary)
        table = token_table(rows, width, STD)
        position = config.position.build(parts.Room(width, heads, config.max_length))
        self.embed = StepEmbedding(table, position, config.dropout, 1.0, config.word_dropout)
        self.decoder = Stack(
            config.layers,
            config.norm.final(width, bias),
            partial(SelfAttention, width, heads, config.attention_dropout, config.shared_heads or None, bias),
            partial(config.feed_forward.build, width, config.inner or 4 * width, bias),
            config.norm.residual(width, config.dropout, bias),
        )
        self.output = Head(width, rows, table if config.tied else None)
        # Those that write into the residual sum smaller, by its depth (Radford et al. 2019, 2.3).
        draw_normal(self, STD, into_sum=(2 * config.layers) ** -0.5)
