"""What every language model has, whatever it remembers of the past, and how those of causal blocks are stepped.

B batch, R rows, T length, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models.protocols import Embedded, Steps, Tracks
from headway.nn.block import Stack
from headway.nn.cache import fresh_caches
from headway.nn.embedding import Head, JoinedHead, StepEmbedding
from headway.nn.mask import Causal, Scene, Segments
from headway.nn.state import State
from headway.nn.view import View

LOGITS_AT_ONCE = 2**24  # that scoring holds


class NextTokenModel(Steps):
    """Abstract. p(x_t | x_<t) = softmax(head(hidden(embed(x_<t))))."""

    tracks: ClassVar[Tracks] = {"": ("tokens", "tokens")}
    output: Head | JoinedHead

    @property
    def output_weight(self) -> Tensor:
        return self.output.weight

    def head(self, hidden_RTD: Tensor, state: Any = None) -> Tensor:
        return self.output(hidden_RTD)[..., : self.vocabulary]

    def rates(self) -> dict[str, float]:
        """What the rates of some weights are multiplied by, by their names."""
        return {}

    def forward(self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None) -> tuple[Tensor, Any]:
        return self.logits(ids_BT, state, segments_BT)

    def scored(
        self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:  # fmt: skip
        """log p(x_t | x_<t) of every token, 0 for the first of a row, which is given; the state has then read all but
        the last. The logits are never whole."""
        segments_BT = None if segments_BT is None else segments_BT[:, :-1]
        hidden_BTD, state = self.read(ids_BT[:, :-1], state, segments_BT)
        hidden_ND = hidden_BTD.flatten(0, 1)
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        rows = max(1, LOGITS_AT_ONCE // self.vocabulary)
        parts = zip(hidden_ND.split(rows), ids_BT[:, 1:].flatten()[:, None].split(rows), strict=True)
        logp_N1 = torch.cat(
            [F.log_softmax(self.head(h_ND, state), -1, dtype=wide).gather(1, y_N1) for h_ND, y_N1 in parts]
        )
        return F.pad(logp_N1.view(len(ids_BT), -1), (1, 0)), state

    def score(self, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """`scored` of a text that is given whole."""
        return self.scored(ids_BT, None, segments_BT)[0]


class DecoderOnly(NextTokenModel):
    """Abstract. p(x_t | x_<t) = softmax(head(decoder(embed(x_<t)))).

    `into_head`: what the last layer passes through before the head: nothing, or a 1 for the bias.
    """

    embed: StepEmbedding
    decoder: Stack
    into_head: nn.Module

    def __init__(self, config: Any, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        self.context, self.into_head = config.max_length, nn.Identity()

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        """Keys and values of each layer."""
        caches, clock = fresh_caches(self.config.layers, rows, device, room)
        return State({"caches": caches}, clock)

    def scene(self, state: State, steps: int, segments_RT: Tensor | None) -> Scene:
        """Of so many new tokens and what the state remembers."""
        return state.time.scene(steps, segments_RT)

    def views(self, scene: Scene, dtype: torch.dtype) -> list[View]:
        """What each layer's tokens may look at."""
        return [(Causal() & Segments()).view(scene).placed(self.embed.position)] * len(self.decoder.layers)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        x_RTD, segments_RT, clock = embedded.x_RTD, embedded.segments_RT, state.time
        steps = x_RTD.shape[1]
        ends_R = None if embedded.lengths_R is None else clock.lengths_R + embedded.lengths_R
        clock.ends_R = ends_R
        views = self.views(self.scene(state, steps, segments_RT), x_RTD.dtype)
        x_RTD = self.decoder.walk(x_RTD, list(zip(views, state["caches"], strict=True)))
        state.advance(steps, ends_R)
        return self.into_head(x_RTD), state


def hidden_weights(model: nn.Module) -> dict[str, Tensor]:
    """The matrices from hidden units to hidden units, by their names; refused where a model has others that grow with
    its width."""
    if not isinstance(model, DecoderOnly):
        raise InputError("only the families gpt, llama and decoder say which weights grow with the width")
    layers, prefix = model.decoder.layers, "decoder.layers"
    maps = ((name, part) for name, part in layers.named_modules(prefix=prefix) if isinstance(part, nn.Linear))
    found = {f"{name}.weight": part.weight for name, part in maps}
    for name, weight in layers.named_parameters(prefix):
        refuse(weight.dim() > 1 and name not in found, f"how the weight '{name}' grows with the width is not known")
    return found
