"""ModernBERT (Warner et al. 2024): an encoder of the parts that decoders are built of since 2023. Pre-norm without
biases, gated layers, rotary positions; most layers see only their neighbourhood, every third the whole text.

B batch, T length, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, final

from torch import nn

from headway.models import parts
from headway.models.protocols import Encoded
from headway.models.rotary_scaling import Unscaled, angles
from headway.models.text_encoder import STD, TextEncoder
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.embedding import TypedEmbedding, token_table
from headway.nn.mask import Padding, Scene, Window
from headway.nn.position import Position, Rotary


@dataclass(frozen=True)
class ModernBertConfig:
    """`every`: the first layer and then every so many see the whole text, turned by angles of `base`; the others see
    `window` tokens on each side, turned by angles of `near_base`. `bias`: of attention, `norm_bias`: of the norms."""

    name: ClassVar[str] = "modernbert"
    layers: int = 22
    width: int = 768
    inner: int = 1152
    heads: int = 12
    every: int = 3
    window: int = 64
    base: float = 160_000.0
    near_base: float = 10_000.0
    bias: bool = False
    norm_bias: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    feed_forward: parts.Gated = field(default_factory=lambda: parts.Gated(activation="gelu"))
    max_length: int = 8192


SIZES = {"base": ModernBertConfig(), "large": ModernBertConfig(28, 1024, 2624, 16)}


@final
class ModernBert(TextEncoder):
    """The last of a stack of blocks, each of which sees the text or a window of it."""

    def __init__(self, config: ModernBertConfig, vocabulary: int) -> None:
        super().__init__(config)
        width, norm = config.width, config.norm
        table = token_table(vocabulary, width, STD)
        self.embed = TypedEmbedding(table, Position(), 0, norm.final(width, config.norm_bias), config.dropout)
        self.encoder = Stack(
            config.layers, norm.final(width, config.norm_bias),
            partial(SelfAttention, width, config.heads, config.attention_dropout, bias=config.bias),
            partial(config.feed_forward.build, width, config.inner),
            norm.residual(width, 0.0, config.norm_bias),
        )  # fmt: skip
        # Right behind the embedding's norm it would be a second one.
        self.encoder.layers[0].around_attention.before = nn.Identity()
        self.far, self.near = (self._turns(base) for base in (config.base, config.near_base))
        self.draw(self)

    def _turns(self, base: float) -> Rotary:
        head_width = self.config.width // self.config.heads
        return Rotary(head_width, base, self.config.max_length, partial(angles, Unscaled(), head_width, base))

    def encode(self, inputs: Any) -> Encoded:
        """Rows are padded on the right."""
        config, x_BTD = self.config, self.embedded(inputs)
        scene = Scene(x_BTD.shape[1], x_BTD.shape[1], x_BTD.device, key_lengths_B=inputs.lengths_B)
        whole = Padding().view(scene).placed(self.far)
        around = (Padding() & Window(config.window, config.window)).view(scene).placed(self.near)
        views = [(around if number % config.every else whole,) for number in range(config.layers)]
        return Encoded(self.encoder.walk(x_BTD, views), inputs.lengths_B)
