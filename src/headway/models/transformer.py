"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention Is All You Need")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from torch import nn

from headway.models import parts
from headway.models.encoder_decoder import EncoderDecoder
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, DecoderBlock, Stack
from headway.nn.embedding import AppendOne, Head, JoinedHead, TokenEmbedding, token_table


@dataclass(frozen=True)
class TransformerConfig:
    """`scaled`: embeddings are multiplied by √width. `output_bias`: the logits have one, as Marian's."""

    name: ClassVar[str] = "transformer"
    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    inner: int = 2048
    heads: int = 8
    dropout: float = 0.1
    attention_dropout: float = 0.0
    embeddings: Literal["shared", "tied", "separate"] = "shared"
    position: parts.Position = field(default_factory=parts.Sinusoidal)
    norm: parts.Norm = field(default_factory=parts.PostNorm)
    feed_forward: parts.FeedForward = field(default_factory=parts.Relu)
    max_length: int = 512
    scaled: bool = True
    output_bias: bool = False


TINY = TransformerConfig(encoder_layers=4, decoder_layers=4, width=128, inner=256, heads=4, dropout=0.3)
BASE = TransformerConfig()
BIG = TransformerConfig(width=1024, inner=4096, heads=16, dropout=0.3)
SIZES = {"tiny": TINY, "base": BASE, "big": BIG}


@final
class Transformer(EncoderDecoder):
    """p(y_t | y_<t, x) = softmax(head(decoder(y_<t, encoder(x))))."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.vocabularies = (source_vocabulary, target_vocabulary)
        self.vocabulary, self.context = target_vocabulary, config.max_length
        if config.width % config.heads:
            raise ValueError(f"width {config.width} is not a multiple of {config.heads} heads")
        if config.embeddings == "shared" and source_vocabulary != target_vocabulary:
            raise ValueError("shared embeddings need one joint vocabulary")
        residual = config.norm.residual(config.width, config.dropout)

        def attention() -> SelfAttention:
            return SelfAttention(config.width, config.heads, config.attention_dropout)

        def cross() -> CrossAttention:
            return CrossAttention(config.width, config.heads, config.attention_dropout)

        def feed_forward() -> nn.Module:
            return config.feed_forward.build(config.width, config.inner)

        def embedding(table: nn.Embedding, both_ways: bool) -> TokenEmbedding:
            room = parts.Room(config.width, config.heads, config.max_length, both_ways)
            return TokenEmbedding(table, config.position.build(room), config.dropout, None if config.scaled else 1.0)

        source_table = token_table(source_vocabulary, config.width)
        shared = config.embeddings == "shared"
        target_table = source_table if shared else token_table(target_vocabulary, config.width)
        self.embed_source, self.embed_target = embedding(source_table, True), embedding(target_table, False)
        self.encoder = Stack(
            config.encoder_layers,
            lambda: Block(attention(), feed_forward(), residual),
            config.norm.final(config.width),
        )
        self.decoder = Stack(
            config.decoder_layers,
            lambda: DecoderBlock(attention(), cross(), feed_forward(), residual),
            config.norm.final(config.width),
        )
        self.into_head = AppendOne() if config.output_bias else nn.Identity()
        self.head = _head(config, target_vocabulary, None if config.embeddings == "separate" else target_table)


def _head(config: TransformerConfig, vocabulary: int, tied: nn.Embedding | None) -> Head | JoinedHead:
    """A bias is the last column of the weight; what it is multiplied with is 1."""
    if not config.output_bias:
        return Head(config.width, vocabulary, tied)
    if tied is None:
        head = Head(config.width + 1, vocabulary)
        nn.init.zeros_(head.weight[:, -1])
        return head
    joined = JoinedHead(tied, 1)
    nn.init.zeros_(joined.rest_VC)
    return joined
