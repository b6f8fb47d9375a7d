"""Recurrent encoder-decoders, without attention (Sutskever et al. 2014) and with it (Bahdanau et al. 2015; Luong et al.
2015).

    h_s = [h→_s; h←_s]                                  the encoder reads the source, here in both directions
    d_t = cell(E[y_t], d_{t−1}),  d_0 = tanh(W_0 h←_1)  the decoder reads the target
    a_ts = softmax_s(score(d_t, h_s)),  c_t = Σ_s a_ts h_s
    p(y_{t+1} | y_≤t, x) = softmax(W tanh(W_c c_t + W_d d_t))

The score is a slot, and so is the form, where the attention stands: after the cell as above, where all steps of a given
target are one call of a fused kernel; before it, with c_t as an input of the cell; or after it, with its result as an
input of the next step. So is the encoder: cells, or convolutions (Gehring et al. 2016).

B sources, R rows (hypotheses), S source length, T target length, D width, H heads (one), K width of keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models.encoder_decoder import SequenceToSequence, source_slots
from headway.models.protocols import Embedded, Encoded
from headway.models.recurrent import Gru, Lstm, Rnn
from headway.nn import attention, attentive, directed
from headway.nn.convolved import ConvolvedStack, MeanStart, ResidualConvolution
from headway.nn.dropout import Dropout
from headway.nn.embedding import AppendOne, Head, TokenEmbedding, biased_head, token_table
from headway.nn.position import Learned, Position
from headway.nn.recurrent import Cell, RecurrentLayer
from headway.nn.slots import Values
from headway.nn.state import State
from headway.nn.view import SEE_ALL

FORMS: dict[str, type[attentive.AfterCell]] = {
    "after": attentive.AfterCell, "before": attentive.BeforeCell, "feeding": attentive.InputFeeding,
}  # fmt: skip


@dataclass(frozen=True)
class Attention:
    """Abstract. The decoder's last layer attends."""

    def cross(self, width: int) -> attentive.SourceAttention:
        raise NotImplementedError

    def layer(self, cell: Cell) -> RecurrentLayer:
        return attentive.AttentiveLayer(cell, self.cross(cell.width))

    def decoder(self, form: str) -> type[attentive.PlainDecoder]:
        return FORMS[form]


@dataclass(frozen=True)
class Additive(Attention):
    """vᵀ tanh(W₁d + W₂h) (Bahdanau et al. 2015)."""

    name: ClassVar[str] = "additive"

    def cross(self, width: int) -> attentive.SourceAttention:
        return attentive.SourceAttention(width, attention.SumScore(width))


@dataclass(frozen=True)
class Dot(Attention):
    """dᵀh (Luong et al. 2015)."""

    name: ClassVar[str] = "dot"

    def cross(self, width: int) -> attentive.SourceAttention:
        return attentive.SourceAttention(width, attention.dot, query=False, key=False)


@dataclass(frozen=True)
class Multiplicative(Attention):
    """dᵀWh (Luong et al. 2015, "general")."""

    name: ClassVar[str] = "multiplicative"

    def cross(self, width: int) -> attentive.SourceAttention:
        return attentive.SourceAttention(width, attention.dot, query=False)


@dataclass(frozen=True)
class ScaledDot(Attention):
    """(W₁d)ᵀ(W₂h)/√D, with learned queries and keys (Vaswani et al. 2017)."""

    name: ClassVar[str] = "scaled-dot"

    def cross(self, width: int) -> attentive.SourceAttention:
        return attentive.SourceAttention(width, attention.scaled_dot)


@dataclass(frozen=True)
class NoAttention(Attention):
    """All that the decoder knows of the source is the state that it starts from (Sutskever et al. 2014)."""

    name: ClassVar[str] = "none"

    def layer(self, cell: Cell) -> RecurrentLayer:
        return RecurrentLayer(cell)

    def decoder(self, form: str) -> type[attentive.PlainDecoder]:
        if form != "after":
            raise InputError(f"model.form={form} says where the attention stands: choose model.attention, or no form")
        return attentive.PlainDecoder


