"""T5: the encoder-decoder that turns every task of text into text (Raffel et al. 2020), and its encoder alone.

mT5 (Xue et al. 2021) has other sizes; umT5 (Chung et al. 2023) a bias of distances in every layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, final

from torch import nn

from headway.models import parts
from headway.models.encoder_decoder import EncoderDecoder
from headway.models.protocols import Encoded, Encodes
from headway.nn.attention import CrossAttention, OwnDistances, SelfAttention, dot
from headway.nn.block import Stack
from headway.nn.dropout import Dropout
from headway.nn.embedding import Head, Scale, TokenEmbedding, token_table
from headway.nn.position import Position
from headway.nn.residual import pre_norm


@dataclass(frozen=True)
class T5Config:
    """`tied`: the head is the embedding's own table. `scaled_output`: what goes into the head is divided by √width, as
    in the first release; 1.1 has a head of its own and gated layers, and does not. `max_length` is a promise, not a
    limit of the positions, which know distances only. `own_distances`: each layer has a bias of its own."""

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
    own_distances: bool = False


@dataclass(frozen=True)
class T5EncoderConfig:
    """As those of `T5Config`."""

    name: ClassVar[str] = "t5-encoder"
    layers: int = 6
    width: int = 512
    head_width: int = 64
    inner: int = 2048
    heads: int = 8
    dropout: float = 0.1
    feed_forward: parts.FeedForward = field(default_factory=lambda: parts.Relu(dropout=0.1))
    position: parts.RelativeBias = field(default_factory=parts.RelativeBias)
    epsilon: float = 1e-6
    max_length: int = 512
    own_distances: bool = False


def _distances(config: Any, both_ways: bool) -> Position:
    return config.position.build(parts.Room(config.width, config.heads, config.max_length, both_ways))


def _embedding(config: Any, table: nn.Embedding, both_ways: bool) -> TokenEmbedding:
    """With the bias of distances that all layers of a stack share, unless each has its own."""
    position = Position() if config.own_distances else _distances(config, both_ways)
    return TokenEmbedding(table, position, config.dropout, scale=1.0)


def _stack(
    config: Any, layers: int, both_ways: bool, cross: Callable[[], CrossAttention] | None = None
) -> Stack:  # fmt: skip
    """Pre-norm and RMS norms, no biases, scores QKᵀ + b(distance) that are not scaled (Raffel et al. 2020, 2.1)."""
    width, dropout = config.width, config.dropout
    norm = partial(nn.RMSNorm, width, config.epsilon)
    how: dict[str, Any] = {"bias": False, "head_width": config.head_width, "score": dot}

    def attention() -> SelfAttention:
        if config.own_distances:
            return OwnDistances(width, config.heads, dropout, distances=_distances(config, both_ways), **how)
        return SelfAttention(width, config.heads, dropout, **how)

    feed_forward = partial(config.feed_forward.build, width, config.inner, bias=False)
    final = nn.Sequential(norm(), Dropout(dropout))
    return Stack(layers, final, attention, feed_forward, pre_norm(norm, dropout), cross)


@final
class T5(EncoderDecoder):
    """The Transformer whose positions are biases of distances."""

    def __init__(self, config: T5Config, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        if source_vocabulary != target_vocabulary:
            raise ValueError("T5 has one vocabulary for both sides")
        width = config.width
        cross = partial(
            CrossAttention, width, config.heads, config.dropout, bias=False, head_width=config.head_width, score=dot
        )
        table = token_table(source_vocabulary, width, std=1.0)
        self.embed_source, self.embed_target = _embedding(config, table, True), _embedding(config, table, False)
        self.encoder = _stack(config, config.encoder_layers, True)
        self.decoder = _stack(config, config.decoder_layers, False, cross)
        self.into_head = Scale(width**-0.5) if config.scaled_output else nn.Identity()
        self.head = Head(width, target_vocabulary, table if config.tied else None)


@final
class T5Encoder(Encodes):
    """T5's encoder, for the vectors of texts (Ni et al. 2022)."""

    def __init__(self, config: T5EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.context, self.width, self.dropout = config, config.max_length, config.width, config.dropout
        self.embed = _embedding(config, token_table(vocabulary, config.width, std=1.0), True)
        self.encoder = _stack(config, config.layers, True)

    @property
    def table(self) -> nn.Embedding:
        return self.embed.table

    def encode(self, inputs: Any) -> Encoded:
        """Rows are padded on the right."""
        x_BTD = self.encoder.encode(self.embed(inputs.ids_BT), inputs.lengths_B, self.embed.position)
        return Encoded(x_BTD, inputs.lengths_B)
