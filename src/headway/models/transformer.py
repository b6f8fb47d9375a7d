"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention Is All You Need")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, final

from torch import Tensor, nn

from headway.errors import refuse
from headway.models import parts
from headway.models.encoder_decoder import EncoderDecoder
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Stack
from headway.nn.copying import Copying
from headway.nn.embedding import AppendOne, Head, TokenEmbedding, biased_head, token_table
from headway.nn.slots import SourceIds


@dataclass(frozen=True)
class TransformerConfig:
    """`embeddings`: what has one table: source, target and head (shared), target and head (tied), source and target
    (joint). `scaled`: embeddings are multiplied by √width. `output_bias`: the logits have one, as Marian's.
    `embedding_norm`: embeddings with their positions are normed, as BART's. `copying`: a word may be copied from the
    source (See et al. 2017), which needs one vocabulary."""

    name: ClassVar[str] = "transformer"
    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    inner: int = 2048
    heads: int = 8
    dropout: float = 0.1
    attention_dropout: float = 0.0
    embeddings: Literal["shared", "tied", "joint", "separate"] = "shared"
    position: parts.Position = field(default_factory=parts.Sinusoidal)
    norm: parts.Norm = field(default_factory=parts.PostNorm)
    feed_forward: parts.FeedForward = field(default_factory=parts.Relu)
    max_length: int = 512
    scaled: bool = True
    output_bias: bool = False
    embedding_norm: bool = False
    copying: bool = False


TINY = TransformerConfig(encoder_layers=4, decoder_layers=4, width=128, inner=256, heads=4, dropout=0.3)
BIG = TransformerConfig(width=1024, inner=4096, heads=16, dropout=0.3)
SIZES = {"tiny": TINY, "base": TransformerConfig(), "big": BIG}


@final
class Transformer(EncoderDecoder):
    """p(y_t | y_<t, x) = softmax(head(decoder(y_<t, encoder(x))))."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        width, heads, norm = config.width, config.heads, config.norm
        shared = config.embeddings in ("shared", "joint")
        if (shared or config.copying) and source_vocabulary != target_vocabulary:
            raise ValueError(f"{config.embeddings} embeddings need one joint vocabulary")
        attention = partial(SelfAttention, width, heads, config.attention_dropout)
        cross = partial(CrossAttention, width, heads, config.attention_dropout)

        def embedding(table: nn.Embedding, both_ways: bool) -> TokenEmbedding:
            room = parts.Room(width, heads, config.max_length, both_ways)
            between = nn.LayerNorm(width, norm.epsilon) if config.embedding_norm else None
            scale = None if config.scaled else 1.0
            return TokenEmbedding(table, config.position.build(room), config.dropout, scale, norm=between)

        source_table = token_table(source_vocabulary, width)
        target_table = source_table if shared else token_table(target_vocabulary, width)
        self.embed_source, self.embed_target = embedding(source_table, True), embedding(target_table, False)
        slots = attention, partial(config.feed_forward.build, width, config.inner), norm.residual(width, config.dropout)
        self.encoder = Stack(config.encoder_layers, norm.final(width), *slots)
        self.decoder = Stack(config.decoder_layers, norm.final(width), *slots, cross)
        self.into_head = AppendOne() if config.output_bias else nn.Identity()
        tied = target_table if config.embeddings in ("shared", "tied") else None
        self.head = (biased_head if config.output_bias else Head)(width, target_vocabulary, tied)
        if config.copying:
            self.head = Copying(self.head, width)

    @property
    def output_weight(self) -> Tensor:
        refuse(self.config.copying, "a model that copies is more than one product: set objective=head-cross-entropy")
        return super().output_weight

    def of_source(self, inputs: Any) -> dict[str, Sequence[Any]]:
        return {"source_ids": [SourceIds(inputs.ids_BT)]} if self.config.copying else {}
