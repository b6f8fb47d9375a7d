"""How every language model of causal blocks is stepped, whatever its parts are.

R rows, T length, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.models.language import NextTokenModel
from headway.models.protocols import Embedded
from headway.nn.block import Stack
from headway.nn.cache import fresh_caches
from headway.nn.embedding import StepEmbedding
from headway.nn.mask import Causal, Scene, Segments, View
from headway.nn.state import State


def caches(layers: int, rows: int, device: torch.device, room: int | None) -> State:
    """The state of causal attention: keys and values of each layer."""
    found, clock = fresh_caches(layers, rows, device, room)
    return State({"caches": found}, clock)


class DecoderOnly(NextTokenModel):
    """Abstract. p(x_t | x_<t) = softmax(head(decoder(embed(x_<t)))).

    `into_head`: what the last layer passes through before the head: nothing, or a 1 for the bias.
    """

    embed: StepEmbedding
    decoder: Stack
    into_head: nn.Module

    def views(self, scene: Scene) -> list[View]:
        """What each layer's tokens may look at."""
        return [(Causal() & Segments()).view(scene).placed(self.embed.position)] * len(self.decoder.layers)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        x_RTD, segments_RT, clock = embedded.x_RTD, embedded.segments_RT, state.time
        steps = x_RTD.shape[1]
        ends_R = None if embedded.lengths_R is None else clock.lengths_R + embedded.lengths_R
        scene = Scene(steps, clock.longest + steps, x_RTD.device, clock.start, ends_R, segments_RT, segments_RT)
        x_RTD = self.decoder.walk(x_RTD, list(zip(self.views(scene), state["caches"], strict=True)))
        clock.advance(steps)
        if ends_R is not None:
            state.trim(ends_R)
        return self.into_head(x_RTD), state
