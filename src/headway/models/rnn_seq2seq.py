"""The recurrent encoder-decoder with attention (Bahdanau et al. 2015; Luong et al. 2015, global attention, "concat").

    h_s = [h→_s; h←_s]                                  the encoder reads the source in both directions
    d_t = cell(E[y_t], d_{t−1}),  d_0 = tanh(W_0 h←_1)  the decoder reads the target
    a_ts = softmax_s(vᵀ tanh(W₁d_t + W₂h_s)),  c_t = Σ_s a_ts h_s
    p(y_{t+1} | y_≤t, x) = softmax(W tanh(W_c c_t + W_d d_t))

The score is Bahdanau's. As in Luong et al. the decoder attends after its cell, so that no step of the recurrence needs
the attention of the step before: with the true target given, all steps are one call of a fused kernel.

B sources, R rows (hypotheses), S source length, T target length, D width, H heads (one), K width of keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from headway.errors import refuse
from headway.models.encoder_decoder import SequenceToSequence, source_slots
from headway.models.protocols import Embedded, Encoded
from headway.models.recurrent import Gru, Lstm, Rnn
from headway.nn import tap
from headway.nn.attention import CrossAttention, SumScore
from headway.nn.dropout import Dropout
from headway.nn.embedding import Head, TokenEmbedding, token_table
from headway.nn.mask import View
from headway.nn.position import Position
from headway.nn.recurrent import Cell, RecurrentLayer, RecurrentStack
from headway.nn.slots import Memory, Values
from headway.nn.state import State


@dataclass(frozen=True)
class RnnSeq2SeqConfig:
    """width: of embeddings, decoder and attention; each direction of the encoder has half of it."""

    name: ClassVar[str] = "rnn-seq2seq"
    cell: Rnn | Lstm | Gru = field(default_factory=Gru)
    encoder_layers: int = 1
    decoder_layers: int = 1
    width: int = 512
    dropout: float = 0.2
    embeddings: Literal["shared", "tied", "separate"] = "shared"
    max_length: int = 512

    def __post_init__(self) -> None:
        refuse(self.width % 2, f"model.width {self.width} is not even: each direction of the encoder has half of it")


SIZES = {"tiny": RnnSeq2SeqConfig(width=256), "base": RnnSeq2SeqConfig(Lstm(), 2, 2, 1024)}


class AdditiveAttention(CrossAttention):
    """W_c Σ_s a_s h_s with a = softmax_s(vᵀ tanh(W₁d + W₂h_s)) (Bahdanau et al. 2015). The values are h itself."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 1, bias=False, score=SumScore(width))
        self.key_value = nn.Linear(width, width, bias=False)  # W₂

    def remember(self, source_BSD: Tensor) -> Memory:
        return Memory(self.key_value(source_BSD)[:, None], source_BSD[:, None])


class AttentiveLayer(RecurrentLayer):
    """A recurrent layer with attention after it: d̃_t = tanh(W_c c_t + W_d d_t) (Luong et al. 2015, eq. 5)."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.cross, self.combine = AdditiveAttention(cell.width), nn.Linear(cell.width, cell.width)

    def attended(self, d_RTD: Tensor, memory: Memory, view: View) -> Tensor:
        return tap.save(self, "attended", torch.tanh(self.cross(d_RTD, memory, view) + self.combine(d_RTD)))


class BidirectionalLayer(nn.Module):
    """[h→; h←]: one cell reads a row from its start, another one from its end (Schuster and Paliwal 1997)."""

    def __init__(self, forwards: Cell, backwards: Cell) -> None:
        super().__init__()
        self.forwards, self.backwards = RecurrentLayer(forwards), RecurrentLayer(backwards)

    def forward(self, x_BSD: Tensor, order_BS: Tensor) -> Tensor:
        """`order_BS`: the places of each row's tokens from the last to the first, then of its padding. Padding is read
        after all tokens in both directions, so no token depends on it and no row needs packing."""
        ahead_BSK = self.forwards(x_BSD)[0]
        if not tap.recording():
            back_BSK = self.backwards(_in_order(x_BSD, order_BS))[0]
        else:
            with tap.record(self.backwards) as read:
                back_BSK = self.backwards(_in_order(x_BSD, order_BS))[0]
            for name, tensor in read.tensors.items():  # were saved in the order of reading
                tap.save(self.backwards, name, _in_order(tensor, order_BS), read.axes[name])
        return torch.cat([ahead_BSK, _in_order(back_BSK, order_BS)], -1)


def _reversed(x_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Of each row the last token's place, the one before … and then its padding's; it is its own inverse."""
    place_S = torch.arange(x_BSD.shape[1], device=x_BSD.device)
    if lengths_B is None:
        return place_S.flip(0).expand(x_BSD.shape[0], -1)
    return torch.where(place_S < lengths_B[:, None], lengths_B[:, None] - 1 - place_S, place_S)


