"""A generator: text in, its continuations out, whole or piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Generator as Yields
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch

from headway.card import Card, Loaded
from headway.errors import InputError, TooLong, nearest
from headway.generate.engine import Engine
from headway.generate.offline import generate_all
from headway.generate.request import UNBOUNDED, Ended, Request, Token, Written
from headway.generate.saliency import recorded
from headway.generate.sampling import Sampling
from headway.generate.spelling import Spelling, continuation
from headway.generate.stepper import stepper_for
from headway.generate.tracing import check_one, checked, described, nexts, one_text, token_track, trace_of
from headway.models.protocols import Steps
from headway.nn.layout import inputs_first
from headway.nn.tap import chosen
from headway.plain import from_plain, to_plain
from headway.text.chat import Message, rendered
from headway.text.codec import Codec
from headway.traces import Trace

Asked = str | Sequence[Message]  # a text to go on from, or a conversation to answer
Pieces = Yields[str, None, Ended]


@dataclass(frozen=True)
class Wishes:
    """What may be asked for beside `Sampling`.

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

    name = ""
    card: Card
    takes: ClassVar = "one"  # a text, and no second one

    def __init__(
        self, model: Steps, tokenizer: Codec, *, context: int, device: torch.device,
        opening: Sequence[int] = (), sampling: Sampling | None = None,
    ) -> None:  # fmt: skip
        """`context` is the most tokens that the model can read. `opening` stands before every prompt, as it did
        before the texts that the model learned from; without one, an empty prompt starts from what ends a text: where
        texts follow each other, the next one begins behind it."""
        self.model, self.tokenizer, self.context, self.device = model, tokenizer, context, device
        self.opening, self.sampling = tuple(opening), sampling or Sampling()
        self.stepper = stepper_for(model, device)  # what it captures serves later calls

    @classmethod
    def of(cls, loaded: Loaded, device: torch.device, dtype: torch.dtype) -> Generator:
        """The language model that was read from a folder."""
        model: Any = loaded.model.to(device, dtype)
        if device.type == "cpu":
            inputs_first(model)
        tokenizer: Codec = loaded.source_tokenizer
        # Where each line was a text, a prompt is the beginning of one.
        opening = tokenizer.closing if loaded.card.text.lines else tokenizer.opening
        generator = cls(model, tokenizer, context=model.context or UNBOUNDED, device=device, opening=opening)
        generator.card = loaded.card
        return generator

    @property
    def tokenizers(self) -> tuple[Codec, Codec]:
        """Of what is read, and of what is written."""
        return self.tokenizer, self.tokenizer

    @property
    def limit(self) -> int | None:
        """The most tokens of a text; None: any number."""
        return None if self.context == UNBOUNDED else self.context

    def generate(self, prompts: Sequence[Asked], *, best_of: int = 1, **settings: Any) -> list[str]:
        """A continuation of each prompt, in order; of `best_of` samples the one of greatest mean log-probability.

        A prompt is a text, or a conversation (`[{"role": "user", "content": "Hello"}]`) where the model has a template.
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
        prompts: Sequence[Asked],
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
        asked = [self._prompt(prompt, wishes, sampling) for prompt in prompts]
        spellings: dict[tuple[int, int], Spelling] = {}

        def stopped(token: Token) -> bool:
            at = token.key, token.sample
            if at not in spellings:
                spellings[at] = Spelling(self.tokenizer, asked[token.key].given, wishes.stop)
            if token.id is not None:
                spellings[at].add(token.id)
            return spellings[at].stopped

        found = generate_all(
            self.model, asked, context=self.context, device=self.device, batch=batch, progress=progress,
            ends=stopped if wishes.stop else None, stepper=self.stepper,
        )  # fmt: skip
        return [
            [self._passage(prompt, written, wishes) for written in samples]
            for prompt, samples in zip(asked, found, strict=True)
        ]

    def stream(self, prompt: Asked, **settings: Any) -> Pieces:
        """The continuation of one prompt in pieces as they come. They join to what `generate` gives; the iterator's own
        value (of `yield from`, or of StopIteration) says why it ended."""
        wishes, sampling = self._settings(settings)
        if wishes.samples != 1:
            raise InputError(f"a stream is one text, not {wishes.samples}: leave samples at 1, or use generate_n")
        asked = self._prompt(prompt, wishes, sampling)
        asked.check("the prompt", self.model.vocabulary, self.context)
        return self._pieces(asked, wishes)

    def _pieces(self, asked: Request, wishes: Wishes) -> Pieces:
        engine = Engine(self.model, context=self.context, device=self.device, stepper=self.stepper)
        spelling = Spelling(self.tokenizer, asked.given, wishes.stop)
        written = None
        try:
            engine.admit([(0, asked)])
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

    def _settings(self, given: dict[str, Any]) -> tuple[Wishes, Sampling]:
        names = [f.name for f in fields(Wishes)]
        known = {*names, *(f.name for f in fields(Sampling))}
        for name in given:
            if name not in known:
                raise InputError(f"unknown setting '{name}'{nearest(name, known)}")
        wishes = from_plain(Wishes, {name: given[name] for name in given if name in names})
        rest = {name: to_plain(given[name]) for name in given if name not in names}
        if wishes.choices:
            rest["choices"] = [[*continuation(self.tokenizer, text), self._end()] for text in wishes.choices]
        return wishes, from_plain(Sampling, to_plain(self.sampling) | rest)

    def trace(
        self, text: Asked, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What goes on inside while this text is read, with the `top` tokens that may come behind each of its own in
        `about["next"]`. `layers`, `heads` and `tensors` keep it small (see `headway.trace`)."""
        if any(isinstance(part, str) for part in text or ()):  # a list of messages is one conversation
            check_one(text)
        if not text or (isinstance(text, str) and not self.tokenizer.encode(text)):
            raise InputError("there is nothing to trace: give a text that is not empty")
        ids = self.ids(text)
        if len(ids) > self.context:
            raise TooLong(f"the text has {len(ids)} tokens, this model reads at most {self.context}: shorten it")
        model: Any = self.model
        choice = checked(model, chosen(layers, heads, tensors))
        with recorded(model, torch.tensor([ids], device=self.device), choice) as (recorder, logits_TV, more):
            about = described(model, self.name)
            about["next"], last_V = nexts(logits_TV, self.tokenizer, [*ids[1:], None], top)
        opening = len(self.opening) if isinstance(text, str) else 0
        stops = {*self.tokenizer.stops, self.tokenizer.start}
        special = [at < opening or i in stops for at, i in enumerate(ids)]
        track = token_track("tokens", self.tokenizer, ids, special, text if isinstance(text, str) else None)
        return trace_of(recorder, 0, [track], one_text, about, more | {"next": (last_V, ("vocabulary",))})

    def ids(self, prompt: Asked) -> list[int]:
        """What the model reads before it writes."""
        if not isinstance(prompt, str):
            return self.tokenizer.encode(rendered(self.tokenizer.chat, prompt))
        return [*self.opening, *self.tokenizer.encode(prompt)] or [self._end()]

    def _end(self) -> int:
        ends = (self.tokenizer.end, *sorted(self.tokenizer.stops), self.tokenizer.start)
        for end in ends:
            if end is not None:
                return end
        raise InputError("this model's tokenizer has nothing that ends a text: a prompt and free choice are needed")

    def _prompt(self, prompt: Asked, wishes: Wishes, sampling: Sampling) -> Request:
        return Request(
            self.ids(prompt),
            sampling,
            # A choice is written whole.
            max_new=max([wishes.max_new, *map(len, sampling.choices)]),
            stops=frozenset(i for i in self.tokenizer.stops if i < self.model.vocabulary),
            samples=wishes.samples,
            seed=wishes.seed,
            top=wishes.top,
            window=wishes.window,
        )

    def _passage(self, prompt: Request, written: Written, wishes: Wishes) -> Passage:
        spelling = Spelling(self.tokenizer, prompt.given, wishes.stop)
        text = "".join([*map(spelling.add, written.ids), spelling.end()])
        ended: Ended = "stop" if spelling.stopped else written.ended
        return Passage(text, self.tokenizer.pieces(written.ids), ended, written)
