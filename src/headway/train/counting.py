"""Training a model that is counted: one pass over the text, no gradient, no steps."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import InputError
from headway.evaluate.perplexity import Perplexity, score_store
from headway.folder import Card, weights_of, write_model
from headway.models.ngram import NGram, NGramConfig
from headway.models.smoothing import StupidBackoff
from headway.plain import to_plain
from headway.text.tokenizer import END
from headway.train.job import Outcome
from headway.train.language import in_words
from headway.train.log import Log
from headway.train.parallel.ranks import expected
from headway.train.run import Run, write_run
from headway.train.text_corpus import TextCorpus, open_text


def train_by_counting(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    """`out` gets run.json, log.jsonl and the model. A run that was interrupted is counted again from the start."""
    started = time.perf_counter()
    assert isinstance(run.model, NGramConfig)
    _check(run)
    write_run(run, out / "run.json")
    corpus = open_text(run.documents, out, log, download=download, known=resume)
    model, seconds = _counted(run.model, corpus, log)
    counted = sum(store.tokens for store in corpus.train)
    scores = _scores(model, corpus) | {"tokens counted": counted, "counting seconds": round(seconds, 2)}
    log.event("end", **scores)
    log.position()
    card = Card("ngram", model.config, (model.vocabulary,), run.data.text, run=to_plain(run), score=scores)
    write_model(out / "model", weights_of(model), card, (corpus.tokenizer,) * 2)
    return Outcome(out / "model", scores, time.perf_counter() - started)


def _check(run: Run) -> None:
    if run.init:
        raise InputError("a model that is counted starts from nothing: leave --init out")
    if run.documents.weights:
        raise InputError("a model that is counted takes every text once: leave data.weights out")
    if expected() > 1:
        raise InputError("counting takes one process: start it without torchrun")


def _counted(config: NGramConfig, corpus: TextCorpus, log: Log) -> tuple[NGram, float]:
    stores = [store.windows([0], store.tokens)[0] for store in corpus.train]
    ids_T = np.concatenate([[END], *stores])
    started = time.perf_counter()
    model = NGram.count(config, len(corpus.tokenizer), ids_T)
    seconds = time.perf_counter() - started
    sizes = {f"{order}-grams": size for order, size in enumerate(model.config.sizes, 2)}
    log.say(f"counted {len(ids_T) - 1:,} tokens in {seconds:.2f} s, smoothed by {config.smoothing.name}")
    for name, size in sizes.items():
        log.say(f"{size:,} {name}")
    log.event("counted", tokens=len(ids_T) - 1, **sizes)
    return model, seconds


def _scores(model: NGram, corpus: TextCorpus) -> dict[str, Any]:
    parts = {"validation": corpus.valid, "test": corpus.test}
    scores: dict[str, Any] = {}
    for part, store in parts.items():
        if store is not None:
            scores |= _told(part, score_store(model, store, None))
    if isinstance(model.config.smoothing, StupidBackoff):
        scores["note"] = "scores of stupid back-off do not sum to one: its perplexity compares with no other"
    return scores


def _told(part: str, found: Perplexity) -> dict[str, Any]:
    if math.isfinite(found.nll):
        return in_words(part, found)
    return {f"{part} perplexity": "infinite: it has words that were never counted behind their history"}
