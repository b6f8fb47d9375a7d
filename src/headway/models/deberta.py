"""DeBERTa, versions 2 and 3 (He et al. 2021, 2023): BERT whose attention compares content and distance apart.

B batch, T length, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, final

from torch import nn

from headway.models import parts
from headway.models.protocols import Encoded
from headway.models.text_encoder import STD, TextEncoder
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.disentangled import DisentangledAttention, DistanceVectors
from headway.nn.embedding import TypedEmbedding, token_table
from headway.nn.position import Position


@dataclass(frozen=True)
class Distances:
    """`span`: how many distances on each side have a vector. `farthest`: how far those of the outer half reach, by
    their logarithm (0: each stands for one distance). `normed`: the vectors are. `shared`: the maps of the content are
    theirs too."""

    name: ClassVar[str] = "distances"
    span: int = 256
    farthest: int = 512
    normed: bool = True
    shared: bool = True


@dataclass(frozen=True)
class DebertaConfig:
    """`types`: of token (0: none). `absolute`: a vector for each position is added to the embedding. `distances`: what
    attention knows of them (None: nothing)."""

    name: ClassVar[str] = "deberta"
    layers: int = 12
    width: int = 768
    inner: int = 3072
    heads: int = 12
    types: int = 0
    absolute: bool = False
    distances: Distances | None = field(default_factory=Distances)
    max_length: int = 512
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: parts.PostNorm = field(default_factory=lambda: parts.PostNorm(1e-7))
    feed_forward: parts.Gelu | parts.Relu = field(default_factory=parts.Gelu)


SIZES = {"small": DebertaConfig(6), "base": DebertaConfig(), "large": DebertaConfig(24, 1024, 4096, 16)}


@final
class Deberta(TextEncoder):
    """The last of a stack of blocks that see the whole text."""

    def __init__(self, config: DebertaConfig, vocabulary: int) -> None:
        super().__init__(config)
        width, norm = config.width, partial(nn.LayerNorm, config.width, config.norm.epsilon)
        table = token_table(vocabulary, width, STD)
        position = parts.Learned() if config.absolute else parts.NoPosition()
        place = position.build(parts.Room(width, config.heads, config.max_length))
        self.embed = TypedEmbedding(table, place, config.types, norm(), config.dropout)
        self.distances: Position = Position()
        attention: Callable[[], SelfAttention] = partial(SelfAttention, width, config.heads, config.attention_dropout)
        if (far := config.distances) is not None:
            self.distances = DistanceVectors(width, far.span, far.farthest or None, norm() if far.normed else None)
            attention = partial(
                DisentangledAttention, width, config.heads, config.attention_dropout, not far.shared, config.dropout
            )
        feed_forward = partial(config.feed_forward.build, width, config.inner)
        self.encoder = Stack(
            config.layers,
            config.norm.final(width),
            attention,
            feed_forward,
            config.norm.residual(width, config.dropout),
        )
        self.draw(self)

    def encode(self, inputs: Any) -> Encoded:
        """Rows are padded on the right."""
        return Encoded(self.encoder.encode(self.embedded(inputs), inputs.lengths_B, self.distances), inputs.lengths_B)
