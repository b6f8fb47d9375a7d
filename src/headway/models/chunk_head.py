"""Several actions at a time: what is to be done at a step and at those that follow (Zhao et al. 2023, ACT), as numbers
or as bins of numbers (Brohan et al. 2022, RT-1).

B rows, T steps, C actions of a chunk, A width of an action, V bins, K steps that were learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models.action_heads import OUT, Actions, ActionsHead, wide
from headway.models.head import Head, own_dropout
from headway.models.protocols import Encoded, Encodes, Terms


class Binned(nn.Module):
    """For each number of an action a softmax over bins, and the middle of the most probable one."""

    def __init__(self, size: int, bins: int) -> None:
        super().__init__()
        self.register_buffer("middles_AV", torch.linspace(-1, 1, bins, dtype=torch.float32).repeat(size, 1))

    middles_AV: Tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Binned:
        """Moved, never rounded: in bfloat16 neighbouring bins would be one."""

        def move(tensor: Tensor) -> Tensor:
            return fn(tensor.view(torch.int32)).view(tensor.dtype)

        return super()._apply(move, recurse)

    def fit(self, actions_KA: Tensor) -> None:
        """Bins that had equally many actions each."""
        bins = self.middles_AV.shape[1]
        share_V = (torch.arange(bins, device=actions_KA.device) + 0.5) / bins
        self.middles_AV.copy_(_quantiles(actions_KA.float(), share_V).mT)

    def forward(self, given_BTCX: Tensor) -> Tensor:
        """(B, T, C, A, V)"""
        return wide(given_BTCX).unflatten(-1, self.middles_AV.shape)

    def bins(self, done_BTCA: Tensor) -> Tensor:
        """The bin whose middle is nearest, of equal ones the first."""
        return (done_BTCA[..., None] - self.middles_AV).abs().argmin(-1)

    def loss(self, given_BTCX: Tensor, done_BTCA: Tensor) -> Tensor:
        logits = self(given_BTCX)
        each = F.cross_entropy(logits.flatten(0, -2), self.bins(done_BTCA).flatten(), reduction="none")
        return each.view(logits.shape[:-1]).mean(-1)

    def answer(self, given_BTCX: Tensor) -> Tensor:
        best_BTCA = self(given_BTCX).argmax(-1)
        every = torch.arange(len(self.middles_AV), device=best_BTCA.device)
        return self.middles_AV[every, best_BTCA]


def _quantiles(values_KA: Tensor, share_V: Tensor) -> Tensor:
    """(V, A). Of the values that there are: torch.quantile takes 16 million at most."""
    at_V = (share_V * (len(values_KA) - 1)).round().long()
    return values_KA.sort(0).values[at_V]


@dataclass(frozen=True)
class Direct:
    """The numbers themselves, and their squared distance."""

    name: ClassVar[str] = "direct"

    def outputs(self, size: int) -> int:
        return size

    def build(self, space: str, size: int) -> nn.Module:
        return OUT[space]()


@dataclass(frozen=True)
class Bins:
    """So many bins for each number, by the quantiles of what was done."""

    name: ClassVar[str] = "bins"
    count: int = 256

    def __post_init__(self) -> None:
        refuse(not 2 <= self.count <= 65_536, f"head.numbers.count must lie between 2 and 65,536, not {self.count}")

    def outputs(self, size: int) -> int:
        return size * self.count

    def build(self, space: str, size: int) -> nn.Module:
        refuse(space == "choices", "head.numbers=bins is for actions that are numbers, and these are choices")
        return Binned(size, self.count)


class ChunkHead(ActionsHead):
    axes = ("row", "step", "ahead", "action")

    def __init__(self, encoder: Encodes, config: ActionChunks) -> None:
        Head.__init__(self)
        self.chunk, self.dropout = config.chunk, own_dropout(encoder, config)
        self.map = nn.Linear(encoder.width, config.chunk * config.numbers.outputs(config.size))
        self.out: Any = config.numbers.build(config.space, config.size)

    def fit(self, actions_KA: Tensor) -> None:
        if isinstance(self.out, Binned):
            self.out.fit(actions_KA)

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, T, C, X)"""
        given: Tensor = self.map(self.dropout(encoded.x_BTD))
        return given.unflatten(-1, (self.chunk, -1))

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        """The mean over those actions of a chunk that the episode still had."""
        each_BTC = self.out.loss(self(encoded), batch.later_BTCA.float())
        there_BTC = batch.later_there_BTC
        mean_BT = (each_BTC * there_BTC).sum(-1) / there_BTC.sum(-1).clamp(min=1)
        loss = (mean_BT * batch.there_BT).sum()
        return {"loss": (loss, 1.0), "nll": (loss.detach(), 0.0)}

    def actions(self, encoded: Encoded) -> Tensor:
        given: Tensor = self.out.answer(self(encoded))
        return given


@dataclass(frozen=True)
class ActionChunks(Actions):
    """The actions of a step and of those behind it, `chunk` in all. numbers: how they are told. forget: what was
    planned for a step at earlier ones is averaged with it, the i-th oldest plan by exp(−forget·i)."""

    name = "action-chunks"
    module = ChunkHead
    space: Literal["choices", "numbers", "free"] = "numbers"  # until the data say
    size: int = 4
    chunk: int = 8
    numbers: Direct | Bins = field(default_factory=Direct)
    forget: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.chunk < 1, f"head.chunk must be at least 1, not {self.chunk}")
        refuse(not self.forget >= 0, f"head.forget must be 0 or more, not {self.forget}")

    @property
    def ahead(self) -> int:  # type: ignore[override]
        return self.chunk

    def of_actions(self, config: Any) -> ActionChunks:
        of: Any = replace(self, space=super().of_actions(config).space, size=config.size)
        return of
