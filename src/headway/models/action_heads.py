"""Heads of encoders of trajectories: the action of every step.

B rows, T steps, D width, A width of an action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor, nn

from headway.errors import refuse
from headway.models.head import Head, HeadChoice, own_dropout
from headway.models.protocols import Encoded, Encodes, Terms


class Chosen(nn.Module):
    """log softmax(xW + b): the probability of each choice."""

    def forward(self, given_BTA: Tensor) -> Tensor:
        return given_BTA.float().log_softmax(-1)

    def loss(self, given_BTA: Tensor, done_BTA: Tensor) -> Tensor:
        return -(self(given_BTA) * done_BTA).sum(-1)

    def answer(self, given_BTA: Tensor) -> Tensor:
        return self(given_BTA).exp()


class Bounded(nn.Module):
    """tanh(xW + b), and the squared distance from it (Chen et al. 2021)."""

    def forward(self, given_BTA: Tensor) -> Tensor:
        return given_BTA.float().tanh()

    def loss(self, given_BTA: Tensor, done_BTA: Tensor) -> Tensor:
        return (self(given_BTA) - done_BTA).square().mean(-1)

    def answer(self, given_BTA: Tensor) -> Tensor:
        return self(given_BTA)


class Free(Bounded):
    """xW + b, for numbers without bounds."""

    def forward(self, given_BTA: Tensor) -> Tensor:
        return given_BTA.float()


OUT = {"choices": Chosen, "numbers": Bounded, "free": Free}


class ActionsHead(Head):
    axes = ("row", "step", "action")
    does = "acts in a world (headway play)"

    def __init__(self, encoder: Encodes, config: Actions) -> None:
        super().__init__()
        self.dropout, self.map = own_dropout(encoder, config), nn.Linear(encoder.width, config.size)
        self.out: Any = OUT[config.space]()

    def forward(self, encoded: Encoded) -> Tensor:
        given_BTA: Tensor = self.map(self.dropout(encoded.x_BTD))
        return given_BTA

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        each_BT = self.out.loss(self(encoded), batch.inputs.actions_BTA.float())
        loss = (each_BT * batch.there_BT).sum()
        return {"loss": (loss, 1.0), "nll": (loss.detach(), 0.0)}

    def actions(self, encoded: Encoded) -> Tensor:
        given: Tensor = self.out.answer(self(encoded))
        return given


@dataclass(frozen=True)
class Actions(HeadChoice):
    """The action of every step: one of `size` choices, so many numbers within bounds, or `free` ones: as the data."""

    name = "actions"
    task = "acting"
    module = ActionsHead
    space: Literal["choices", "numbers", "free"] = "choices"
    size: int = 2
    dropout: float | None = 0.0

    def __post_init__(self) -> None:
        refuse(self.size < 1, f"head.size must be at least 1, not {self.size}")

    def of_actions(self, config: Any) -> Actions:
        """For the actions of a card."""
        free = config.space == "numbers" and not config.bounded
        return replace(self, space="free" if free else config.space, size=config.size)
