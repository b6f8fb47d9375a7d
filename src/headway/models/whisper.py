"""Whisper (Radford et al. 2023, "Robust speech recognition via large-scale weak supervision"): an encoder-decoder
Transformer that reads the log-mel spectrogram of a recording and writes text.

B recordings, C channels (one), H mel bands, W frames, S places (two frames each), T tokens, D width.
"""

from __future__ import annotations

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
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Stack
from headway.nn.embedding import Head, TokenEmbedding, token_table
from headway.nn.patches import FrameEmbedding
from headway.nn.position import Learned, fairseq_sinusoid

SIZED = ("channels and a vocabulary of {}", "data.text.size")


@dataclass(frozen=True)
class WhisperConfig:
    """`bands`: of the mel scale. `places`: what the encoder reads of a recording, a place for two frames; shorter ones
    are filled up with silence. `max_length`: the most tokens, those before the text counted."""

    name: ClassVar[str] = "whisper"
    bands: int = 80
    places: int = 1500
    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    inner: int = 2048
    heads: int = 8
    dropout: float = 0.0
    attention_dropout: float = 0.0
    feed_forward: parts.FeedForward = field(default_factory=parts.Gelu)
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    max_length: int = 448

    @property
    def size(self) -> tuple[int, int]:
        """Bands and frames of a spectrogram."""
        return self.bands, 2 * self.places


SIZES = {
    "digits": WhisperConfig(40, 150, 3, 2, 128, 256, 4, 0.1, max_length=64),
    "tiny": WhisperConfig(80, 1500, 4, 4, 384, 1536, 6),
    "base": WhisperConfig(),
    "small": WhisperConfig(80, 1500, 12, 12, 768, 3072, 12),
    "medium": WhisperConfig(80, 1500, 24, 24, 1024, 4096, 16),
    "large": WhisperConfig(128, 1500, 32, 32, 1280, 5120, 20),
}


def blank(config: WhisperConfig, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Spectrograms of the one size that the model takes, and tokens of the last length."""
    values_BCHW = torch.zeros(batch, sizes[0], *config.size)
    return SimpleNamespace(pixels_BCHW=values_BCHW), torch.zeros(batch, lengths[-1], dtype=torch.long)


@final
class Whisper(EncoderDecoder):
    """p(y_t | y_<t, x) = softmax(E·decoder(y_<t, encoder(x))), E the table of the tokens.

    The encoder's sinusoids are a table that training leaves alone. Keys have a bias here and none in the paper: it adds
    one number to all scores of a query, which a softmax does not see.
    """

    def __init__(self, config: WhisperConfig, channels: int, vocabulary: int) -> None:
        super().__init__(config, channels, vocabulary)
        width, heads, norm = config.width, config.heads, config.norm
        moments = Learned(width, config.places)
        with torch.no_grad():
            moments.table.weight.copy_(fairseq_sinusoid(torch.arange(config.places), width))
        moments.table.weight.requires_grad_(False)
        self.embed_source: FrameEmbedding = FrameEmbedding(config.bands, width, moments, config.dropout, before=0)  # type: ignore[assignment]
        table = token_table(vocabulary, width)
        self.embed_target = TokenEmbedding(table, Learned(width, config.max_length), config.dropout, scale=1.0)
        attention = partial(SelfAttention, width, heads, config.attention_dropout)
        cross = partial(CrossAttention, width, heads, config.attention_dropout)
        slots = attention, partial(config.feed_forward.build, width, config.inner), norm.residual(width, config.dropout)
        self.encoder = Stack(config.encoder_layers, norm.final(width), *slots)
        self.decoder = Stack(config.decoder_layers, norm.final(width), *slots, cross)
        self.into_head = nn.Identity()
        self.head = Head(width, vocabulary, table)

    def encode(self, inputs: Any) -> Encoded:
        return Encoded(self.encoder.encode(self.embed_source(inputs.pixels_BCHW)))

    def forward(self, inputs: Any, target_BT: Tensor) -> Tensor:  # type: ignore[override]
        return self.logits(target_BT, self.start(inputs, len(target_BT), target_BT.device))[0]
