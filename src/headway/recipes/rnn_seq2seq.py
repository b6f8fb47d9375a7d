"""Recipes for recurrent translators with attention."""

from __future__ import annotations

from dataclasses import replace

from headway.generate.search import Search
from headway.models.rnn_seq2seq import RnnSeq2SeqConfig
from headway.recipes.recipe import Recipe
from headway.recipes.translation import multi30k, own_data
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Cosine


def captions() -> Run:
    """A GRU of the Transformer recipe's data, search and number of steps; float32, as a cell adds up small changes."""
    return Run(
        "multi30k-de-en-rnn",
        multi30k("de", "en"),
        RnnSeq2SeqConfig(width=512, dropout=0.4),
        schedule=Cosine(peak=2e-3, warmup=500),
        search=Search(beam=5, length_penalty=1.0),
        validation=Validation(every=1000, score_every=2000, tokenize="none"),
        engine=Engine(steps=8000, batch=4096, clip=1.0, dtype="float32", average=10, snapshot=100),
    )


def own_text() -> Run:
    """`translate` with a recurrent model, at a lower rate and with clipped gradients."""
    run = own_data()
    return replace(
        run,
        recipe="translate-rnn",
        model=RnnSeq2SeqConfig(width=256),
        schedule=replace(run.schedule, peak=2e-3),
        engine=replace(run.engine, clip=1.0, dtype="float32"),
    )


RNN_SEQ2SEQ = (
    Recipe(
        "translate-rnn",
        "your own parallel text, by a recurrent model with attention: --data SOURCE TARGET",
        "",
        own_text,
    ),
    Recipe("multi30k-de-en-rnn", "captions, German to English, by a recurrent model with attention", "", captions),
)
