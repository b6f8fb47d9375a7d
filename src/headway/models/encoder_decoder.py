"""How every encoder-decoder of attention is stepped, whatever its parts are.

B sources, R rows (hypotheses), S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headway.batch import TextInputs
from headway.models.protocols import Embedded, Encoded, Steps, Tracks
from headway.nn.block import Stack
from headway.nn.cache import fresh_caches
from headway.nn.embedding import TokenEmbedding
from headway.nn.mask import Causal, Padding, Scene
from headway.nn.slots import Memory, SourceValues
from headway.nn.state import State
from headway.nn.view import View


def source_slots(memories: Sequence[Memory], lengths_B: Tensor | None) -> dict[str, Sequence[Any]]:
    """Keys and values of the sources, and their lengths where they differ."""
    return {"memories": memories, "source_lengths": [] if lengths_B is None else [SourceValues(lengths_B)]}


class SequenceToSequence(Steps):
    """Abstract. p(y_t | y_<t, x), from an encoder that reads x and a decoder."""

    tracks: ClassVar[Tracks] = {
        "": ("target", "target"),
        "embed_source": ("source", "source"),
        "encoder": ("source", "source"),
        "decoder.cross": ("target", "source"),
    }
    embed_source: TokenEmbedding
    embed_target: TokenEmbedding
    head: Any  # of hidden vectors and the state

    def __init__(self, config: Any, *vocabularies: int) -> None:
        super().__init__(config, *vocabularies)
        self.context = config.max_length

    @property
    def output_weight(self) -> Tensor:
        weight: Tensor = self.head.weight
        return weight

    def embed(
        self, ids_RT: Tensor, state: State, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        start = 0 if state.clock is None else state.clock.start
        return Embedded(self.embed_target(ids_RT, start), lengths_R, segments_RT)

    def source_view(self, state: State) -> View:
        """All of a source but its padding."""
        keys_BHSK = state["memories"][0].k_BHSK
        lengths_B = next((lengths.tensors[0] for lengths in state["source_lengths"]), None)
        return Padding().view(Scene(1, keys_BHSK.shape[2], keys_BHSK.device, key_lengths_B=lengths_B))

    def forward(self, source_BS: Tensor, target_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Logits of every target position at once, each from the true target before it."""
        source = TextInputs(source_BS, lengths_B)
        return self.logits(target_BT, self.start(source, len(source_BS), source_BS.device))[0]


class EncoderDecoder(SequenceToSequence):
    """Abstract. p(y_t | y_<t, x) = softmax(head(decoder(y_<t, encoder(x)))), both stacks of attention.

    `into_head`: what the last layer passes through before the head: nothing, a scale, a 1 for the bias.
    """

    encoder: Stack
    decoder: Stack
    into_head: nn.Module

    def encode(self, inputs: Any) -> Encoded:
        """The encoder's last layer."""
        x_BSD = self.embed_source(inputs.ids_BT)
        x_BSD = self.encoder.encode(x_BSD, inputs.lengths_B, self.embed_source.position)
        return Encoded(x_BSD, inputs.lengths_B)

    def start(self, inputs: Any, rows: int, device: torch.device, room: int | None = None) -> State:
        """The source's memory for each decoder layer, and empty caches."""
        state = self.remember(self.encode(inputs), room)
        return State({**state.slots, **self.of_source(inputs)}, state.clock, state.group)

    def of_source(self, inputs: Any) -> dict[str, Sequence[Any]]:
        """Slots for what else a head reads of the source."""
        return {}

    def remember(self, encoded: Encoded, room: int | None = None) -> State:
        """As `start`, for what is encoded already."""
        (sources, length, _), lengths_B = encoded.x_BTD.shape, encoded.lengths_B
        if room and lengths_B is None:  # a room may be wider than its sources
            lengths_B = torch.full((sources,), length, device=encoded.x_BTD.device)
        memories = [block.cross.remember(encoded.x_BTD) for block in self.decoder.layers]
        caches, clock = fresh_caches(len(memories), sources, encoded.x_BTD.device, room)
        return State({"caches": caches} | source_slots(memories, lengths_B), clock)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        x_RTD, clock, steps = embedded.x_RTD, state.time, embedded.x_RTD.shape[1]
        view = Causal().view(Scene(steps, clock.longest + steps, x_RTD.device, clock.start))
        view, source_view = view.placed(self.embed_target.position), self.source_view(state)
        ends_R = None if embedded.lengths_R is None else clock.lengths_R + embedded.lengths_R
        pairs = zip(state["caches"], state["memories"], strict=True)
        x_RTD = self.decoder.walk(x_RTD, [(view, *pair, source_view) for pair in pairs])
        state.advance(steps, ends_R)
        return self.into_head(x_RTD), state
