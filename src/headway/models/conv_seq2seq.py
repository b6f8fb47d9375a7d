"""The convolutional encoder-decoder (Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", ConvS2S).

    e = E[x] + P, g = E'[y] + P'                   tokens with their positions, of the source and of the target
    h^l = (GLU(conv(h^{l−1})) + h^{l−1})·√½        a block of the encoder, h⁰ = W e; z = V h^L are the keys
    u^l = GLU(causal conv(h^{l−1}))                a block of the decoder, h⁰ = W' g; each has an attention of its own:
    a_ts = softmax_s(q_t · z_s),  q_t = (W_q u_t + g_t)·√½,  c_t = √S Σ_s a_ts (z_s + e_s)·√½
    h^l = ((u^l + W_c c)·√½ + h^{l−1})·√½
    p(y_{t+1} | y_≤t, x) = softmax(E' V' h^L)

All maps but the embeddings are weight-normed, w = g·v/‖v‖ (Salimans and Kingma 2016). No step waits for another one in
training. In a search each layer keeps its last inputs, as many as its window looks back: their number does not grow.

B sources, R rows (hypotheses), S source length, T target length, D width of embeddings and keys, I inner width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from headway.errors import refuse
from headway.models import parts
from headway.models.encoder_decoder import SequenceToSequence, source_slots
from headway.models.protocols import Embedded, Encoded
from headway.nn.attention import CrossAttention, dot
from headway.nn.block import BlockStack
from headway.nn.convolution import Before, Convolution, Gated
from headway.nn.dropout import Dropout
from headway.nn.embedding import Head, TokenEmbedding, token_table
from headway.nn.slots import Clock, Memory
from headway.nn.state import State
from headway.nn.view import View

STD = 0.1  # of embeddings and positions at the start (Gehring et al. 2017, 3.5)
HALF = math.sqrt(0.5)  # keeps the variance of a sum of two


@dataclass(frozen=True)
class ConvSeq2SeqConfig:
    """`width`: of embeddings, keys and values; `inner`: of the convolutions. `window`: tokens that one convolution of
    the encoder and of the decoder sees."""

    name: ClassVar[str] = "conv-seq2seq"
    encoder_layers: int = 4
    decoder_layers: int = 3
    width: int = 256
    inner: int = 256
    window: int = 3
    dropout: float = 0.2
    embeddings: Literal["shared", "tied", "separate"] = "shared"
    position: parts.Learned | parts.Sinusoidal | parts.NoPosition = field(default_factory=parts.Learned)
    max_length: int = 512

    def __post_init__(self) -> None:
        refuse(self.inner < 1, f"model.inner must be at least 1, not {self.inner}")
        refuse(self.window < 1, f"model.window must be at least 1, not {self.window}")


SIZES = {
    "tiny": ConvSeq2SeqConfig(2, 2, 128, 128),
    "base": ConvSeq2SeqConfig(),
    "big": ConvSeq2SeqConfig(10, 10, 256, 512, dropout=0.25),
}


class ScaledGradient(torch.autograd.Function):
    """x, whose gradient is multiplied by `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


def _normed(layer: nn.Linear, variance: float) -> nn.Linear:
    """This map with a normed weight, drawn so that its outputs have so many times the inputs' variance."""
    nn.init.normal_(layer.weight, std=math.sqrt(variance / layer.in_features))
    nn.init.zeros_(layer.bias)
    weight_norm(layer)
    return layer


def _gated(config: ConvSeq2SeqConfig, padding: Literal["same", "causal"]) -> Gated:
    convolution = Convolution(config.inner, 2 * config.inner, config.window, padding)
    # A gate halves, and dropout's scale raises the variance of what comes in.
    _normed(convolution.map, 4 * (1 - config.dropout))
    return Gated(convolution)


class EncoderBlock(nn.Module):
    """h' = (GLU(conv(h)) + h)·√½."""

    def __init__(self, config: ConvSeq2SeqConfig) -> None:
        super().__init__()
        self.gated, self.dropout = _gated(config, "same"), Dropout(config.dropout)

    def forward(self, h_BSI: Tensor, lengths_B: Tensor | None) -> Tensor:
        u_BSI, _ = self.gated(self.dropout(h_BSI), lengths_B)
        return (u_BSI + h_BSI) * HALF


class GivenQueries(CrossAttention):
    """Σ_s a_s v_s with a = softmax_s(q · z_s), mapped back. Queries are given; all layers share one memory."""

    def __init__(self, width: int, output: nn.Linear) -> None:
        super(CrossAttention, self).__init__(width, 1, 0.0, None, dot)
        self.query, self.output = nn.Identity(), output  # type: ignore[assignment]


class DecoderBlock(nn.Module):
    """u = GLU(causal conv(h)), then h' = ((u + attention(u))·√½ + h)·√½."""

    def __init__(self, config: ConvSeq2SeqConfig) -> None:
        super().__init__()
        self.gated, self.dropout = _gated(config, "causal"), Dropout(config.dropout)
        self.query = _normed(nn.Linear(config.inner, config.width), 1.0)
        self.cross = GivenQueries(config.width, _normed(nn.Linear(config.width, config.inner), 1.0))

    def forward(
        self, h_RTI: Tensor, slot: Before, target_RTD: Tensor, memory: Memory, view: View, lengths_R: Tensor | None
    ) -> Tensor:
        u_RTI = self.gated.after(self.dropout(h_RTI), slot, lengths_R)
        query_RTD = (self.query(u_RTI) + target_RTD) * HALF
        u_RTI = (self.cross(query_RTD, memory, view) + u_RTI) * HALF
        return (u_RTI + h_RTI) * HALF


@final
class ConvSeq2Seq(SequenceToSequence):
    """p(y_t | y_<t, x), from convolutions of both and an attention in every layer of the decoder."""

    def __init__(self, config: ConvSeq2SeqConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        if config.embeddings == "shared" and source_vocabulary != target_vocabulary:
            raise ValueError("shared embeddings need one joint vocabulary")
        width, inner, keeps = config.width, config.inner, 1 - config.dropout
        source = token_table(source_vocabulary, width, STD)
        target = source if config.embeddings == "shared" else token_table(target_vocabulary, width, STD)
        room = parts.Room(width, 1, config.max_length)
        self.embed_source, self.embed_target = (
            TokenEmbedding(table, config.position.build(room), config.dropout, scale=1.0) for table in (source, target)
        )
        for embedding in (self.embed_source, self.embed_target):
            for weight in embedding.position.parameters():
                nn.init.normal_(weight, std=STD)
        self.widen_source, self.widen_target = (_normed(nn.Linear(width, inner), keeps) for _ in range(2))
        encoder = [EncoderBlock(config) for _ in range(config.encoder_layers)]
        decoder = [DecoderBlock(config) for _ in range(config.decoder_layers)]
        self.encoder = BlockStack(encoder, _normed(nn.Linear(inner, width), 1.0))
        self.decoder = BlockStack(decoder, _normed(nn.Linear(inner, width), 1.0))
        self.dropout = Dropout(config.dropout)
        self.head = Head(width, target_vocabulary, None if config.embeddings == "separate" else target)

    def encode(self, inputs: Any) -> Encoded:
        """z, the keys of every token."""
        return Encoded(self._keys(self.embed_source(inputs.ids_BT), inputs.lengths_B), inputs.lengths_B)

    def _keys(self, embedded_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
        given = [(lengths_B,)] * self.config.encoder_layers
        return self.encoder.walk(self.widen_source(embedded_BSD), given)

    def start(self, inputs: Any, rows: int, device: torch.device, room: int | None = None) -> State:
        """The source's keys and values, which all layers share, and zeros before the first token."""
        embedded_BSD, lengths_B = self.embed_source(inputs.ids_BT), inputs.lengths_B
        # Every attention of the decoder adds its gradient to the encoder's (Gehring et al. 2017, 3.4).
        share = 0.5 / self.config.decoder_layers
        keys_BSD: Tensor = ScaledGradient.apply(self._keys(embedded_BSD, lengths_B), share)
        # √S: a mean of S vectors, as attention is at the start, has 1/S of the variance of one.
        tokens_B = keys_BSD.new_full((keys_BSD.shape[0],), keys_BSD.shape[1]) if lengths_B is None else lengths_B
        values_BSD = (keys_BSD + embedded_BSD) * (HALF * tokens_B.to(keys_BSD.dtype).sqrt()[:, None, None])
        memory = Memory(keys_BSD[:, None], values_BSD[:, None])
        rows, inner = keys_BSD.shape[0], self.config.inner
        layers = [Before.start(rows, block.gated.convolution.span, inner, keys_BSD) for block in self.decoder.layers]
        clock = Clock(torch.zeros(rows, dtype=torch.long, device=device), 0)
        return State({"layers": layers} | source_slots([memory], lengths_B), clock)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        target_RTD, lengths_R, clock = embedded.x_RTD, embedded.lengths_R, state.time
        ends_R = None if lengths_R is None else clock.lengths_R + lengths_R
        (memory,), view = state["memories"], self.source_view(state)
        given = [(slot, target_RTD, memory, view, lengths_R) for slot in state["layers"]]
        h_RTD = self.decoder.walk(self.widen_target(target_RTD), given)
        state.advance(target_RTD.shape[1], ends_R)
        return self.dropout(h_RTD), state
