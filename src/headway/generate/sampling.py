"""Settings of sampling, and the chain of links that they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway.errors import InputError, refuse
from headway.generate import chain
from headway.generate.chain import Link


@dataclass(frozen=True)
class Bias:
    """`amount` is added to the logit of the last of `ids` where the others are a row's last ones. −∞ forbids it."""

    ids: tuple[int, ...]
    amount: float


# What a setting must be, and the line where it is not. A number that is none (NaN) fails every comparison.
Rule = tuple[Callable[[Any], bool], str]
COUNT: Rule = lambda value: value >= 0, "must be 1 or more, or 0 for off, not {}"
SHARE: Rule = (
    lambda value: 0 < value <= 1, "must be above 0 and at most 1 (off), not {}: for greedy write temperature=0"
)  # fmt: skip
FINITE: Rule = lambda value: abs(value) < math.inf, "must be a finite number, not {}: 0 is off"
RULES: dict[str, Rule] = {
    "temperature": (lambda value: 0 <= value < math.inf, "must be 0 (greedy) or more, not {}"),
    "top_k": COUNT, "top_p": SHARE,
    "min_p": (lambda value: 0 <= value <= 1, "must lie between 0 (off) and 1, not {}"), "typical": SHARE,
    "repetition": (
        lambda value: 0 < value < math.inf, "must be above 0, not {}: 1 is off, more than 1 makes repeats rarer"
    ),
    "presence": FINITE, "frequency": FINITE, "no_repeat": COUNT,
}  # fmt: skip

# The links of the settings, in the order of the chain: before the token is chosen, and how it is drawn.
LIMITS: dict[str, Callable[[Any], Link]] = {
    "repetition": chain.Repetition, "presence": chain.Presence, "frequency": chain.Frequency,
    "no_repeat": chain.NoRepeat, "choices": chain.Choice,
}  # fmt: skip
DRAWS: dict[str, Callable[[Any], Link]] = {
    "temperature": chain.Temperature, "top_k": chain.TopK, "top_p": chain.TopP, "min_p": chain.MinP,
    "typical": chain.Typical,
}  # fmt: skip


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. Every default means "off": a draw from the model's own distribution.

    temperature: 0 is greedy: the most likely token after the penalties; what only narrows the draw then has no say.
    top_k (0: off), top_p (1), min_p (0), typical (1): narrow the draw to likely tokens.
    repetition (1): over prompt and new tokens. presence (0), frequency (0): over new tokens only, as OpenAI has it.
    no_repeat (0): no n-gram of this size twice, the prompt's counted.
    bias: added to logits. choices: only these sequences may be written, each with the token that ends it.

    The chain's order: bias, repetition, presence, frequency, no_repeat, choices; then temperature, top_k, top_p,
    min_p, typical. Each link sees what those before it have left.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical: float = 1.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    no_repeat: int = 0
    bias: tuple[Bias, ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        for name, (right, line) in RULES.items():
            if not right(getattr(self, name)):
                raise InputError(f"{name} {line.format(getattr(self, name))}")
        refuse(not all(b.ids for b in self.bias), "a bias needs at least one id")
        if not all(b.amount < math.inf for b in self.bias):
            raise InputError("a bias must be a number below infinity: to allow only some texts use choices")
        refuse(not all(self.choices), "a choice needs at least one id: that of the token that ends it")
        # A list would do for a user, but settings are also keys.
        object.__setattr__(self, "bias", tuple(Bias(tuple(b.ids), b.amount) for b in self.bias))
        object.__setattr__(self, "choices", tuple(map(tuple, self.choices)))

    def ids(self) -> set[int]:
        """Every id that the settings name."""
        return {i for ids in (*(b.ids for b in self.bias), *self.choices) for i in ids}

    def chain(self) -> list[Link]:
        biases = [chain.LogitBias(tuple((b.ids, b.amount) for b in self.bias))] if self.bias else []
        drawn = [chain.Greedy()] if self.temperature == 0 else self._links(DRAWS)
        return [*biases, *self._links(LIMITS), *drawn]

    def _links(self, links: dict[str, Callable[[Any], Link]]) -> list[Link]:
        """Of the settings that are not off."""
        return [
            link(getattr(self, name)) for name, link in links.items() if getattr(self, name) != getattr(Sampling, name)
        ]
