"""How every language model of causal blocks is stepped, whatever its parts are.

B batch, T length, D width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headway.models.language import NextTokenModel
from headway.nn.block import Stack
from headway.nn.embedding import TokenEmbedding
from headway.nn.mask import Causal, Scene, Segments, View


class DecoderOnly(NextTokenModel):
    """Abstract. p(x_t | x_<t) = softmax(head(decoder(embed(x_<t)))).

    `into_head` is what the last layer goes through on its way: nothing, or a 1 for the bias.
    """

    embed: TokenEmbedding
    decoder: Stack
    into_head: nn.Module

    def views(self, scene: Scene) -> list[View]:
        """What each layer's tokens may look at."""
        return [(Causal() & Segments()).view(scene).placed(self.embed.position)] * len(self.decoder.layers)

    def hidden(
        self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        state = state or self.start(len(ids_BT), ids_BT.device, room=0)
        clock, steps = state.clock, ids_BT.shape[1]
        ends_B = None if lengths_B is None else clock.lengths_R + lengths_B
        scene = Scene(steps, clock.longest + steps, ids_BT.device, clock.start, ends_B, segments_BT, segments_BT)
        x_BTD = self.embed(ids_BT, clock.start)
        x_BTD = self.decoder.walk(x_BTD, list(zip(self.views(scene), state.caches, strict=True)))
        clock.advance(steps)
        if ends_B is not None:
            state.trim(ends_B)
        return self.into_head(x_BTD), state