def _in_order(x_BSD: Tensor, order_BS: Tensor) -> Tensor:
    return x_BSD.gather(1, order_BS[..., None].expand_as(x_BSD))


class BidirectionalStack(nn.Module):
    """Layers in sequence: each reads both directions of the one below."""

    def __init__(self, layers: list[BidirectionalLayer], dropout: Dropout) -> None:
        super().__init__()
        self.layers, self.between = nn.ModuleList(layers), dropout

    def forward(self, x_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
        order_BS = _reversed(x_BSD, lengths_B)
        for number, layer in enumerate(self.layers):
            x_BSD = layer(self.between(x_BSD) if number else x_BSD, order_BS)
        return x_BSD


@final
class RnnSeq2Seq(SequenceToSequence):
    """p(y_t | y_<t, x), from a decoder that looks back at every word of the source."""

    def __init__(self, config: RnnSeq2SeqConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        width = config.width
        if config.embeddings == "shared" and source_vocabulary != target_vocabulary:
            raise ValueError("shared embeddings need one joint vocabulary")
        source = token_table(source_vocabulary, width)
        target = source if config.embeddings == "shared" else token_table(target_vocabulary, width)
        self.embed_source, self.embed_target = (
            TokenEmbedding(table, Position(), config.dropout) for table in (source, target)
        )
        self.dropout = Dropout(config.dropout)

        def cell(to: int) -> Cell:
            return config.cell.build(width, to, 0.0)

        both = [BidirectionalLayer(cell(width // 2), cell(width // 2)) for _ in range(config.encoder_layers)]
        self.encoder = BidirectionalStack(both, self.dropout)
        layers = [RecurrentLayer(cell(width)) for _ in range(config.decoder_layers - 1)]
        self.decoder = RecurrentStack(
            [*layers, AttentiveLayer(cell(width))], nn.Identity(), self.dropout, nn.Identity()
        )
        self.parts = [len(layer.cell.parts) for layer in self.decoder.layers]
        self.first = nn.Linear(width // 2, sum(self.parts) * width)  # W_0
        self.head = Head(width, target_vocabulary, None if config.embeddings == "separate" else target)

    def encode(self, inputs: Any) -> Encoded:
        """[h→; h←] of every token."""
        return Encoded(self.encoder(self.embed_source(inputs.ids_BT), inputs.lengths_B), inputs.lengths_B)

    def start(self, inputs: Any, rows: int, device: torch.device, room: int | None = None) -> State:
        encoded = self.encode(inputs)
        back_BK = encoded.x_BTD[:, 0, self.config.width // 2 :]  # has read the whole source
        parts = iter(torch.tanh(self.first(back_BK)).chunk(sum(self.parts), -1))
        layers = [Values(*(next(parts) for _ in range(count))) for count in self.parts]
        memory = self.decoder.layers[-1].cross.remember(encoded.x_BTD)
        return State({"layers": layers} | source_slots([memory], encoded.lengths_B))

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        d_RTD, behind = self.decoder(embedded.x_RTD, state, embedded.lengths_R)
        (memory,) = state["memories"]
        d_RTD = self.decoder.layers[-1].attended(self.dropout(d_RTD), memory, self.source_view(state))
        return self.dropout(d_RTD), state.renew(behind.parts())
