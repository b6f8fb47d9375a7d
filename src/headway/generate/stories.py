"""A model of stories: statements and questions in; answers with the hops that led to them, or a trace out.

B batch, S sentences, T places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from headway.card import Loaded
from headway.data.stories import Asked, StoryInputs, StoryStore, lines_in, parse
from headway.device import sent
from headway.errors import refuse
from headway.generate.encoder import Guess, HeadedModel
from headway.generate.one_or_many import is_text, one_or_many
from headway.generate.tracing import Answering, check_one, checked, trace_of
from headway.nn import tap
from headway.nn.tap import Choice, chosen
from headway.traces import Trace, Track

ROWS = {"cpu": 128, "cuda": 4096}
WEIGHTS = Choice(tensors=("weights",))
TEXT = "the text"  # its name in an error


@dataclass(frozen=True)
class StoryAnswer:
    """What a model answers to a question. guesses: every answer, the most probable first. sentences: those that it
    remembers, the earliest first; hops: the weight of each, hop by hop."""

    question: str
    guesses: list[Guess]
    sentences: tuple[str, ...]
    hops: list[list[float]]

    @property
    def text(self) -> str:
        return self.guesses[0].text

    @property
    def probability(self) -> float:
        return self.guesses[0].probability


class StoryModel(HeadedModel, Answering):
    """`headway.load(folder)` gives one: `model.answer("Mary got the milk. Mary went home. Where is the milk?")`. A text
    has a sentence a line, or all in one line; what ends with a question mark is a question."""

    vocabulary = 0  # it writes no tokens

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        """`limit`: the most sentences that it remembers."""
        super().__init__(loaded, device, dtype)
        self.tokenizer = loaded.source_tokenizer
        self.tokenizers = self.tokenizer, self.tokenizer
        self.limit = int(self.model.context)

    def places(self, text: str) -> int:
        return min(self.limit, len(lines_in(text)))

    @one_or_many(is_text)
    def answer(self, texts: Sequence[str]) -> list[list[StoryAnswer]]:
        """The answer to every question of each text."""
        asked = [_questions(text) for text in texts]
        found = iter(self.ask([one for some in asked for one in some]))
        return [[next(found) for _ in some] for some in asked]

    def ask(self, asked: Sequence[Asked]) -> list[StoryAnswer]:
        """The answer to each question."""
        rows = ROWS[self.device.type]
        return [one for start in range(0, len(asked), rows) for one in self._answered(asked[start : start + rows])]

    @torch.inference_mode()
    def _answered(self, asked: Sequence[Asked]) -> Iterator[StoryAnswer]:
        inputs = self._inputs(asked)
        with tap.record(self.model, WEIGHTS) as recorder:
            guesses = self.guesses(inputs)
        hops_HBS = torch.stack([weights[:, 0, 0] for weights in recorder.tensors.values()]).tolist()
        for row, (one, found) in enumerate(zip(asked, guesses, strict=True)):
            sentences = one.story[-self.limit :]
            hops = [hop[row][: len(sentences)] for hop in hops_HBS]
            yield StoryAnswer(one.question, found, sentences, hops)

    @torch.inference_mode()
    def trace(
        self, text: str, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What the model computes for the last question of this text, along the sentences before it; the `top` answers
        in `about["labels"]`. `layers` are hops; they and `tensors` keep it small (see `headway.trace`)."""
        check_one(text)
        choice, asked = checked(self.model, chosen(layers, heads, tensors)), _questions(text)[-1]
        with tap.record(self.model, choice) as recorder:
            shares_L = self.model(self._inputs([asked]))[0].float().softmax(-1)
        best_K, at_K = shares_L.topk(min(top, len(shares_L)))
        labels = [[self.labels[at], round(p, 5)] for at, p in zip(at_K.tolist(), best_K.tolist(), strict=True)]
        tracks = [
            Track("question", "sentences", (asked.question,)),
            Track("sentences", "sentences", asked.story[-self.limit :]),
        ]
        return trace_of(self.model, recorder, tracks, name=self.name, about={"labels": labels})

    def _inputs(self, asked: Sequence[Asked]) -> StoryInputs:
        store = StoryStore(asked, [0] * len(asked), self.tokenizer.encode_batch, self.limit)
        return store.inputs(torch.arange(len(asked))).map(lambda tensor: sent(tensor, self.device))


def _questions(text: str) -> list[Asked]:
    asked = list(parse(lines_in(text), TEXT, answered=False))
    refuse(not asked, "there is no question in the text: end one with a question mark")
    return asked
