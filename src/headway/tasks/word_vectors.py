"""Word vectors by skip-gram: tiles of words and their neighbours, judged by the loss of held-out pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from headway.card import Loaded
from headway.data.word_windows import Tiles, WordWindows, count_words
from headway.errors import InputError, refuse
from headway.generate.words import WordTable, table_of
from headway.models.skip_gram import kept_share, noise
from headway.tasks.language import TextFiles, open_text
from headway.tasks.negative_sampling import NegativeSampling
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Prediction, Task, refuse_unknown
from headway.text.tokenizer import TextOptions

JUDGED, JUDGED_AT_ONCE = 1 << 16, 1 << 13  # tokens of held-out text that a validation takes
JUDGED_NOISE = 256  # words of a tile
PASSES = 5  # many more bring words together that stood side by side only once


@dataclass(frozen=True)
class Words(TextFiles):
    """Text whose words get vectors."""

    name: ClassVar[str] = "words"
    text: TextOptions = field(default_factory=lambda: TextOptions(kind="word"), kw_only=True)


class WordVectors(Task):
    """Judged by the loss a pair on held-out text, with the same windows and the same noise each time."""

    name = "word-vectors"
    data = Words
    objectives = (NegativeSampling,)
    roles = ("vectors",)
    verb = "neighbours"

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        refuse(context.ranks.count > 1, "skip-gram learns in one process: start it without torchrun")
        earlier = earlier_model(run)
        self.corpus = corpus = open_text(run.data, context, earlier)
        self.data_names = corpus.names()
        self.begin([corpus.tokenizer], earlier)
        config, size = run.model, self.card.reads.size
        counts_V = torch.from_numpy(count_words(corpus.train, size))
        refuse(not counts_V.sum(), "no word of the vocabulary is in the text")
        kept_V = kept_share(counts_V, config.threshold)
        how = (config.window, kept_V, noise(counts_V, config.power))
        self.batches = WordWindows(corpus.train, run.engine.batch, *how, run.engine.seed)
        held = WordWindows([corpus.valid], JUDGED_AT_ONCE, *how, seed=0, noise=JUDGED_NOISE)
        self.valid = [held.batch(step) for step in range(-(-min(corpus.valid.tokens, JUDGED) // held.tokens))]
        tokens = sum(store.tokens for store in corpus.train)
        self.model.pairs_V.copy_(self.batches.tokens * counts_V / tokens * kept_V * (config.window + 1))
        passes = run.engine.steps * self.batches.tokens / tokens
        usual = math.ceil(PASSES * tokens / self.batches.tokens)
        self.log.say(
            f"{size:,} words of width {config.width}; {passes:.1f} passes over the text "
            f"({PASSES}, as word2vec does it: engine.steps={usual})"
        )

    def valid_batches(self) -> Iterable[Tiles]:
        return self.valid

    def final_figures(self) -> dict[str, Any]:
        return {"words": self.card.reads.size}

    @classmethod
    def check(cls, run: Any) -> None:
        if run.engine.dtype not in ("auto", "float32"):
            raise InputError(f"skip-gram learns in float32, not in {run.engine.dtype}: leave --dtype out")
        if run.data.text.kind != "word":
            raise InputError(f"skip-gram learns vectors of words: set data.text.kind=word, not {run.data.text.kind}")

    @staticmethod
    def opens(loaded: Loaded, device: torch.device, dtype: torch.dtype) -> WordTable:
        return table_of(loaded, "the model")

    @classmethod
    def answer(cls, model: WordTable, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        """The nearest words of each word."""
        refuse_unknown(options, (), "a model of word vectors")
        for word in values:
            near = model.nearest(word.split()) if word.strip() else []
            pairs = [[one.word, round(one.cosine, 4)] for one in near]
            yield Prediction(" ".join(one.word for one in near), {"text": word, "neighbours": pairs})
