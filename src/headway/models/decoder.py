"""The decoder-only Transformer with a slot for every choice that its families have made since 2021: what `gpt` and
`llama` say with a few fields, and what neither can say. Parts are in `headway.models.decoder_parts`.

B batch, T length, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.models import arrangements, parts
from headway.models import decoder_parts as own
from headway.models.language import DecoderOnly
from headway.models.protocols import Embedded
from headway.nn.block import BlockStack, draw_normal
from headway.nn.mask import Scene, Segments, Window
from headway.nn.state import State
from headway.nn.view import View, prepared

STD = 0.02


@dataclass(frozen=True)
class DecoderConfig:
    """`inner`: 0 for four times the width. `shared_heads`: keys and values that the heads share (0: one each).
    `head_width`: 0 for width/heads. `bias`: which maps of attention have one. `feed_forward_bias`: whether a plain
    network has one. `windowed`: the layers that see `window` tokens, their own among them; the others see all.
    `near_position`: that of the layers with a window, where it is another. `unplaced`: layers without positions.
    `pattern`: which earlier tokens any layer sees."""

    name: ClassVar[str] = "decoder"
    layers: int = 4
    width: int = 256
    inner: int = 0
    heads: int = 8
    shared_heads: int = 0
    head_width: int = 0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    bias: Literal["none", "qkv", "all", "output"] = "none"
    feed_forward_bias: bool = False
    tied: bool = False
    embedding: own.Embedding = field(default_factory=own.Tokens)
    position: own.Turned | own.LearnedBehind | own.KeyBiases | parts.Learned = field(default_factory=own.Turned)
    near_position: own.Turned | None = None
    norm: arrangements.Norm = field(default_factory=arrangements.RmsNorm)
    arrangement: arrangements.Arrangement = field(default_factory=arrangements.Pre)
    query_key_norm: arrangements.QueryKeyNorm = field(default_factory=arrangements.NoNorm)
    score: own.Scaled | own.Capped = field(default_factory=own.Scaled)
    feed_forward: parts.FeedForward | own.Experts = field(default_factory=parts.Gated)
    logits: own.Logits = field(default_factory=own.Logits)
    window: int = 0
    windowed: tuple[int, ...] = ()
    unplaced: tuple[int, ...] = ()
    pattern: own.Earlier | own.Sinks = field(default_factory=own.Earlier)
    max_length: int = 2048


@final
class Decoder(DecoderOnly):
    """p(x_t | x_<t) = softmax(head(decoder(x_<t)))."""

    def __init__(self, config: DecoderConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        width = config.width
        room = parts.Room(width, config.heads, config.max_length, head_width=config.head_width)
        self.embed = config.embedding.build(vocabulary, width, config.pattern.placed(config, room), config.dropout)
        self.near = config.near_position and config.near_position.build(room)
        norm = partial(config.norm.build, width)
        inner = config.inner or 4 * width
        blocks = [
            config.arrangement.block(
                self._attention(config),
                config.feed_forward.build(width, inner, config.feed_forward_bias),
                norm,
                config.dropout,
            )
            for _ in range(config.layers)
        ]
        self.decoder = BlockStack(blocks, config.arrangement.final(norm))
        table = self.embed.table
        self.into_head = nn.Sequential(config.embedding.leave(width), config.logits.into_head())
        self.output = config.logits.head(table.embedding_dim, vocabulary, table if config.tied else None)
        # How many tokens an expert gets is asked of the device.
        self.capturable = not isinstance(config.feed_forward, own.Experts)  # type: ignore[misc]
        if config.pattern.endless:
            self.context = None
        draw_normal(self, STD)

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        state, config = super().start(inputs, rows, device, room), self.config
        if not config.pattern.endless or room == 0:
            return state
        head_width, weight = config.head_width or config.width // config.heads, self.embed.table.weight
        like_RHK = weight.new_empty(rows, config.shared_heads or config.heads, head_width)
        return config.pattern.start(like_RHK, config.layers, state.time)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        if not self.config.pattern.endless:
            return super().hidden(embedded, state)
        x_RTD, at_once = embedded.x_RTD, self.config.pattern.at_once
        if not state.time.longest or x_RTD.shape[1] <= at_once or embedded.lengths_R is not None:
            return super().hidden(embedded, state)
        found = []  # a part at a time: time and memory stay linear in the length
        for part_RTD in x_RTD.split(at_once, 1):
            hidden_RTD, state = super().hidden(Embedded(part_RTD), state)
            found.append(hidden_RTD)
        return torch.cat(found, 1), state

    def scene(self, state: State, steps: int, segments_RT: Tensor | None) -> Scene:
        scene: Scene = state["caches"][0].scene(state.time, steps, segments_RT)
        return scene

    def _attention(self, config: DecoderConfig) -> Any:
        head_width = config.head_width or config.width // config.heads
        return config.query_key_norm.attention(config.norm)(
            config.width, config.heads, dropout=config.attention_dropout, shared_heads=config.shared_heads or None,
            bias=config.bias in ("qkv", "all"), output_bias=config.bias in ("output", "all"),
            head_width=config.head_width or None, score=config.score.build(head_width),
        )  # fmt: skip

    @property
    def output_weight(self) -> Tensor:
        if self.config.logits.cap:
            # Training computes the loss from hidden vectors and this weight alone, without the bound.
            raise InputError("a model whose logits are bounded (model.logits.cap) can be run, but not trained")
        return super().output_weight

    def head(self, hidden_RTD: Tensor, state: Any = None) -> Tensor:
        return self.config.logits.bounded(super().head(hidden_RTD, state))

    def views(self, scene: Scene, dtype: torch.dtype) -> list[View]:
        config, rule = self.config, self.config.pattern.rule() & Segments()
        whole = prepared(rule, scene, None, dtype)
        near = (rule & Window(config.window - 1)).view(scene) if 0 < config.window < config.max_length else whole
        near_position = self.near or self.embed.position
        chosen = [
            near.placed(near_position) if number in config.windowed else whole.placed(self.embed.position)
            for number in range(config.layers)
        ]
        return [view.placed(None) if number in config.unplaced else view for number, view in enumerate(chosen)]
