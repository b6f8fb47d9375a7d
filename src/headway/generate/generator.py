"""A generator: text in, its continuations out, whole or piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from headway.device import choose
from headway.errors import InputError, nearest
from headway.folder import read_model
from headway.generate.sampling import Sampling
from headway.generate.spelling import Spelling, continuation
from headway.generate.stream import UNBOUNDED, Ended, Prompt, StreamEngine, Token, Written
from headway.generate.stream_offline import generate_all
from headway.models import FAMILIES
from headway.models.language import NextTokenModel
from headway.models.protocols import LanguageModel
from headway.plain import from_plain, to_plain
from headway.text.tokenizer import END, Tokenizer


@dataclass(frozen=True)
class Wishes:
    """What may be asked for beside `Sampling`.

    stop: a text ends before any of these strings. choices: only one of these strings is written, right behind the
    prompt (" yes", with its space, behind "Is it?"). The others are as in `Prompt`.
    """

    max_new: int = 128
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    samples: int = 1
    seed: int = 0
    top: int = 0
    window: bool = False

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise InputError("a stop string must not be empty: every text has it")
        if "" in self.choices:
            raise InputError("a choice must not be empty: there would be nothing to write")


@dataclass(frozen=True)
class Passage:
    """One continuation: its text up to a stop string, its pieces (with those of the stop string), and what the
    engine has to say of them."""

    text: str
    pieces: list[str]
    ended: Ended
    written: Written


def likeliest(passages: Sequence[Passage]) -> Passage:
    """The first of those with the greatest mean log-probability of a token."""
    return max(passages, key=lambda passage: passage.written.mean)


class Generator:
    """`generator.generate(["Once upon a time"], temperature=0.8, top_p=0.9)`."""

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, *, context: int, device: torch.device,
        opening: Sequence[int] = (), sampling: Sampling | None = None,
    ) -> None:  # fmt: skip
        """`context` is the most tokens that the model can read. `opening` stands before every prompt, as it did
        before the texts that the model learned from; without one, an empty prompt starts from END: where texts
        follow each other, the next one begins behind it."""
        self.model, self.tokenizer, self.context, self.device = model, tokenizer, context, device
        self.opening, self.sampling = tuple(opening), sampling or Sampling()

    def generate(self, prompts: Sequence[str], *, best_of: int = 1, **settings: Any) -> list[str]:
        """A continuation of each prompt, in order; of `best_of` samples the one of greatest mean log-probability.

        Keywords are those of `Sampling` and `Wishes`: `temperature=0` is greedy, `stop=["\\n"]`, `max_new=50`, …
        A prompt's text depends on its own settings and `seed` only: equal prompts in a list get equal texts, and
        who wants several different ones asks for `samples` (see `generate_n`).
        """
        if "samples" in settings:
            raise InputError("generate gives one text of each prompt: write best_of, or use generate_n for samples")
        found = self.generate_n(prompts, samples=best_of, **settings)
        return [likeliest(passages).text for passages in found]

    def generate_n(
        self,
        prompts: Sequence[str],
        *,
        batch: int | None = None,
        progress: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> list[list[Passage]]:
        """All `samples` of each prompt, with log-probabilities and the `top` alternatives of each token.

        `batch` bounds the rows in flight; `progress` is called with the number of prompts done so far.
        """
        if isinstance(prompts, str):
            raise InputError("generate takes a list of prompts, not one text: write [text]")
        wishes, sampling = self._settings(settings)
        asked = [self._prompt(ids, wishes, sampling) for ids in self.tokenizer.encode_batch(prompts)]
        spellings: dict[tuple[int, int], Spelling] = {}

        def stopped(token: Token) -> bool:
            at = token.key, token.sample
            if at not in spellings:
                spellings[at] = Spelling(self.tokenizer, asked[token.key].ids, wishes.stop)
            if token.id is not None:
                spellings[at].add(token.id)
            return spellings[at].stopped

        found = generate_all(
            self.model, asked, context=self.context, device=self.device, batch=batch, progress=progress,
            ends=stopped if wishes.stop else None,
        )  # fmt: skip
        return [
            [self._passage(prompt, written, wishes) for written in samples]
            for prompt, samples in zip(asked, found, strict=True)
        ]

    def stream(self, prompt: str, **settings: Any) -> Iterator[str]:
        """The continuation of one prompt in pieces as they come. They join to what `generate` gives."""
        wishes, sampling = self._settings(settings)
        if wishes.samples != 1:
            raise InputError(f"a stream is one text, not {wishes.samples}: leave samples at 1, or use generate_n")
        asked = self._prompt(self.tokenizer.encode(prompt), wishes, sampling)
        asked.check("the prompt", self.model.vocabulary, self.context)
        return self._pieces(asked, wishes)

    def _pieces(self, asked: Prompt, wishes: Wishes) -> Iterator[str]:
        engine = StreamEngine(self.model, context=self.context, device=self.device)
        engine.admit([(0, asked)])
        spelling = Spelling(self.tokenizer, asked.ids, wishes.stop)
        while len(engine):
            (token,) = engine.step()
            if token.id is not None and (piece := spelling.add(token.id)):
                yield piece
            if spelling.stopped:
                return
        if piece := spelling.end():
            yield piece

    def _settings(self, given: dict[str, Any]) -> tuple[Wishes, Sampling]:
        names = [f.name for f in fields(Wishes)]
        known = {*names, *(f.name for f in fields(Sampling))}
        for name in given:
            if name not in known:
                raise InputError(f"unknown setting '{name}'{nearest(name, known)}")
        wishes = from_plain(Wishes, {name: given[name] for name in given if name in names})
        rest = {name: to_plain(given[name]) for name in given if name not in names}
        if wishes.choices:
            rest["choices"] = [[*continuation(self.tokenizer, text), END] for text in wishes.choices]
        return wishes, from_plain(Sampling, to_plain(self.sampling) | rest)

    def _prompt(self, text_ids: list[int], wishes: Wishes, sampling: Sampling) -> Prompt:
        return Prompt(
            [*self.opening, *text_ids] or [END],
            sampling,
            # A choice is written whole.
            max_new=max([wishes.max_new, *map(len, sampling.choices)]),
            samples=wishes.samples,
            seed=wishes.seed,
            top=wishes.top,
            window=wishes.window,
        )

    def _passage(self, prompt: Prompt, written: Written, wishes: Wishes) -> Passage:
        spelling = Spelling(self.tokenizer, prompt.ids, wishes.stop)
        text = "".join([*map(spelling.add, written.ids), spelling.end()])
        ended: Ended = "stop" if spelling.stopped else written.ended
        return Passage(text, self.tokenizer.pieces(written.ids), ended, written)


def load(folder: str | Path, device: str = "auto", dtype: str = "auto") -> Generator:
    """The language model in a folder (or in a run's folder), ready for use."""
    place, precision = choose(device, dtype)
    found = read_model(folder)
    if len(found.card.vocabularies) != 1:
        raise InputError(f"{folder} is a translator: headway translate {folder} < text")
    if not isinstance(found.model, NextTokenModel):
        raise InputError(f"{folder} is no language model ({found.card.family}): {FAMILIES[found.card.family].use}")
    model: Any = found.model.to(place, precision)
    # Where each line was a text, a prompt is the beginning of one.
    opening = (END,) if found.card.text.lines else ()
    context = model.context or UNBOUNDED
    return Generator(model, found.source_tokenizer, context=context, device=place, opening=opening)
