"""What fills the slots of `headway.models.decoder`, as plain values: each a choice that some family of decoders made.
How blocks are arranged is in `headway.models.arrangements`.

D width, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models.parts import GATES, Room
from headway.models.rotary_scaling import Scaling, Unscaled, angles
from headway.nn import embedding, experts, position, score
from headway.nn.attention import Score, scaled_dot
from headway.nn.key_bias import KeyBias
from headway.nn.mask import Causal, Mask
from headway.nn.sinks import FirstAndLast, RingCache
from headway.nn.slots import Clock
from headway.nn.state import State


@dataclass(frozen=True)
class Scaled:
    """c·QKᵀ; None: c is 1/√K."""

    name: ClassVar[str] = "scaled"
    factor: float | None = None

    def build(self, head_width: int) -> Score:
        return scaled_dot if self.factor is None else score.ScaledBy(self.factor)


@dataclass(frozen=True)
class Capped:
    """s·tanh(c·QKᵀ/s) (Gemma Team 2024, 2); None: c is 1/√K."""

    name: ClassVar[str] = "capped"
    factor: float | None = None
    cap: float = 50.0

    def build(self, head_width: int) -> Score:
        return score.Capped(head_width**-0.5 if self.factor is None else self.factor, self.cap)


# Positions, beside those of `headway.models.parts`.


@dataclass(frozen=True)
class Turned:
    """Rotary positions. `turned`: how many numbers of each head (0: all). `neighbours`: pairs are (2i, 2i + 1)."""

    name: ClassVar[str] = "turned"
    base: float = 10_000.0
    turned: int = 0
    neighbours: bool = False
    scaling: Scaling = field(default_factory=Unscaled)

    def build(self, room: Room, endless: bool = False) -> position.Position:
        head_width = room.head_width or room.width // room.heads
        width = self.turned or head_width
        turns = partial(angles, self.scaling, width, self.base)
        if width == head_width and not self.neighbours:
            return position.Rotary(width, self.base, room.length, turns, self.scaling.gain, endless)
        if width > head_width:
            raise ValueError(f"of a head of width {head_width}, {width} numbers cannot be turned")
        return position.PartialRotary(
            width, self.base, room.length, turns, self.scaling.gain, endless, neighbours=self.neighbours
        )


@dataclass(frozen=True)
class LearnedBehind:
    """A learned table whose first position has so many rows before it."""

    name: ClassVar[str] = "learned-behind"
    before: int = 2

    def build(self, room: Room) -> position.Position:
        return position.LearnedBehind(room.width, room.length, self.before)


@dataclass(frozen=True)
class KeyBiases:
    """slope·(the key's position), in float32 as Bloom has it, or in bfloat16 and over √K as Falcon does."""

    name: ClassVar[str] = "key-bias"
    precision: Literal["float32", "bfloat16"] = "float32"
    over_root: bool = False

    def build(self, room: Room) -> position.Position:
        head_width = room.head_width or room.width // room.heads
        precision = {"float32": torch.float32, "bfloat16": torch.bfloat16}[self.precision]
        return KeyBias(room.heads, precision, head_width**-0.5 if self.over_root else 1.0)


@dataclass(frozen=True)
class Experts:
    """Gated networks, of which each token uses a few. `normalized`: the shares of those sum to 1. `shared`: the inner
    width of one that every token uses (0: there is none)."""

    name: ClassVar[str] = "experts"
    count: int = 8
    chosen: int = 2
    normalized: bool = True
    shared: int = 0
    activation: Literal["silu", "gelu", "gelu-tanh", "relu"] = "silu"

    def build(self, width: int, inner: int, bias: bool = True) -> nn.Module:
        how = width, inner, self.count, self.chosen, self.normalized, GATES[self.activation]
        return experts.SharedExperts(*how, self.shared) if self.shared else experts.Experts(*how)


# Which earlier tokens are seen.


@dataclass(frozen=True)
class Earlier:
    """All of them."""

    name: ClassVar[str] = "earlier"
    endless: ClassVar[bool] = False

    def rule(self) -> Mask:
        return Causal()

    def placed(self, config: Any, room: Room) -> position.Position:
        """The positions of the config, as this pattern needs them; what does not fit is refused."""
        built: position.Position = config.position.build(room)
        return built


@dataclass(frozen=True)
class Sinks:
    """The token itself, the `window` − 1 before it and the first `sinks` of the text, so that a state has the same size
    after any number of tokens, and no text is too long (Xiao et al. 2024). Positions are those of the text, so that a
    text gets the same logits however it is read; the paper counts them within what is kept."""

    name: ClassVar[str] = "sinks"
    endless: ClassVar[bool] = True
    window: int = 256
    sinks: int = 4

    def __post_init__(self) -> None:
        refuse(self.window < 1, f"model.pattern.window must be at least 1, not {self.window}")
        refuse(self.sinks < 0, f"model.pattern.sinks must be 0 or more, not {self.sinks}")

    @property
    def at_once(self) -> int:
        """New tokens that are compared with each other and with all that is held."""
        return max(self.window, 256)

    def rule(self) -> FirstAndLast:
        return FirstAndLast(self.window, self.sinks)

    def placed(self, config: Any, room: Room) -> position.Position:
        refuse(bool(config.windowed), "model.pattern=sinks has a window of its own: leave model.windowed empty")
        turned = config.position
        if not isinstance(turned, Turned):
            raise InputError("model.pattern=sinks needs positions without an end: model.position=turned")
        return turned.build(room, endless=True)

    def start(self, like_RHK: Tensor, layers: int, clock: Clock) -> State:
        caches = [RingCache.fresh(self.rule(), clock, like_RHK) for _ in range(layers)]
        return State({"caches": caches}, clock)


# What stands before the first layer.


@dataclass(frozen=True)
class Tokens:
    """c·E[ids]; None: c is √D."""

    name: ClassVar[str] = "table"
    scale: float | None = 1.0

    def build(self, rows: int, width: int, place: position.Position, dropout: float) -> embedding.StepEmbedding:
        table = embedding.token_table(rows, width)
        return embedding.StepEmbedding(table, place, dropout, width**0.5 if self.scale is None else self.scale)

    def leave(self, width: int) -> nn.Module:
        """What stands behind the last layer."""
        return nn.Identity()


@dataclass(frozen=True)
class NormedTokens:
    """norm(E[ids])."""

    name: ClassVar[str] = "normed"
    epsilon: float = 1e-5

    def build(self, rows: int, width: int, place: position.Position, dropout: float) -> embedding.StepEmbedding:
        norm = nn.LayerNorm(width, self.epsilon)
        return embedding.WidenedEmbedding(embedding.token_table(rows, width), place, dropout, norm=norm)

    def leave(self, width: int) -> nn.Module:
        return nn.Identity()


@dataclass(frozen=True)
class NarrowTokens:
    """E[ids]M, with a table of another width; the last layer is brought back to it."""

    name: ClassVar[str] = "narrow"
    width: int = 512

    def build(self, rows: int, width: int, place: position.Position, dropout: float) -> embedding.StepEmbedding:
        table, widen = embedding.token_table(rows, self.width), nn.Linear(self.width, width, bias=False)
        return embedding.WidenedEmbedding(table, place, dropout, widen=widen)

    def leave(self, width: int) -> nn.Module:
        return nn.Linear(width, self.width, bias=False)


Embedding = Tokens | NormedTokens | NarrowTokens


# From the last layer to logits.


@dataclass(frozen=True)
class Logits:
    """c·hEᵀ/d. `cap`: s·tanh(logits/s) of them (0: none). `bias`: one is added."""

    name: ClassVar[str] = "logits"
    scale: float = 1.0
    divisor: float = 1.0
    cap: float = 0.0
    bias: bool = False

    def head(self, width: int, rows: int, tied: nn.Embedding | None) -> embedding.Head | embedding.JoinedHead:
        if not self.bias:
            return embedding.Head(width, rows, tied)
        head = embedding.JoinedHead(tied or embedding.token_table(rows, width), 1)
        nn.init.zeros_(head.rest_VC)
        return head

    def into_head(self) -> nn.Module:
        if self.bias:
            return embedding.AppendOne()
        factor = self.scale / self.divisor
        return embedding.Scale(factor) if factor != 1 else nn.Identity()

    def bounded(self, logits_RTV: Tensor) -> Tensor:
        return torch.tanh(logits_RTV / self.cap) * self.cap if self.cap else logits_RTV
