"""Heads of encoders of trajectories: the action of every step.

B rows, T steps, D width, A width of an action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models.head import Head, HeadChoice, own_dropout
from headway.models.protocols import Encoded, Encodes, Terms


def wide(given: Tensor) -> Tensor:
    """In at least float32."""
    return given.to(torch.promote_types(given.dtype, torch.float32))


class Chosen(nn.Module):
    """log softmax(xW + b): the probability of each choice. The same for policies that draw what they do."""

    draws: ClassVar[int] = 1  # random numbers that an action needs

    def __init__(self, size: int = 0) -> None:
        super().__init__()

    def log_p(self, given_BTA: Tensor, done_BTA: Tensor) -> Tensor:
        return (self(given_BTA) * done_BTA).sum(-1)

    def entropy(self, given_BTA: Tensor) -> Tensor:
        log_BTA = self(given_BTA)
        return -(log_BTA.exp() * log_BTA).sum(-1)

    def drawn(self, given_RA: Tensor, chance_R1: Tensor) -> Tensor:
        """The choice at which the sum of the probabilities first passes a random number, as a row with one 1."""
        passed_RA = self.answer(given_RA).cumsum(-1) > chance_R1
        passed_RA[..., -1] = True  # the sum may stay below 1 by rounding
        return F.one_hot(passed_RA.int().argmax(-1), given_RA.shape[-1]).float()

    def forward(self, given_BTA: Tensor) -> Tensor:
        return wide(given_BTA).log_softmax(-1)

    def loss(self, given_BTA: Tensor, done_BTA: Tensor) -> Tensor:
        return -(self(given_BTA) * done_BTA).sum(-1)

    def answer(self, given_BTA: Tensor) -> Tensor:
        return self(given_BTA).exp()


class Bounded(nn.Module):
    """tanh(xW + b), and the squared distance from it (Chen et al. 2021)."""

    def forward(self, given_BTA: Tensor) -> Tensor:
        return wide(given_BTA).tanh()

    def loss(self, given_BTA: Tensor, done_BTA: Tensor) -> Tensor:
        return (self(given_BTA) - done_BTA).square().mean(-1)

    def answer(self, given_BTA: Tensor) -> Tensor:
        return self(given_BTA)


class Free(Bounded):
    """xW + b, for numbers without bounds."""

    def forward(self, given_BTA: Tensor) -> Tensor:
        return wide(given_BTA)


class Gaussian(nn.Module):
    """A normal distribution around xW + b, whose deviations are learned and the same in every state."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.draws = size
        self.log_std_A = nn.Parameter(torch.full((size,), -0.5))

    def log_p(self, given_BTA: Tensor, done_BTA: Tensor) -> Tensor:
        away_BTA = (done_BTA - wide(given_BTA)) / self.log_std_A.exp()
        return -(away_BTA.square() / 2 + self.log_std_A + 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, given_BTA: Tensor) -> Tensor:
        each = (self.log_std_A + 0.5 + 0.5 * math.log(2 * math.pi)).sum()
        return each.expand(given_BTA.shape[:-1])

    def drawn(self, given_RA: Tensor, chance_RA: Tensor) -> Tensor:
        normal_RA = torch.special.ndtri(chance_RA.double().clamp(1e-9, 1 - 1e-9)).float()
        return wide(given_RA) + self.log_std_A.exp() * normal_RA

    def answer(self, given_BTA: Tensor) -> Tensor:
        return wide(given_BTA)


OUT = {"choices": Chosen, "numbers": Bounded, "free": Free}
DRAWN = {"choices": Chosen, "numbers": Gaussian, "free": Gaussian}


class ActionsHead(Head):
    axes: ClassVar[tuple[str, ...]] = ("row", "step", "action")
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
        return given[:, :, None]

    def fit(self, actions_KA: Tensor) -> None:
        """What it takes from the actions that are learned from, before the first step."""


@dataclass(frozen=True)
class Actions(HeadChoice):
    """The action of every step: one of `size` choices, so many numbers within bounds, or `free` ones: as the data."""

    name = "actions"
    task = "acting"
    module: ClassVar[Any] = ActionsHead
    ahead: ClassVar[int] = 0  # actions of a step and of those behind it, that it learns from; 0: that of the step
    space: Literal["choices", "numbers", "free"] = "choices"
    size: int = 2
    dropout: float | None = 0.0

    def __post_init__(self) -> None:
        refuse(self.size < 1, f"head.size must be at least 1, not {self.size}")

    def of_actions(self, config: Any) -> Actions:
        """For the actions of a card."""
        free = config.space == "numbers" and not config.bounded
        return replace(self, space="free" if free else config.space, size=config.size)


class ActorCriticHead(ActionsHead):
    """Beside the actions, the return that is expected from here on: an action is worth what it gives beyond that."""

    def __init__(self, encoder: Encodes, config: ActorCritic) -> None:
        Head.__init__(self)
        self.dropout, self.map = own_dropout(encoder, config), nn.Linear(encoder.width, config.size)
        self.value, self.out = nn.Linear(encoder.width, 1), DRAWN[config.space](config.size)
        for part, gain in ((self.map, 0.01), (self.value, 1.0)):  # nearly uniform at first (Andrychowicz et al. 2021)
            nn.init.orthogonal_(part.weight, gain)
            nn.init.zeros_(part.bias)

    def both(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """What the actions are drawn from, (B, T, A), and the value of each state, (B, T)."""
        return self(encoded), self.value(encoded.x_BTD)[..., 0].float()


@dataclass(frozen=True)
class ActorCritic(Actions):
    """Actions that are drawn, and a value of every state: for policies that learn by acting."""

    name = "actor-critic"
    task = "reinforcement"
    module = ActorCriticHead
