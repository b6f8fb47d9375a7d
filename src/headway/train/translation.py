"""Training a translator: pairs, batches by length, and BLEU as the judge."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from pathlib import Path
from typing import Any

from headway.batch import TokenBatch
from headway.data.batches import Frame, pair_batches
from headway.data.readers import read_pairs
from headway.evaluate.bleu import corpus_bleu
from headway.folder import Card, Loaded
from headway.generate.translator import Translator
from headway.models import FAMILIES
from headway.plain import to_plain
from headway.text.codec import Codec
from headway.train.corpus import Corpus, listed, open_corpus
from headway.train.job import Desk, Job, Outcome, entropy, fresh_model, train
from headway.train.log import Log
from headway.train.pretrained import earlier_model
from headway.train.run import Run


def train_translator(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    return train(run, out, log, open_translation, download=download, resume=resume)


def open_translation(run: Run, desk: Desk) -> Job:
    earlier = earlier_model(run)
    with desk.ranks.in_turn():
        corpus = open_corpus(
            run, desk.out, desk.log, desk.download, earlier, known=desk.resumed, split=desk.ranks.first
        )  # fmt: skip
    sizes = earlier.card.vocabularies if earlier else (len(corpus.tokenizers[0]), len(corpus.tokenizers[1]))
    config = run.model
    model = fresh_model(run, desk, lambda: FAMILIES[config.name].model(config, *sizes), corpus.tokenizers)
    card = Card(
        config.name, config, sizes, earlier.card.text if earlier else run.pairs.text,
        run.pairs.source, run.pairs.target, to_plain(run.search), to_plain(run),
    )  # fmt: skip
    if earlier is not None:
        card.symbols, card.foreign_text = earlier.card.symbols, earlier.card.foreign_text
    return TranslationJob(run, desk, model, card, corpus)


def framed(card: Card, source: Codec) -> Frame:
    """What stands around the two sides of a pair for this model."""
    symbols = card.symbols
    return Frame(source.opening, source.closing, symbols.start, symbols.end)


class TranslationJob(Job):
    """Judged by BLEU with the run's own search."""

    figure = "BLEU"

    def __init__(self, run: Run, desk: Desk, model: Any, card: Card, corpus: Corpus) -> None:
        super().__init__(run, desk, model, card, corpus.tokenizers)
        self.corpus = corpus
        self.translator = Translator(Loaded(self.plain_model, card, *corpus.tokenizers), desk.device, desk.dtype)
        frame = framed(card, corpus.tokenizers[0])
        self.batches = pair_batches(
            corpus.train, run.engine.batch, run.engine.seed, frame=frame, full=desk.device.type == "cuda"
        )
        self.valid = pair_batches(corpus.valid, 4 * run.engine.batch, 0, shuffle=False, frame=frame)
        limit = run.validation.sentences or None
        self.valid_texts = tuple(side[:limit] for side in self.texts("valid"))
        # Read now: what is wrong with a test file should not be found out after hours of training.
        self.test_texts = self.texts("test") if corpus.files.get("test") else ([], [])
        stores = {"train": corpus.train.folder.name, "valid": corpus.valid.folder.name}
        self.begin(stores, entropy(corpus.train.target_counts(card.symbols.end)))

    def batch(self, step: int) -> TokenBatch:
        return self.batches.batch(step)

    def valid_batches(self) -> Iterable[TokenBatch]:
        return self.valid.epoch()

    def shown(self, example: int) -> str:
        return self.tokenizers[0].decode(self.corpus.train.source(example).tolist())

    def score(self, losses: dict[str, float] | None = None) -> float:
        return self.bleu(*self.valid_texts)

    def test_scores(self) -> dict[str, Any]:
        return {"test BLEU": round(self.bleu(*self.test_texts), 2)} if self.test_texts[0] else {}

    def bleu(self, sources: list[str], references: list[str]) -> float:
        with self.log.bar("translating", len(sources), " sentences") as show:
            found = self.translator.translate_n(sources, progress=show)
        texts = [hypotheses[0].text if hypotheses else "" for hypotheses in found]
        return corpus_bleu(texts, references, tokenize=self.run.validation.tokenize)

    def texts(self, part: str) -> tuple[list[str], list[str]]:
        """The pairs of a part as text, without those whose source is longer than the model takes."""
        pairs = list(read_pairs(self.corpus.files[part], self.run.pairs.source, self.run.pairs.target))
        fits = [len(ids) <= self.translator.limit for ids in self.translator.encode([source for source, _ in pairs])]
        too_long = [number for number, fit in enumerate(fits, 1) if not fit]
        if too_long:
            self.log.say(
                f"{part}: {len(too_long):,} sources longer than {self.translator.limit} pieces are not scored "
                f"(pairs {listed(too_long, len(too_long))})"
            )
            self.log.event("scored", part=part, pairs=sum(fits), too_long=too_long)
        kept = list(compress(pairs, fits))
        return [source for source, _ in kept], [target for _, target in kept]