@dataclass(frozen=True)
class RecurrentEncoder:
    """Cells that read the source in `direction`."""

    name: ClassVar[str] = "recurrent"

    def check(self, config: RnnSeq2SeqConfig) -> None:
        both = config.direction == "both"
        odd = f"model.width {config.width} is not even: each direction of the encoder has half"
        refuse(both and config.width % 2, odd)
        if config.start == "copied" and config.encoder_layers != config.decoder_layers:
            raise InputError(
                f"model.start=copied gives each layer of the decoder a layer of the encoder: {config.encoder_layers} "
                f"and {config.decoder_layers} layers do not fit"
            )

    def position(self, config: RnnSeq2SeqConfig) -> Position:
        return Position()

    def build(self, config: RnnSeq2SeqConfig, dropout: nn.Module) -> nn.Module:
        one_way, layers = config.width // len(config.directions), []
        for number in range(config.encoder_layers):
            inputs = config.width if number else config.narrow
            cells = {direction: config.cell.build(inputs, one_way, 0.0) for direction in config.directions}
            layers.append(directed.DirectedLayer(cells, holds=config.start == "copied"))
        return directed.DirectedStack(layers, dropout)

    def start(self, config: RnnSeq2SeqConfig, parts: list[int]) -> nn.Module:
        """`parts`: how many vectors the state of each layer of the decoder has."""
        if config.start == "copied":
            return directed.CopiedStart()
        one_way = config.width // len(config.directions)
        return directed.MappedStart(config.directions, one_way, parts, config.width)


@dataclass(frozen=True)
class ConvolutionalEncoder:
    """Residual convolutions over the source and its positions (Gehring et al. 2016); the decoder starts from their
    mean. `window`: tokens that one of them sees."""

    name: ClassVar[str] = "convolutional"
    window: int = 3

    def check(self, config: RnnSeq2SeqConfig) -> None:
        refuse(self.window < 1, f"model.encoder.window must be at least 1, not {self.window}")
        for key, usual in (("direction", "both"), ("start", "mapped")):
            found = getattr(config, key)
            refuse(
                found != usual, f"model.{key}={found} is of a recurrent encoder: leave it out for a convolutional one"
            )

    def position(self, config: RnnSeq2SeqConfig) -> Position:
        found = Learned(config.narrow, config.max_length)
        nn.init.normal_(found.table.weight)  # as large as a token's vector
        return found

    def build(self, config: RnnSeq2SeqConfig, dropout: nn.Module) -> nn.Module:
        layers = [ResidualConvolution(config.width, self.window, dropout) for _ in range(config.encoder_layers)]
        return ConvolvedStack(config.narrow, config.width, layers)

    def start(self, config: RnnSeq2SeqConfig, parts: list[int]) -> nn.Module:
        return MeanStart(config.width, parts, config.width)


