"""Blocks and stacks of blocks.

B batch, T target length, S source length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from headway.nn import one_token, tap
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.bag import RunningMean, Total
from headway.nn.cache import Cache, FixedCache
from headway.nn.dropout import Dropout
from headway.nn.mask import Mask, Padding, Scene
from headway.nn.position import Position
from headway.nn.residual import Bare, Residual
from headway.nn.slots import Memory
from headway.nn.view import View, prepared

# Weights of a block whose results are added to the residual stream, by the ends of their names.
INTO_SUM = ("attention.output.weight", "cross.output.weight", "contract.weight", "contract_EDF")
GAINS = "weight_HK"  # of the norms of single heads: a row for each


def draw_normal(part: nn.Module, std: float, into_sum: float = 1.0, but: Tensor | None = None) -> None:
    """Normal matrices, those that write into the residual sum with `into_sum` times the deviation; vectors and
    gains of norms stay."""
    for name, weight in part.named_parameters():
        if weight.dim() >= 2 and weight is not but and not name.endswith(GAINS):
            nn.init.normal_(weight, std=std * (into_sum if name.endswith(INTO_SUM) else 1.0))


class Block(nn.Module):
    """Self-attention, attention on the source where there is one (`cross`), then the feed-forward network: a layer of
    an encoder, or of a decoder with or without a source.

    A running mean can take the slot of attention, `Bare` that of the residual connection.
    """

    def __init__(
        self, attention: SelfAttention | RunningMean, feed_forward: nn.Module, residual: Callable[[], Residual | Bare],
        cross: CrossAttention | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.around_attention, self.around_cross = residual(), None if cross is None else residual()
        self.around_feed_forward = residual()

    def forward(
        self, x_BTD: Tensor, view: View, cache: Cache | Total | None = None, memory: Memory | None = None,
        source_view: View | None = None,
    ) -> Tensor:  # fmt: skip
        if isinstance(cache, FixedCache) and one_token.takes(self, x_BTD):
            return one_token.step(self, x_BTD, view, cache, memory, source_view)
        lengths_B = view.lengths_B if self.training else None
        x_BTD = self.around_attention(x_BTD, lambda x: self.attention(x, view, cache), lengths_B)
        cross = self.cross
        if cross is not None and self.around_cross is not None:
            x_BTD = self.around_cross(x_BTD, lambda x: cross(x, memory, source_view), lengths_B)
        return self.around_feed_forward(x_BTD, self.feed_forward, lengths_B)


class ParallelBlock(nn.Module):
    """y = x + dropout(attention(norm(x))) + dropout(feed_forward(norm′(x))): both read what the block was given (Wang
    and Komatsuzaki 2021). `norms`: two, or one that both share."""

    def __init__(
        self, attention: SelfAttention, feed_forward: nn.Module, norm: Callable[[], nn.Module], norms: int = 1,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention, self.feed_forward, self.dropout = attention, feed_forward, Dropout(dropout)
        self.before, self.before_feed_forward = norm(), norm() if norms == 2 else None

    def forward(self, x_BTD: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        normed_BTD: Tensor = self.before(x_BTD)
        other_BTD = normed_BTD if self.before_feed_forward is None else self.before_feed_forward(x_BTD)
        attended_BTD = self.dropout(self.attention(normed_BTD, view, cache))
        return x_BTD + attended_BTD + self.dropout(self.feed_forward(other_BTD))


class Stack(nn.Module):
    """Blocks of one kind in sequence, and a final norm where pre-norm needs one."""

    def __init__(
        self, layers: int, final: nn.Module, attention: Callable[[], SelfAttention | RunningMean],
        feed_forward: Callable[[], nn.Module], residual: Callable[[], Residual | Bare],
        cross: Callable[[], CrossAttention] | None = None,
    ) -> None:  # fmt: skip
        """Each block has new parts: what these functions return."""
        super().__init__()
        self.layers: Any = nn.ModuleList(
            Block(attention=attention(), cross=cross and cross(), feed_forward=feed_forward(), residual=residual)
            for _ in range(layers)
        )
        self.final = final

    def encode(
        self, x_BTD: Tensor, lengths_B: Tensor | None = None, position: Position | None = None,
        order: Sequence[int] | None = None, rules: Callable[[int], Sequence[Mask]] | None = None,
    ) -> Tensor:  # fmt: skip
        """`walk` where every token sees the whole row, but for its padding. `rules`: of so many layers, what each sees
        instead."""
        scene = Scene(x_BTD.shape[1], x_BTD.shape[1], x_BTD.device, key_lengths_B=lengths_B)
        layers = len(self.layers if order is None else order)
        every = [Padding()] * layers if rules is None else rules(layers)
        views = {rule: prepared(rule, scene, position, x_BTD.dtype) for rule in dict.fromkeys(every)}
        return self.walk(x_BTD, [(views[rule],) for rule in every], order)

    def walk(self, x_BTD: Tensor, given: Sequence[tuple[Any, ...]], order: Sequence[int] | None = None) -> Tensor:
        """Through every block and the final norm; `given` holds the further arguments of each block. `order`: the block
        of each layer, where layers share blocks."""
        blocks = self.layers if order is None else [self.layers[at] for at in order]
        for number, (block, arguments) in enumerate(zip(blocks, given, strict=True)):
            tap.at_layer(number)
            x_BTD = tap.save(block, "hidden", block(x_BTD, *arguments))
        tap.at_layer(None)
        return tap.save(self, "hidden", self.final(x_BTD))


class BlockStack(Stack):
    """Blocks that are given, of any kind, in sequence."""

    def __init__(self, blocks: Iterable[nn.Module], final: nn.Module) -> None:
        nn.Module.__init__(self)
        self.layers, self.final = nn.ModuleList(blocks), final
