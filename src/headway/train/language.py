"""Training a language model: documents, windows, and the loss on held-out text as the judge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headway.batch import TokenBatch
from headway.data.streams import StreamBatches
from headway.data.windows import WindowBatches, evaluation_windows
from headway.errors import InputError
from headway.evaluate.perplexity import Perplexity, score_store
from headway.folder import Card
from headway.models import FAMILIES
from headway.plain import to_plain
from headway.train.job import Desk, Job, Outcome, entropy, fresh_model, train
from headway.train.log import Log
from headway.train.pretrained import earlier_model
from headway.train.run import PlainText, Run
from headway.train.text_corpus import TextCorpus, open_text


def train_language_model(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    return train(run, out, log, open_language, download=download, resume=resume)


def open_language(run: Run, desk: Desk) -> Job:
    earlier = earlier_model(run)
    with desk.ranks.in_turn():
        corpus = open_text(
            run.documents, desk.out, desk.log, download=desk.download, known=desk.resumed, init=earlier
        )  # fmt: skip
    size = earlier.card.vocabularies[0] if earlier else len(corpus.tokenizer)
    config = run.model
    model = fresh_model(run, desk, lambda: FAMILIES[config.name].model(config, size), (corpus.tokenizer,))
    if run.documents.apart and model.context is None:
        raise InputError(
            f"data.apart keeps attention inside a document: a model of the family '{config.name}' has none"
        )
    if run.documents.order == "stream":
        _check_streams(model, desk)
    card = Card(config.name, config, (size,), earlier.card.text if earlier else run.data.text, run=to_plain(run))
    card.foreign_text = earlier is not None and earlier.card.foreign_text
    return LanguageJob(run, desk, model, card, corpus)


def _check_streams(model: Any, desk: Desk) -> None:
    if not model.start(None, 1, desk.device).carries:
        raise InputError(
            f"data.order=stream is for models whose state keeps its size, as a recurrent one's: "
            f"set data.order=epoch objective=next-token for the family '{model.config.name}'"
        )
    if desk.ranks.count > 1:
        raise InputError(
            f"a carried state stays with its rows: {desk.ranks.count} processes cannot share them. Start one, or set "
            "data.order=epoch objective=next-token"
        )


class LanguageJob(Job):
    """Judged by the loss on held-out text, in windows side by side."""

    figure, digits = "loss", 4

    def __init__(self, run: Run, desk: Desk, model: Any, card: Card, corpus: TextCorpus) -> None:
        super().__init__(run, desk, model, card, (corpus.tokenizer, corpus.tokenizer))
        data, self.length, self.corpus = run.documents, run.max_length, corpus
        self.rows = max(1, run.engine.batch // self.length)
        self.batches = self._batches(data)
        counts = sum((store.counts() for store in corpus.train[1:]), corpus.train[0].counts())
        self.begin(corpus.names(), entropy(counts))

    def _batches(self, data: PlainText) -> WindowBatches | StreamBatches:
        corpora, seed = self.corpus.train, self.run.engine.seed
        if data.order == "stream":
            return StreamBatches(corpora, self.rows, self.length, seed, data.jitter)
        return WindowBatches(corpora, self.rows, self.length, seed, data.order, data.weights or None, data.apart)

    def batch(self, step: int) -> TokenBatch:
        return self.batches.batch(step)

    def valid_batches(self) -> Iterable[TokenBatch]:
        return evaluation_windows(self.corpus.valid, self.length, rows=self.rows, segments=self.run.documents.apart)

    def valid_losses(self) -> dict[str, float]:
        if self.plain_model.context is not None:
            return super().valid_losses()
        found = score_store(self.plain_model, self.corpus.valid, None, streams=self.rows)
        return {"loss": found.per_token, "perplexity": found.perplexity}

    def score(self, losses: dict[str, float] | None = None) -> float:
        return -(losses or self.valid_losses())["loss"]

    def said(self, score: float) -> float:
        return -score

    def shown(self, example: int) -> str:
        corpus, place = self.batches.where(example)
        ids = self.batches.corpora[corpus].windows([place], min(32, self.length))[0]
        return self.tokenizers[0].decode(ids.tolist())

    def test_scores(self) -> dict[str, Any]:
        """Validation once more as others count, by word, by character; then the test, if there is one."""
        window = None if self.plain_model.context is None else self.length
        scores = in_words("validation", score_store(self.plain_model, self.corpus.valid, window))
        if self.corpus.test is not None:
            scores |= in_words("test", score_store(self.plain_model, self.corpus.test, window))
        return scores


def in_words(part: str, found: Perplexity) -> dict[str, float]:
    """Figures of a card: by token, by character and, where there are words, by word."""
    figures = {
        f"{part} perplexity": round(found.perplexity, 4),
        f"{part} bits per character": round(found.bits_per_character, 4),
    }
    if found.words:
        figures[f"{part} perplexity per word"] = round(found.word_perplexity, 2)
    return figures