@dataclass(frozen=True)
class RnnSeq2SeqConfig:
    """width: of decoder and attention; each direction of an encoder that has both has half of it. embedding: the width
    of the embeddings (0: as above). attention: its score, or none. form: attention `after` the cell, `before` it
    (Bahdanau), or after it with input `feeding` (Luong). direction: in which the encoder reads; `backwards` is a
    reversed source. start: the decoder's first state, `mapped` from the encoder's last output or a copy of its last
    states. bias: of the logits. encoder: of cells (`recurrent`) or `convolutional`.
    """

    name: ClassVar[str] = "rnn-seq2seq"
    cell: Rnn | Lstm | Gru = field(default_factory=Gru)
    encoder_layers: int = 1
    decoder_layers: int = 1
    width: int = 512
    dropout: float = 0.2
    embeddings: Literal["shared", "tied", "separate"] = "shared"
    max_length: int = 512
    attention: Additive | Dot | Multiplicative | ScaledDot | NoAttention = field(default_factory=Additive)
    form: Literal["after", "before", "feeding"] = "after"
    direction: Literal["both", "forwards", "backwards"] = "both"
    start: Literal["mapped", "copied"] = "mapped"
    embedding: int = 0
    bias: bool = False
    encoder: RecurrentEncoder | ConvolutionalEncoder = field(default_factory=RecurrentEncoder)

    def __post_init__(self) -> None:
        self.encoder.check(self)
        refuse(self.embedding < 0, f"model.embedding must be at least 0, not {self.embedding}")
        if self.embeddings != "separate" and self.embedding not in (0, self.width):
            raise InputError(
                f"model.embedding {self.embedding} is not model.width {self.width}: set model.embeddings=separate"
            )
        self.attention.decoder(self.form)

    @property
    def narrow(self) -> int:
        return self.embedding or self.width

    @property
    def directions(self) -> tuple[str, ...]:
        return directed.DIRECTIONS[self.direction]


SIZES = {"tiny": RnnSeq2SeqConfig(width=256), "base": RnnSeq2SeqConfig(Lstm(), 2, 2, 1024)}


@final
class RnnSeq2Seq(SequenceToSequence):
    """p(y_t | y_<t, x), from a decoder that looks back at every word of the source."""

    small_kernels = True

    def __init__(self, config: RnnSeq2SeqConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        narrow = config.narrow
        if config.embeddings == "shared" and source_vocabulary != target_vocabulary:
            raise ValueError("shared embeddings need one joint vocabulary")
        source = token_table(source_vocabulary, narrow)
        target = source if config.embeddings == "shared" else token_table(target_vocabulary, narrow)
        self.embed_source, self.embed_target = (
            TokenEmbedding(table, position, config.dropout)
            for table, position in ((source, config.encoder.position(config)), (target, Position()))
        )
        self.dropout = Dropout(config.dropout)
        self.encoder: Any = config.encoder.build(config, self.dropout)
        self.decoder = self._decoder(config)
        parts = [len(layer.cell.parts) for layer in self.decoder.layers]
        self.first: Any = config.encoder.start(config, parts)
        tied = None if config.embeddings == "separate" else target
        head = biased_head if config.bias else Head
        self.into_head = AppendOne() if config.bias else nn.Identity()
        self.head = head(config.width, target_vocabulary, tied)

    def _decoder(self, config: RnnSeq2SeqConfig) -> Any:
        """The last of its layers attends; what a form feeds into the cell enters the first."""
        form = config.attention.decoder(config.form)
        inputs = config.narrow + (config.width if issubclass(form, attentive.FedDecoder) else 0)
        cells = [
            config.cell.build(config.width if number else inputs, config.width, 0.0)
            for number in range(config.decoder_layers)
        ]
        return form([*map(RecurrentLayer, cells[:-1]), config.attention.layer(cells[-1])], self.dropout)

    def encode(self, inputs: Any) -> Encoded:
        """h of every token."""
        read = self._read(inputs)
        return Encoded(read.x_BSD, read.lengths_B)

    def _read(self, inputs: Any) -> directed.Read:
        read: directed.Read = self.encoder(self.embed_source(inputs.ids_BT), inputs.lengths_B)
        return read

    def start(self, inputs: Any, rows: int, device: torch.device, room: int | None = None) -> State:
        read = self._read(inputs)
        layers = [Values(*parts) for parts in self.first(read)]
        slots = {"layers": layers, "fed": self.decoder.fed(layers[-1].tensors[0])}
        memories = self.decoder.memories(read.x_BSD)
        return State(slots | source_slots(memories, read.lengths_B if memories else None))

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        view = self.source_view(state) if state["memories"] else SEE_ALL
        d_RTD, behind = self.decoder.decode(embedded.x_RTD, state, view, embedded.lengths_R)
        return self.into_head(self.dropout(d_RTD)), state.renew(behind.parts())
