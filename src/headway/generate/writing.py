"""Text from the engine: continuations of prompts, or sampled translations, whole or as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Generator as Yields
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch

from headway.errors import InputError, nearest, refuse
from headway.generate.engine import Engine
from headway.generate.offline import generate_all
from headway.generate.request import Ended, Found, Request, Token, Written
from headway.generate.sampling import Sampling
from headway.generate.search import Search
from headway.generate.spelling import Spelling
from headway.generate.stepper import PlainStepper
from headway.plain import from_plain, to_plain
from headway.text.codec import Codec

Parts = Yields[str, None, Ended]


@dataclass(frozen=True)
class Wishes:
    """Settings beside those of `Sampling`.

    stop: a text ends before any of these strings. choices: only one of these strings is written, right behind the
    prompt (" yes", with its space, behind "Is it?"). The others are as in `Request`.
    """

    max_new: int = 128
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    samples: int = 1
    seed: int = 0
    top: int = 0
    window: bool = False

    def __post_init__(self) -> None:
        refuse("" in self.stop, "a stop string must not be empty: every text has it")
        refuse("" in self.choices, "a choice must not be empty: there would be nothing to write")


@dataclass(frozen=True)
class Passage:
    """One continuation: its text up to a stop string, its tokens (with those of the stop string), and what the engine
    reported of them. `score`: of a hypothesis of a search."""

    text: str
    tokens: list[str]
    ended: Ended
    written: Written
    score: float | None = None


def likeliest(passages: Sequence[Passage]) -> Passage:
    """The first of those with the greatest mean log-probability of a token; of a search the best hypothesis."""
    if passages[0].score is not None:
        return passages[0]
    return max(passages, key=lambda passage: passage.written.mean)


class Writing:
    """Abstract. What writes text: a model, and the tokenizer of what it writes."""

    model: Any  # `Steps`
    device: torch.device
    stepper: PlainStepper
    writes: Codec
    context: int

    def settings(self, given: dict[str, Any], usual: Sampling) -> tuple[Wishes, Sampling | Search]:
        """With `beam` it is a search; its other settings are then those of `Search`."""
        names = [f.name for f in fields(Wishes)]
        kind: Any = Search if "beam" in given else Sampling
        known = {*names, *(f.name for f in fields(kind)), "beam"}
        for name in given:
            if name not in known:
                raise InputError(f"unknown setting '{name}'{nearest(name, known)}")
        wishes = from_plain(Wishes, {name: given[name] for name in given if name in names})
        rest = {name: to_plain(given[name]) for name in given if name not in names}
        if kind is Search:
            refuse(wishes.choices, "choices are for sampling: leave out beam")
            return wishes, from_plain(Search, rest)
        if wishes.choices:
            rest["choices"] = [self.choice(text) for text in wishes.choices]
        return wishes, from_plain(Sampling, to_plain(usual) | rest)

    def choice(self, text: str) -> list[int]:
        """The ids of a text that a row may consist of, with what ends it."""
        raise NotImplementedError

    def passages(
        self, requests: Sequence[Request], stop: Sequence[str], batch: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Passage]]:  # fmt: skip
        """What every request gives, as text."""

        @cache
        def spelling(key: int, sample: int) -> Spelling:
            return self._spelling(requests[key], stop)

        def stopped(token: Token) -> bool:
            text = spelling(token.key, token.sample)
            if token.id is not None:
                text.add(token.id)
            return text.stopped

        found = generate_all(
            self.model, requests, context=self.context, device=self.device, batch=batch, progress=progress,
            ends=stopped if stop else None, stepper=self.stepper,
        )  # fmt: skip
        return [
            [self._passage(request, written, stop, score) for written, score in _outputs(answer)]
            for request, answer in zip(requests, found, strict=True)
        ]

    def _spelling(self, request: Request, stop: Sequence[str]) -> Spelling:
        """A text behind what was given, or that of a source, which begins anew."""
        return Spelling(self.writes, request.given if request.inputs is None else (), stop)

    def _passage(self, request: Request, written: Written, stop: Sequence[str], score: float | None) -> Passage:
        spelling = self._spelling(request, stop)
        text = "".join([*map(spelling.add, written.ids), spelling.end()])
        ended: Ended = "stop" if spelling.stopped else written.ended
        return Passage(text, self.writes.tokens(written.ids), ended, written, score)

    def streamed(self, request: Request, stop: Sequence[str]) -> Parts:
        """One text in parts as they come; the iterator's own value says why it ended."""
        engine = Engine(self.model, context=self.context, device=self.device, stepper=self.stepper)
        spelling = self._spelling(request, stop)
        written = None
        try:
            engine.admit([(0, request)])
            while written is None:
                token: Any
                (token,) = engine.step()
                written = token.written
                if token.id is not None and (text := spelling.add(token.id)):
                    yield text
                if spelling.stopped:
                    return "stop"
        finally:
            engine.close()
        if text := spelling.end():
            yield text
        return written.ended


def _outputs(answer: list[Written] | Found) -> list[tuple[Written, float | None]]:
    if isinstance(answer, Found):
        return [
            (Written(h.ids, h.token_scores, [], "stop" if len(h.token_scores) > len(h.ids) else "length"), h.score)
            for h in answer.hypotheses
        ]
    return [(written, None) for written in answer]
