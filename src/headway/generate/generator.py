"""A generator: text in, its continuations out, whole or part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch

from headway.card import Card, Loaded
from headway.errors import InputError, TooLong
from headway.generate.one_or_many import is_text, one_or_many
from headway.generate.request import UNBOUNDED, Request
from headway.generate.saliency import recorded
from headway.generate.sampling import Sampling
from headway.generate.search import Search
from headway.generate.spelling import continuation
from headway.generate.stepper import stepper_for
from headway.generate.tracing import Answering, check_one, checked, nexts, token_track, trace_of
from headway.generate.writing import Parts, Passage, Wishes, Writing, likeliest
from headway.models.configs import token_tables
from headway.models.protocols import Steps
from headway.nn.tap import chosen
from headway.text.chat import Message, asked_text, conversation, rendered
from headway.text.codec import Codec
from headway.traces import Trace

Asked = str | Sequence[Message]  # a text to continue, or a conversation to answer


def is_prompt(value: Any) -> bool:
    """Whether it is one prompt: a text, or the messages of a conversation."""
    return is_text(value) or (isinstance(value, Sequence) and len(value) > 0 and isinstance(value[0], dict))


def best(passages: Sequence[Passage], prompt: Asked, judge: Any = None) -> Passage:
    """The likeliest, or the one that a judge prefers as an answer to the prompt; it never prefers nothing at all."""
    said = [passage for passage in passages if passage.text.strip()]
    if judge is None or len(said) < 2:
        return likeliest(said or passages)
    asked = asked_text(conversation(prompt) if isinstance(prompt, str) else prompt)
    shares = judge.choose((asked, [passage.text for passage in said]), truncate=True)
    return said[shares.index(max(shares))]


class Generator(Writing, Answering):
    """`generator.generate("Once upon a time", temperature=0.8, top_p=0.9)`, or a list of prompts."""

    card: Card
    rows: ClassVar = "one"  # of most steps: how weights are laid out on a CPU

    def __init__(
        self, model: Steps, tokenizer: Codec, *, context: int, device: torch.device,
        opening: Sequence[int] = (), sampling: Sampling | None = None,
    ) -> None:  # fmt: skip
        """`context` is the most tokens that the model can read; `limit` is None where that is any number. `opening`
        stands before every prompt, as it did before the texts that the model learned from; without one, an empty prompt
        starts from what ends a text: where texts follow each other, the next one begins behind it."""
        self.model, self.tokenizer, self.context, self.device = model, tokenizer, context, device
        self.tokenizers, self.limit = (tokenizer, tokenizer), None if context == UNBOUNDED else context
        self.opening, self.sampling, self.writes = tuple(opening), sampling or Sampling(), tokenizer
        self.stepper = stepper_for(model, device)  # what it captures serves later calls

    @classmethod
    def of(cls, loaded: Loaded, device: torch.device, dtype: torch.dtype) -> Generator:
        """The language model that was read from a folder."""
        model: Any = loaded.model.to(device, dtype)
        tokenizer: Codec = loaded.source_tokenizer
        # Where each line was a text, a prompt is the beginning of one.
        opening = tokenizer.closing if loaded.card.text.lines else tokenizer.opening
        generator = cls(model, tokenizer, context=model.context or UNBOUNDED, device=device, opening=opening)
        generator.card = loaded.card
        return generator

    def asked(self) -> list[str]:
        return [name for name in super().asked() if self._traced or name != "trace"]

    @cached_property
    def _traced(self) -> bool:
        """A model that counts has nothing inside."""
        return bool(token_tables(self.model))

    @one_or_many(is_prompt)
    def generate(self, prompts: Sequence[Asked], *, best_of: int = 1, judge: Any = None, **settings: Any) -> list[str]:
        """A continuation of a prompt, or of each prompt of a list, in order; of `best_of` samples the one of
        greatest mean log-probability, or the one that `judge` prefers, a model that chooses among texts.

        A prompt is a text, or a conversation (`[{"role": "user", "content": "Hello"}]`) where the model has a template.
        Keywords are those of `Sampling` and `Wishes`: `temperature=0` is greedy, `stop=["\\n"]`, `max_new=50`, … With
        `beam=5` and what else `Search` has the most likely text is searched for.
        A prompt's text depends on its own settings and `seed` only: equal prompts in a list get equal texts, and
        ask for `samples` to get several different ones (see `generate_n`).
        """
        if "samples" in settings:
            raise InputError("generate gives one text of each prompt: write best_of, or use generate_n for samples")
        found = self.generate_n(prompts, samples=best_of, **settings)
        return [best(passages, prompt, judge).text for prompt, passages in zip(prompts, found, strict=True)]

    @one_or_many(is_prompt)
    def generate_n(
        self, prompts: Sequence[Asked], *, batch: int | None = None, progress: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> list[list[Passage]]:  # fmt: skip
        """All `samples` of each prompt, or the `best` hypotheses of its `beam`, with log-probabilities and the
        `top` alternatives of each token.

        `batch` bounds the rows that are written at a time; `progress` is called with the number of prompts done so far.
        """
        wishes, choose = self.settings(settings, self.sampling)
        asked = [self._request(prompt, wishes, choose) for prompt in prompts]
        return self.passages(asked, wishes.stop, batch, progress)

    def stream(self, prompt: Asked, **settings: Any) -> Parts:
        """The continuation of one prompt in parts as they come. They join to what `generate` gives; the iterator's own
        value (of `yield from`, or of StopIteration) says why it ended."""
        wishes, choose = self.settings(settings, self.sampling)
        if wishes.samples != 1 or not isinstance(choose, Sampling):
            raise InputError("a stream is one sampled text: leave out samples and beam, or use generate_n")
        asked = self._request(prompt, wishes, choose)
        asked.check("the prompt", self.model.vocabulary, self.context)
        return self.streamed(asked, wishes.stop)

    def choice(self, text: str) -> list[int]:
        return [*continuation(self.tokenizer, text), self._end()]

    def trace(
        self, text: Asked, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What happens inside the model while this text is read, with the `top` tokens that may follow each of its
        own in `about["next"]`. `layers`, `heads` and `tensors` keep it small (see `headway.trace`)."""
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
            about, last = nexts(logits_TV, self.tokenizer, [*ids[1:], None], top)
        opening = len(self.opening) if isinstance(text, str) else 0
        stops = {*self.tokenizer.stops, self.tokenizer.start}
        special = [at < opening or i in stops for at, i in enumerate(ids)]
        track = token_track("tokens", self.tokenizer, ids, special, text if isinstance(text, str) else None)
        return trace_of(model, recorder, [track], name=self.name, about=about, more=more | last)

    def ids(self, prompt: Asked) -> list[int]:
        """What the model reads before it writes."""
        if not isinstance(prompt, str):
            return self.tokenizer.encode(rendered(self.tokenizer.chat, prompt))
        return [*self.opening, *self.tokenizer.encode(prompt)] or [self._end()]

    def _end(self) -> int:
        for end in (self.tokenizer.end, *sorted(self.tokenizer.stops), self.tokenizer.start):
            if end is not None:
                return end
        raise InputError(
            "this model's tokenizer has nothing that ends a text: give a non-empty prompt, and no `choices`"
        )

    def _request(self, prompt: Asked, wishes: Wishes, choose: Sampling | Search) -> Request:
        choices = choose.choices if isinstance(choose, Sampling) else ()
        max_new = max([wishes.max_new, *map(len, choices)])  # a choice is written whole
        stops = frozenset(i for i in self.tokenizer.stops if i < self.model.vocabulary)
        return Request(
            self.ids(prompt), choose, max_new, stops, wishes.samples, wishes.seed, wishes.top, wishes.window, cut=True
        )  # fmt: skip
