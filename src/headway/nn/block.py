"""Blocks and stacks: sublayers in their residuals, one above the other.

B batch, T target length, S source length, D width.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from headway.nn import one_token
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.bag import RunningMean, Total
from headway.nn.mask import View
from headway.nn.residual import Bare, Residual
from headway.nn.state import Cache, FixedCache, Memory


class Block(nn.Module):
    """Self-attention, then the feed-forward network: a layer of an encoder, or of a decoder without a source.

    Other ways to mix the words (a mean) and to stand around a sublayer (bare) fit into the same slots.
    """

    def __init__(
        self, attention: SelfAttention | RunningMean, feed_forward: nn.Module, residual: Callable[[], Residual | Bare]
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.around_attention, self.around_feed_forward = residual(), residual()

    def forward(self, x_BTD: Tensor, view: View, cache: Cache | Total | None = None) -> Tensor:
        if isinstance(cache, FixedCache) and one_token.takes(self, x_BTD):
            return one_token.step(self, x_BTD, view, cache)
        x_BTD = self.around_attention(x_BTD, lambda x: self.attention(x, view, cache))
        return self.around_feed_forward(x_BTD, self.feed_forward)


class DecoderBlock(nn.Module):
    """Masked self-attention, attention on the source, then the feed-forward network."""

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention,
        feed_forward: nn.Module,
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.around_attention, self.around_cross, self.around_feed_forward = residual(), residual(), residual()

    def remember(self, source_BSD: Tensor) -> Memory:
        """The source as this block's attention will look at it."""
        return self.cross.remember(source_BSD)

    def forward(self, x_BTD: Tensor, view: View, memory: Memory, source_view: View, cache: Cache | None) -> Tensor:
        x_BTD = self.around_attention(x_BTD, lambda x: self.attention(x, view, cache))
        x_BTD = self.around_cross(x_BTD, lambda x: self.cross(x, memory, source_view))
        return self.around_feed_forward(x_BTD, self.feed_forward)


class Stack(nn.Module):
    """Equal blocks one above the other, and what pre-norm needs at the end."""

    def __init__(self, layers: int, block: Callable[[], nn.Module], final: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(layers))
        self.final = final
