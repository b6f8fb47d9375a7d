"""T5: the encoder-decoder that turns every task of text into text (Raffel et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, final

from torch import nn

from headway.models import parts
from headway.models.encoder_decoder import EncoderDecoder
from headway.nn.attention import CrossAttention, SelfAttention, dot
from headway.nn.block import Stack
from headway.nn.dropout import Dropout
from headway.nn.embedding import Head, Scale, TokenEmbedding, token_table
from headway.nn.residual import pre_norm


@dataclass(frozen=True)
class T5Config:
    """`tied`: the head is the embedding's own table. `scaled_output`: what goes into the head is divided by √width, as
    in the first release; 1.1 has a head of its own and gated layers, and does not. `max_length` is a promise, not a
    limit of the positions, which know distances only."""

    name: ClassVar[str] = "t5"
    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    head_width: int = 64
    inner: int = 2048
    heads: int = 8
    dropout: float = 0.1
    tied: bool = True
    scaled_output: bool = True
    feed_forward: parts.FeedForward = field(default_factory=lambda: parts.Relu(dropout=0.1))
    position: parts.RelativeBias = field(default_factory=parts.RelativeBias)
    epsilon: float = 1e-6
    max_length: int = 512


@final
class T5(EncoderDecoder):
    """The Transformer with pre-norm and RMS norms, no biases, scores QKᵀ + b(distance) that are not scaled, the b of a
    stack shared by its layers (Raffel et al. 2020, 2.1)."""

    def __init__(self, config: T5Config, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        if source_vocabulary != target_vocabulary:
            raise ValueError("T5 has one vocabulary for both sides")
        width, heads, dropout = config.width, config.heads, config.dropout
        norm = partial(nn.RMSNorm, width, config.epsilon)
        how: dict[str, Any] = {"bias": False, "head_width": config.head_width, "score": dot}
        attention = partial(SelfAttention, width, heads, dropout, **how)
        cross = partial(CrossAttention, width, heads, dropout, **how)
        slots = attention, partial(config.feed_forward.build, width, config.inner, bias=False), pre_norm(norm, dropout)

        def embedding(both_ways: bool) -> TokenEmbedding:
            room = parts.Room(width, heads, config.max_length, both_ways)
            return TokenEmbedding(table, config.position.build(room), dropout, scale=1.0)

        table = token_table(source_vocabulary, width, std=1.0)
        self.embed_source, self.embed_target = embedding(True), embedding(False)
        self.encoder = Stack(config.encoder_layers, nn.Sequential(norm(), Dropout(dropout)), *slots)
        self.decoder = Stack(config.decoder_layers, nn.Sequential(norm(), Dropout(dropout)), *slots, cross)
        self.into_head = Scale(width**-0.5) if config.scaled_output else nn.Identity()
        self.head = Head(width, target_vocabulary, table if config.tied else None)
