"""Settings of sampling, and the chain of links that they stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.errors import InputError
from headway.generate import chain
from headway.generate.chain import Link


@dataclass(frozen=True)
class Bias:
    """`amount` is added to the logit of the last of `ids` where the others are a row's last ones. −∞ forbids it."""

    ids: tuple[int, ...]
    amount: float


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
        for wrong in self._wrongs():
            raise InputError(wrong)
        # A list would do for a user, but settings are also keys.
        object.__setattr__(self, "bias", tuple(Bias(tuple(b.ids), b.amount) for b in self.bias))
        object.__setattr__(self, "choices", tuple(map(tuple, self.choices)))

    def _wrongs(self) -> list[str]:
        """A line for each setting that cannot be. A number that is none (NaN) fails every comparison."""
        checks = [
            (0 <= self.temperature < math.inf, f"temperature must be 0 (greedy) or more, not {self.temperature}"),
            (self.top_k >= 0, f"top_k must be 1 or more, or 0 for off, not {self.top_k}"),
            (
                0 < self.top_p <= 1,
                f"top_p must be above 0 and at most 1 (off), not {self.top_p}: for greedy write temperature=0",
            ),
            (0 <= self.min_p <= 1, f"min_p must lie between 0 (off) and 1, not {self.min_p}"),
            (
                0 < self.typical <= 1,
                f"typical must be above 0 and at most 1 (off), not {self.typical}: for greedy write temperature=0",
            ),
            (
                0 < self.repetition < math.inf,
                f"repetition must be above 0, not {self.repetition}: 1 is off, more than 1 makes repeats rarer",
            ),
            (abs(self.presence) < math.inf, f"presence must be a finite number, not {self.presence}: 0 is off"),
            (abs(self.frequency) < math.inf, f"frequency must be a finite number, not {self.frequency}: 0 is off"),
            (self.no_repeat >= 0, f"no_repeat must be 1 or more, or 0 for off, not {self.no_repeat}"),
            (all(b.ids for b in self.bias), "a bias needs at least one id"),
            (
                all(b.amount < math.inf for b in self.bias),
                "a bias must be a number below infinity: to allow only some texts use choices",
            ),
            (all(self.choices), "a choice needs at least one id: that of the token that ends it"),
        ]
        return [line for right, line in checks if not right]

    def ids(self) -> set[int]:
        """Every id that the settings name."""
        return {i for ids in (*(b.ids for b in self.bias), *self.choices) for i in ids}

    def chain(self) -> list[Link]:
        links: list[tuple[bool, Link]] = [
            (bool(self.bias), chain.LogitBias(tuple((b.ids, b.amount) for b in self.bias))),
            (self.repetition != 1, chain.Repetition(self.repetition)),
            (self.presence != 0, chain.Presence(self.presence)),
            (self.frequency != 0, chain.Frequency(self.frequency)),
            (self.no_repeat > 0, chain.NoRepeat(self.no_repeat)),
            (bool(self.choices), chain.Choice(self.choices)),
        ]
        if self.temperature == 0:
            links.append((True, chain.Greedy()))
        else:
            links += [
                (self.temperature != 1, chain.Temperature(self.temperature)),
                (self.top_k > 0, chain.TopK(self.top_k)),
                (self.top_p < 1, chain.TopP(self.top_p)),
                (self.min_p > 0, chain.MinP(self.min_p)),
                (self.typical < 1, chain.Typical(self.typical)),
            ]
        return [link for wanted, link in links if wanted]
