"""A robot policy: what is seen and what is asked for in words become one vector a step, and the actions follow from the
vectors of the last steps (Brohan et al. 2022, RT-1, with attention to the words in place of their modulation of
convolutions).

B rows, T steps, N tokens of a step, W words, S width of a state, P pixels of a side, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from headway.errors import refuse
from headway.models import parts
from headway.models.protocols import Encoded, OfSteps
from headway.models.vit import Convolutions, Overlapping, Patches
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Stack, draw_normal
from headway.nn.dropout import Dropout
from headway.nn.mask import Causal, Padding, Scene
from headway.nn.position import Learned
from headway.nn.view import View

STD = 0.02
CHANNELS = 3
Sight = Literal["state", "picture"]


@dataclass(frozen=True)
class RobotTransformerConfig:
    """sees: what is read of a step: the state, a picture of `image` pixels a side, or both. looks: layers over what is
    seen at one step, which look at the command too; layers: those over the steps. max_length: steps that are read at
    once. words: the most of a command. stem, patch: as those of `vit`."""

    name: ClassVar[str] = "robot-transformer"
    practises: ClassVar[bool] = False
    sees: tuple[Sight, ...] = ("state",)
    looks: int = 2
    layers: int = 2
    width: int = 128
    inner: int = 0
    heads: int = 4
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    feed_forward: parts.FeedForward = field(default_factory=parts.Gelu)
    image: int = 84
    patch: int = 12
    stem: Patches | Overlapping | Convolutions = field(default_factory=lambda: Convolutions(4))
    max_length: int = 4
    words: int = 16

    def __post_init__(self) -> None:
        refuse(not self.sees, "model.sees must name the state, the picture or both")
        refuse(len(set(self.sees)) != len(self.sees), f"model.sees names one twice: {', '.join(self.sees)}")
        refuse(self.words < 1, f"model.words must be at least 1, not {self.words}")

    @property
    def before(self) -> int:
        """Learned tokens before the places of a picture: the one that becomes the step's vector."""
        return 1

    @property
    def size(self) -> tuple[int, int]:
        return self.image, self.image

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of the places of a picture."""
        return self.stem.sides(self)


def blank(config: Any, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Windows of a trajectory with a command, of as many steps as are read at once."""
    (states, actions, _), length = sizes, min(lengths[0], config.max_length)
    shape = batch, length, config.image, config.image, CHANNELS
    pixels = torch.zeros(shape, dtype=torch.uint8) if "picture" in config.sees else None
    return (
        SimpleNamespace(
            states_BTS=torch.zeros(batch, length, states), actions_BTA=torch.zeros(batch, length, actions),
            returns_BT=torch.zeros(batch, length), times_BT=torch.zeros(batch, length, dtype=torch.long),
            memory_BM=None, words_BW=torch.zeros(batch, config.words, dtype=torch.long),
            counts_B=torch.ones(batch, dtype=torch.long), pixels_BTPP3=pixels,
        ),
    )  # fmt: skip


@final
class RobotTransformer(OfSteps):
    """x = look([read; places; state], words)[read] of every step, and h = layers(x_1 … x_T), each step seeing those
    before it."""

    tracks = {"": ("steps", "steps"), "look": ("sight", "sight"), "look.cross": ("sight", "words")}

    def __init__(self, config: RobotTransformerConfig, states: int, actions: int, vocabulary: int) -> None:
        super().__init__()
        self.config, self.width, self.dropout = config, config.width, config.dropout
        self.context = config.max_length
        width = config.width
        self.picture = self.state = self.read_D = None
        if "picture" in config.sees:
            places = Learned(width, 1 + config.sides[0] * config.sides[1])
            self.picture = config.stem.build(config, CHANNELS, places)
        else:
            self.read_D = nn.Parameter(torch.empty(width).normal_(std=STD))
        if "state" in config.sees:
            self.state = nn.Linear(states, width)
        self.embed, self.order = nn.Embedding(vocabulary, width), nn.Embedding(config.words, width)
        self.norm, self.drop = nn.LayerNorm(width, config.norm.epsilon), Dropout(config.dropout)
        self.places = nn.Embedding(config.max_length, width)
        slots = (
            partial(SelfAttention, width, config.heads, config.attention_dropout, None, True),
            partial(config.feed_forward.build, width, config.inner or 4 * width),
            config.norm.residual(width, config.dropout),
        )
        cross = partial(CrossAttention, width, config.heads, config.attention_dropout)
        self.look = Stack(config.looks, config.norm.final(width), *slots, cross)
        self.decoder = Stack(config.layers, config.norm.final(width), *slots)
        for part in (self.look, self.decoder, self.embed, self.order, self.places):
            draw_normal(part, STD)

    def sight(self, inputs: Any) -> Tensor:
        """(B·T, N, D): the token that is read out, the places of the picture, and the state."""
        rows, steps = inputs.times_BT.shape
        dtype = self.places.weight.dtype
        if self.picture is not None:
            pixels = inputs.pixels_BTPP3.flatten(0, 1).permute(0, 3, 1, 2)
            seen = [self.picture(pixels.to(dtype) / 127.5 - 1)]
        else:
            assert self.read_D is not None
            seen = [self.read_D.expand(rows * steps, 1, -1)]
        if self.state is not None:
            seen.append(self.state(inputs.states_BTS.flatten(0, 1).to(dtype))[:, None])
        return torch.cat(seen, 1)

    def words(self, inputs: Any) -> Tensor:
        """(B, W, D): what is looked at of the command."""
        placed_BWD = self.embed(inputs.words_BW) + self.order.weight[: inputs.words_BW.shape[1]]
        said: Tensor = self.drop(self.norm(placed_BWD))
        return said

    def encode(self, inputs: Any) -> Encoded:
        return self.over(self.seen(inputs))

    def seen(self, inputs: Any) -> Tensor:
        """(B, T, D): the vector of each step, of what is seen at it alone: a policy that acts keeps those of the steps
        before."""
        rows, steps = inputs.times_BT.shape
        x_KND, words_BWD = self.sight(inputs), self.words(inputs)
        all_of_it = View()
        told = Padding().view(Scene(steps * x_KND.shape[1], words_BWD.shape[1], x_KND.device,
                                    key_lengths_B=inputs.counts_B))  # fmt: skip
        given = [(all_of_it, None, block.cross.remember(words_BWD), told) for block in self.look.layers]
        return self.look.walk(x_KND, given)[:, 0].unflatten(0, (rows, steps))

    def over(self, x_BTD: Tensor) -> Encoded:
        """The last steps by their vectors."""
        steps = x_BTD.shape[1]
        x_BTD = x_BTD + self.places.weight[:steps]
        causal = Causal().view(Scene(steps, steps, x_BTD.device))
        return Encoded(self.decoder.walk(x_BTD, [(causal,)] * self.config.layers))
