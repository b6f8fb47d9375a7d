"""Tuning on conversations: a language model learns to answer. Judged by the loss of held-out answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from headway.batch import IGNORED, TokenBatch
from headway.card import Loaded
from headway.data.conversations import Broken, Conversation, hold_out_begun_alike, read_conversations
from headway.data.exchanges import Exchange, PackedRows, exchanges
from headway.errors import refuse
from headway.folder import with_tokenizers
from headway.generate.generator import Generator
from headway.tasks.files import DividedFiles, divided, vocabularies
from headway.tasks.objective import CrossEntropy, NextToken
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Task, entropy, random_ids, with_perplexity
from headway.text.chat import TURNS, Chat
from headway.text.codec import hashed
from headway.text.tokenizer import TextOptions, Tokenizer

SHOWN = 24  # tokens of the answer that a validation shows


@dataclass(frozen=True)
class Conversations(DividedFiles):
    """JSON lines of conversations (`headway.data.conversations` has the shapes); of preferences the chosen answers.

    broken: a line that cannot be used is an error, or is left out and told. length: tokens of a row, into which short
    conversations are packed (0: as many as the model reads, at most a batch). text: for a vocabulary of its own, where
    the run starts from nothing.
    """

    name: ClassVar[str] = "conversations"
    wanted: ClassVar[str] = "FILE (.jsonl of conversations)"
    broken: Literal["refuse", "skip"] = "refuse"
    length: int = 0
    text: TextOptions = field(default_factory=lambda: TextOptions(exact=True), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.length < 0, f"data.length must be 0 (as the model) or more, not {self.length}")


class Tuning(Task):
    """Abstract. Of a language model, on what people said and answered.

    reads: the values in files. The model is written with a chat template: its own, or the plain one (`TURNS`).
    """

    roles = ("steps",)
    verb = "chat"
    verbs = ("generate", "score")
    opens = Generator.of
    held: dict[str, Any]  # the batches of the parts that are not trained on
    reads: ClassVar[Callable[[Sequence[Any], Broken, Any], list[Any]]]

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        self.parts = divided(run.data, context, self._read, hold_out_begun_alike)
        self.data_names = {
            part: hashed(json.dumps([value[:-1] for value in values])) for part, values in self.parts.items()
        }
        self.tokenizer = self._tokenizer(earlier)
        self.begin([self.tokenizer], earlier)
        self.chat = self.tokenizer.chat or Chat(TURNS, {})
        if self.tokenizer.chat is None:
            self.tokenizer.chat = self.chat
            self.card.processors["text"] = replace(self.card.processors["text"], chat=TURNS)
            self.processors = with_tokenizers(self.card, self.tokenizer)

    def _read(self, files: list[Any]) -> list[Any]:
        return type(self).reads(files, self.run.data.broken, self.log.say)

    def _tokenizer(self, earlier: Loaded | None) -> Any:
        if earlier is not None:
            return earlier.source_tokenizer
        texts = [message["content"] for value in self.parts["train"] for message in value[0]]
        [found] = vocabularies(self.context, lambda: [Tokenizer.train(texts, self.run.data.text)])
        return found

    def encoded(self, conversations: Sequence[Conversation], last: bool = False) -> list[Exchange]:
        return exchanges(self.tokenizer, self.chat, conversations, last)

    @property
    def limit(self) -> int:
        """The most tokens of a conversation."""
        return self.run.max_length or self.run.engine.batch

    def told(self, part: str, count: int, kept: int, tokens: int) -> None:
        """Say how much there is, and what is left out."""
        refuse(not kept, f"{part}: all {count:,} conversations are longer than the model's {self.limit} tokens")
        self.log.say(f"{part}: {kept:,} conversations, {tokens:,} tokens of answers")
        if left := count - kept:
            self.log.say(f"{part}: {left:,} conversations longer than {self.limit} tokens are left out")
        self.log.event("data", part=part, conversations=kept, tokens=tokens, too_long=left)

    def shown(self, example: int) -> str:
        return str(self.parts["train"][example].first)

    def example(self) -> str:
        """The beginning of an answer to the first held-out prompt."""
        prompt = list(self.prompt_of(self.parts["valid"][0]))
        if len(self.generator.ids(prompt)) + SHOWN > self.generator.context:
            return ""
        answer = self.generator.generate([prompt], max_new=SHOWN, temperature=0)[0]
        return f"{prompt[-1]['content'].strip()[:80]} → {' '.join(answer.split()) or '(nothing yet)'}"

    @staticmethod
    def prompt_of(value: Any) -> Sequence[Any]:
        raise NotImplementedError

    def valid_batches(self) -> Iterable[Any]:
        found: Iterable[Any] = self.held["valid"].epoch()
        return found

    @torch.no_grad()
    def held_losses(self) -> dict[str, dict[str, float]]:
        """The mean losses of the chosen weights, on the validation data and on the test data."""
        objective = self.run.objective.build(self.model).eval()
        named = {"valid": "validation", "test": "test"}
        return {named[part]: self.mean_losses(objective, batches.epoch()) for part, batches in self.held.items()}

    @cached_property
    def generator(self) -> Generator:
        loaded = Loaded(self.model, self.card, self.processors)
        return Generator.of(loaded, self.context.device, self.context.dtype)

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> Any:
        ids = random_ids(run, size, device, min(run.max_length, run.engine.batch))
        return TokenBatch(ids, ids)


class Conversing(Tuning):
    """Learned is what the model is to say: the answers, each with its end."""

    name = "conversing"
    data = Conversations
    objectives = (NextToken, CrossEntropy)
    headline = ("perplexity", False)
    shown_losses = with_perplexity
    reads = staticmethod(read_conversations)

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        length = min(run.data.length or self.limit, self.limit, max(run.engine.batch, 1))
        packed = self.model.context is not None
        self.held = {}
        self.counts = np.zeros(0, np.int64)
        for part, values in self.parts.items():
            every = self.encoded(values)
            fits = [one for one in every if len(one.ids) <= length]
            self.parts[part] = [value for value, one in zip(values, every, strict=True) if len(one.ids) <= length]
            labels = np.array([label for one in fits for label in one.labels if label != IGNORED], np.int64)
            self.told(part, len(every), len(fits), len(labels))
            rows = max(1, run.engine.batch // length)
            rows = PackedRows(fits, rows, length, run.engine.seed, part == "train", packed)
            if part == "train":
                self.batches, self.counts = rows, np.bincount(labels)
            else:
                self.held[part] = rows

    def final_figures(self) -> dict[str, Any]:
        """Perplexity of held-out answers."""
        found = self.held_losses()
        return {f"{part} perplexity": round(math.exp(min(one["nll"], 700)), 4) for part, one in found.items()}

    def guess(self) -> float:
        return entropy(self.counts)

    @staticmethod
    def prompt_of(value: Conversation) -> Sequence[Any]:
        return value.messages[:-1]
