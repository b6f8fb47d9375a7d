"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention Is All You Need").

B batch, R rows (hypotheses), S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor, nn

from headway.models import parts
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, DecoderBlock, Stack
from headway.nn.embedding import Head, TokenEmbedding, token_table
from headway.nn.mask import Causal, Padding, Scene
from headway.nn.state import DecoderState, fresh_caches


@dataclass(frozen=True)
class TransformerConfig:
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


TINY = TransformerConfig(encoder_layers=4, decoder_layers=4, width=128, inner=256, heads=4, dropout=0.3)
BASE = TransformerConfig()
BIG = TransformerConfig(width=1024, inner=4096, heads=16, dropout=0.3)
SIZES = {"tiny": TINY, "base": BASE, "big": BIG}


class Transformer(nn.Module):
    """p(y_t | y_<t, x) = softmax(head(decoder(y_<t, encoder(x))))."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.vocabularies = (source_vocabulary, target_vocabulary)
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
            return TokenEmbedding(table, config.position.build(room), config.dropout)

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
        tied = None if config.embeddings == "separate" else target_table
        self.head = Head(config.width, target_vocabulary, tied)

    def encode(self, source_BS: Tensor, lengths_B: Tensor | None = None, room: int | None = None) -> DecoderState:
        """The source's memory for each decoder layer, and empty caches: fixed at `room`, growing, or, where `room`
        is 0, none (for a target that is given whole)."""
        scene = Scene(source_BS.shape[1], source_BS.shape[1], source_BS.device, key_lengths_B=lengths_B)
        view = Padding().view(scene).placed(self.embed_source.position)
        x_BSD = self.embed_source(source_BS)
        for block in self.encoder.layers:
            x_BSD = block(x_BSD, view)
        x_BSD = self.encoder.final(x_BSD)
        memories = [block.remember(x_BSD) for block in self.decoder.layers]  # type: ignore[operator]
        caches, clock = fresh_caches(len(memories), len(source_BS), source_BS.device, room)
        return DecoderState(caches, clock, memories, lengths_B)

    def hidden(self, ids_RT: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The decoder's last layer for the next T tokens of each row."""
        clock, steps, device = state.clock, ids_RT.shape[1], ids_RT.device
        scene = Scene(steps, clock.longest + steps, device, clock.start)
        view = Causal().view(scene).placed(self.embed_target.position)
        sources = Scene(1, state.memories[0].k_BHSK.shape[2], device, key_lengths_B=state.source_lengths_B)
        source_view = Padding().view(sources)
        x_RTD = self.embed_target(ids_RT, clock.start)
        for block, memory, cache in zip(self.decoder.layers, state.memories, state.caches, strict=True):
            x_RTD = block(x_RTD, view, memory, source_view, cache)
        clock.advance(steps)
        return self.decoder.final(x_RTD), state

    def decode(self, ids_RT: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        hidden_RTD, state = self.hidden(ids_RT, state)
        return self.head(hidden_RTD), state

    def forward(self, source_BS: Tensor, target_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Logits of every target position at once, each from the true target before it."""
        return self.decode(target_BT, self.encode(source_BS, lengths_B))[0]
