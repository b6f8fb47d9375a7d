"""Recipes for recurrent translators with attention."""

from __future__ import annotations

from headway.models.rnn_seq2seq import RnnSeq2SeqConfig
from headway.recipes.recipe import recipe, varied
from headway.recipes.translation import caption_run, multi30k, own_data
from headway.tasks.objective import CrossEntropy
from headway.train.run import Run
from headway.train.schedule import Cosine


@recipe("translate-rnn", "your own parallel text, by a recurrent model with attention: --data SOURCE TARGET")
def own_text(name: str) -> Run:
    """`translate` with a recurrent model, at a lower rate and with clipped gradients."""
    model, engine = RnnSeq2SeqConfig(width=256), {"clip": 1.0, "dtype": "float32"}
    return varied(own_data(), recipe=name, model=model, schedule={"peak": 2e-3}, engine=engine)


@recipe(
    "multi30k-de-en-rnn", "captions, German to English, by a recurrent model with attention",
    "BLEU 42.58 on test 2016 (the Transformer: 45.07); one H200",
)  # fmt: skip
def captions(name: str) -> Run:
    """A GRU of the Transformer recipe's data, search and number of steps; float32, as a cell adds up small changes."""
    return varied(
        caption_run(name, multi30k("de", "en"), "none"), model=RnnSeq2SeqConfig(width=512, dropout=0.4),
        objective=CrossEntropy(), schedule=Cosine(peak=2e-3, warmup=500), validation={"every": 1000},
        engine={"batch": 4096, "clip": 1.0, "dtype": "float32"},
    )  # fmt: skip
