"""A captioner: an encoder-decoder Transformer that reads the patches of a picture and writes what is in it (Cornia et
al. 2020 have such a model; the encoder is that of Dosovitskiy et al. 2021).

B pictures, C channels, H height, W width, S places, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from headway.models import parts
from headway.models.encoder_decoder import EncoderDecoder
from headway.models.protocols import Encoded
from headway.models.vit import Convolutions, LearnedGrid, NoPosition, OnGrid, Patches, Sinusoids
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Stack
from headway.nn.embedding import Head, TokenEmbedding, token_table
from headway.nn.position import Learned

SIZED = ("channels and a vocabulary of {}", "data.text.size")


@dataclass(frozen=True)
class CaptionerConfig(OnGrid):
    """`image`: the height of a picture in pixels, and its width unless `across` is another. `stem`: what makes vectors
    of pixels; `patch`: of a patch, where it has patches. `position`: of the places. `max_length`: the most tokens of a
    caption, its start counted."""

    name: ClassVar[str] = "captioner"
    before: ClassVar[int] = 0  # learned tokens before the places
    image: int = 64
    encoder_layers: int = 4
    decoder_layers: int = 3
    width: int = 128
    inner: int = 256
    heads: int = 4
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    feed_forward: parts.Gelu | parts.Relu | parts.Gated = field(default_factory=parts.Gelu)
    stem: Convolutions | Patches = field(default_factory=Patches)
    position: LearnedGrid | Sinusoids | NoPosition = field(default_factory=LearnedGrid)
    patch: int = 8
    across: int = 0
    max_length: int = 64

    def __post_init__(self) -> None:
        self.check_grid()


SIZES = {"tiny": CaptionerConfig(), "small": CaptionerConfig(64, 6, 4, 256, 1024, 4)}


def blank(config: CaptionerConfig, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Pictures of the one size that the model takes, and tokens."""
    pixels_BCHW = torch.zeros(batch, sizes[0], *config.size)
    return SimpleNamespace(pixels_BCHW=pixels_BCHW), torch.zeros(batch, lengths[-1], dtype=torch.long)


@final
class Captioner(EncoderDecoder):
    """p(y_t | y_<t, x) = softmax(E·decoder(y_<t, encoder(x))), E the table of the tokens."""

    def __init__(self, config: CaptionerConfig, channels: int, vocabulary: int) -> None:
        super().__init__(config, channels, vocabulary)
        width, heads, norm = config.width, config.heads, config.norm
        self.embed_source: Any = config.stem.build(config, channels, _positions(config))
        table = token_table(vocabulary, width)
        self.embed_target = TokenEmbedding(table, Learned(width, config.max_length), config.dropout)
        attention = partial(SelfAttention, width, heads, config.attention_dropout)
        cross = partial(CrossAttention, width, heads, config.attention_dropout)
        slots = attention, partial(config.feed_forward.build, width, config.inner), norm.residual(width, config.dropout)
        self.encoder = Stack(config.encoder_layers, norm.final(width), *slots)
        self.decoder = Stack(config.decoder_layers, norm.final(width), *slots, cross)
        self.into_head = nn.Identity()
        self.head = Head(width, vocabulary, table)

    @property
    def places(self) -> int:
        """That the encoder reads."""
        return math.prod(self.config.sides)

    def encode(self, inputs: Any) -> Encoded:
        return Encoded(self.encoder.encode(self.embed_source(inputs.pixels_BCHW)))

    def forward(self, inputs: Any, target_BT: Tensor) -> Tensor:  # type: ignore[override]
        return self.logits(target_BT, self.start(inputs, len(target_BT), target_BT.device))[0]


def _positions(config: Any) -> Any:
    return config.position.build(config)
