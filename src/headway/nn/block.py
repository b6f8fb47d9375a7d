"""Blocks and stacks of blocks.

B batch, T target length, S source length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from headway.nn import one_token, tap
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.bag import RunningMean, Total
from headway.nn.cache import Cache, FixedCache
from headway.nn.mask import View
from headway.nn.residual import Bare, Residual
from headway.nn.slots import Memory

# Weights of a block whose results are added to the residual stream, by the ends of their names.
INTO_SUM = ("attention.output.weight", "cross.output.weight", "contract.weight")


class Block(nn.Module):
    """Self-attention, then the feed-forward network: a layer of an encoder, or of a decoder without a source.

    A running mean can take the slot of attention, `Bare` that of the residual connection.
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
        lengths_B = view.lengths_B if self.training else None
        x_BTD = self.around_attention(x_BTD, lambda x: self.attention(x, view, cache), lengths_B)
        return self.around_feed_forward(x_BTD, self.feed_forward, lengths_B)


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
        """Keys and values of the source for this block's cross-attention."""
        return self.cross.remember(source_BSD)

    def forward(self, x_BTD: Tensor, view: View, memory: Memory, source_view: View, cache: Cache | None) -> Tensor:
        lengths_B = view.lengths_B if self.training else None
        x_BTD = self.around_attention(x_BTD, lambda x: self.attention(x, view, cache), lengths_B)
        x_BTD = self.around_cross(x_BTD, lambda x: self.cross(x, memory, source_view), lengths_B)
        return self.around_feed_forward(x_BTD, self.feed_forward, lengths_B)


class Stack(nn.Module):
    """Blocks of one kind in sequence, and a final norm where pre-norm needs one."""

    def __init__(self, layers: int, block: Callable[[], nn.Module], final: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(layers))
        self.final = final

    def walk(self, x_BTD: Tensor, given: Sequence[tuple[Any, ...]], order: Sequence[int] | None = None) -> Tensor:
        """Through every block and the final norm; `given` holds the further arguments of each block. `order`: the block
        of each layer, where layers share blocks."""
        blocks = self.layers if order is None else [self.layers[at] for at in order]
        if tap.recording():
            return self._traced(x_BTD, list(zip(blocks, given, strict=True)))
        for block, arguments in zip(blocks, given, strict=True):
            x_BTD = block(x_BTD, *arguments)
        return self.final(x_BTD)

    def _traced(self, x_BTD: Tensor, calls: Sequence[tuple[nn.Module, tuple[Any, ...]]]) -> Tensor:
        """The same, while a trace records."""
        for number, (block, arguments) in enumerate(calls):
            tap.at_layer(number)
            x_BTD = block(x_BTD, *arguments)
            tap.save(block, "hidden", x_BTD, ("row", "target", "unit"))
        tap.at_layer(None)
        x_BTD = self.final(x_BTD)
        tap.save(self, "hidden", x_BTD, ("row", "target", "unit"))
        return x_BTD
