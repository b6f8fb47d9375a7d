"""One stack for pictures, texts and actions: the places of a picture, a state and tokens stand in one sequence, and an
action is written as tokens (Brohan et al. 2023, RT-2, in small).

    picture places … | state | prompt … | start | answer …

What stands before the prompt is seen by all and sees itself; a token sees those before it. Of the vocabulary the last
`bins` entries are numbers of an action: its first number is the first token of the answer, and so on.

B rows, N places, G vectors before the first token, T tokens, S width of a state, A width of an action, D width, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models import parts
from headway.models.chunk_head import Binned
from headway.models.language import DecoderOnly
from headway.models.protocols import Embedded, Tracks
from headway.models.vit import Convolutions, LearnedGrid, NoPosition, OnGrid, Overlapping, Patches, Sinusoids
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack, draw_normal
from headway.nn.embedding import Head, StepEmbedding, padded, token_table
from headway.nn.mask import Prefix
from headway.nn.position import Learned, Scene
from headway.nn.slots import SourceValues
from headway.nn.state import State
from headway.nn.view import View

STD = 0.02
SIZED = ("states, actions, channels and a vocabulary of {}", "data.text.size")


@dataclass(frozen=True)
class MixtureConfig(OnGrid):
    """`image`: the height of a picture in pixels, and its width unless `across` is another. `stem`, `patch`,
    `position`: as those of `vit`. `bins`: of each number of an action. `max_length`: the most tokens of a prompt and
    its answer. `inner`: 0 for four times the width."""

    name: ClassVar[str] = "mixture"
    before: ClassVar[int] = 0  # learned tokens before the places
    image: int = 64
    layers: int = 6
    width: int = 256
    inner: int = 0
    heads: int = 4
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    feed_forward: parts.FeedForward = field(default_factory=parts.Gelu)
    stem: Convolutions | Patches | Overlapping = field(default_factory=Patches)
    position: LearnedGrid | Sinusoids | NoPosition = field(default_factory=LearnedGrid)
    patch: int = 8
    across: int = 0
    bins: int = 256
    max_length: int = 64

    def __post_init__(self) -> None:
        self.check_grid()
        refuse(self.bins < 2, f"model.bins must be at least 2, not {self.bins}")

    @property
    def given(self) -> int:
        """G: the places and the state."""
        rows, columns = self.sides
        return rows * columns + 1


def blank(config: MixtureConfig, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Pictures with a state, and tokens."""
    states, _, channels, _ = sizes
    inputs = SimpleNamespace(
        pixels_BCHW=torch.zeros(batch, channels, *config.size), states_BS=torch.zeros(batch, states),
        acts_B=torch.ones(batch),
    )  # fmt: skip
    return inputs, torch.zeros(batch, min(lengths[-1], config.max_length), dtype=torch.long)


class GivenEmbedding(StepEmbedding):
    """The tokens behind those that a state has read; the first G ids of a row stand for what it was given."""

    def forward(  # type: ignore[override]
        self, ids_RT: Tensor, state: State, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        if state.time.longest or ids_RT.shape[1] == 1:
            return super().forward(ids_RT, state, segments_RT, lengths_R)
        (given_BGD,) = state["given"][0].tensors
        tokens_RTD = self.table(ids_RT[:, given_BGD.shape[1] :]) * self.scale
        whole_RTD = torch.cat([given_BGD.to(tokens_RTD.dtype), tokens_RTD], 1)
        return Embedded(self.dropout(self.position.add(whole_RTD)), lengths_R, segments_RT)


@final
class Mixture(DecoderOnly):
    """p(y_t | y_<t, picture, state) = softmax(head(decoder([places(picture); state; y_<t])))."""

    tracks: ClassVar[Tracks] = {"": ("tokens", "tokens"), "picture": ("picture", "picture")}

    def __init__(self, config: MixtureConfig, states: int, actions: int, channels: int, vocabulary: int) -> None:
        super().__init__(config, vocabulary + config.bins)
        self.words, self.context = vocabulary, config.given + config.max_length
        width, table = config.width, token_table(padded(self.vocabulary), config.width, STD)
        self.picture: Any = config.stem.build(config, channels, config.position.build(config))  # type: ignore[arg-type]
        self.state, self.no_state_D = nn.Linear(states, width), nn.Parameter(torch.empty(width).normal_(std=STD))
        self.embed = GivenEmbedding(table, Learned(width, self.context), config.dropout, 1.0)
        self.decoder = Stack(
            config.layers,
            config.norm.final(width),
            partial(SelfAttention, width, config.heads, config.attention_dropout, None, True),
            partial(config.feed_forward.build, width, config.inner or 4 * width),
            config.norm.residual(width, config.dropout),
        )
        self.output = Head(width, padded(self.vocabulary), table)
        self.bins = Binned(actions, config.bins)
        for part in (self.decoder, self.embed):
            draw_normal(part, STD, into_sum=(2 * config.layers) ** -0.5)

    def given(self, inputs: Any) -> Tensor:
        """(B, G, D): the places of the pictures, and the states, where there are any."""
        dtype = self.no_state_D.dtype
        state_BD = torch.where(inputs.acts_B[:, None] > 0, self.state(inputs.states_BS.to(dtype)), self.no_state_D)
        return torch.cat([self.picture(inputs.pixels_BCHW.to(dtype)), state_BD[:, None]], 1)

    def start(self, inputs: Any, rows: int, device: torch.device, room: int | None = None) -> State:
        """Keys and values of each layer, none yet, and what stands before the tokens."""
        if inputs is None:
            raise InputError("this model reads a picture before any text: give one")
        state = super().start(None, rows, device, room)
        return State({**state.slots, "given": [SourceValues(self.given(inputs))]}, state.clock)

    def views(self, scene: Scene, dtype: torch.dtype) -> list[View]:
        return [Prefix(self.config.given).view(scene)] * self.config.layers

    def framed(self, ids_BT: Tensor) -> Tensor:
        """(B, G + T): with ids that stand for what is given."""
        return torch.cat([ids_BT.new_zeros(len(ids_BT), self.config.given), ids_BT], 1)

    def forward(self, inputs: Any, ids_BT: Tensor) -> Tensor:  # type: ignore[override]
        """The logits behind every token."""
        state = self.start(inputs, len(ids_BT), ids_BT.device, 0)
        return self.logits(self.framed(ids_BT), state)[0][:, self.config.given :]

    @torch.inference_mode()
    def acted(self, inputs: Any, prompt_BT: Tensor) -> Tensor:
        """(B, A): the most probable action behind a prompt and its start, number after number."""
        rows, numbers = len(prompt_BT), len(self.bins.middles_AV)
        state = self.start(inputs, rows, prompt_BT.device, self.config.given + prompt_BT.shape[1] + numbers)
        ids_BT, found = self.framed(prompt_BT), list[Tensor]()
        for middles_V in self.bins.middles_AV:
            hidden_BTD, state = self.read(ids_BT, state)
            bins_B = self.head(hidden_BTD[:, -1])[:, self.words :].argmax(-1)
            found.append(middles_V[bins_B])
            ids_BT = self.words + bins_B[:, None]
        return torch.stack(found, 1)
