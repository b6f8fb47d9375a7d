"""Recipes for the ladder (Artzi, CS5740): from counting to the Transformer, one step at a time.

All of them read the same tokens of the same text in the same batches, have the same width and optimiser and see as many
tokens; a rung's rate is the best of the few that were tried on validation. `headway compare ladder
--data my.txt` makes the table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headway.models import ModelConfig, parts
from headway.models.gpt import GPTConfig
from headway.models.neural_ngram import NeuralNGramConfig
from headway.models.ngram import NGramConfig
from headway.models.rung import RUNGS
from headway.recipes.counting import treebank
from headway.recipes.language import language_run
from headway.recipes.recipe import recipe, varied
from headway.tasks.language import PlainText
from headway.tasks.objective import Counting
from headway.text.tokenizer import TextOptions
from headway.train.run import Run, Validation

TOKENS = TextOptions(size=4000, exact=True)
WIDTH, DROPOUT = 128, 0.2


def ladder_run(name: str, model: ModelConfig, peak: float) -> Run:
    """A million tokens of one's own text, at a rate that warms up and falls to a tenth of its peak."""
    return language_run(name, PlainText(text=TOKENS), model, peak, 1000, 16 * 64, snapshot=250)


@recipe("ladder-kn", "the ladder on your own text (--data FILE): counted 5-grams")
def counted(name: str) -> Run:
    """The foot of the ladder: 5-grams by modified Kneser-Ney, of the same tokens."""
    return Run(name, PlainText(text=TOKENS), NGramConfig(order=5), Counting())


@recipe("mlp", "a neural 5-gram of your own text: --data FILE")
def mlp(name: str) -> Run:
    """Without the direct path: on a small text it learns pairs of words by heart (perplexity 199 against 130)."""
    model = NeuralNGramConfig(order=5, width=WIDTH, hidden=WIDTH, direct=False, dropout=0.15)
    return ladder_run(name, model, 6e-3)


# Each with the peak of its rate.
STEPS = {
    "bow": ("the bag of words", 5e-3),
    "attention": ("self-attention in place of the mean", 5e-3),
    "positions": ("and positions", 5e-3),
    "heads": ("and four heads", 5e-3),
    "block": ("and GELU, residual, norm: a Transformer block", 5e-3),
    "stack": ("and four of them: a Transformer", 3e-3),
}
for _rung, (_what, _peak) in STEPS.items():
    recipe(f"ladder-{_rung}", f"the ladder on your own text: {_what}")(
        partial(ladder_run, model=replace(RUNGS[_rung], width=WIDTH, dropout=DROPOUT), peak=_peak)
    )


@recipe("ptb-mlp", "Penn Treebank, a neural 5-gram", "test perplexity 125.1 (validation 136.0); one H200, 31 s")
def treebank_mlp(name: str) -> Run:
    """Four words of context, one table for vectors and head."""
    model = NeuralNGramConfig(order=5, width=256, hidden=256, direct=False, tied=True, dropout=0.3)
    engine = {"steps": 18_000, "snapshot": 907, "checkpoint": 907, "log": 200}
    return varied(ladder_run(name, model, 2e-3), data=treebank(), validation=Validation(907, 907), engine=engine)


@recipe(
    "ptb-gpt", "Penn Treebank, a Transformer (for a GPU)",
    "test perplexity 77.0 (validation 83.5); one H200, shared with others",
)  # fmt: skip
def treebank_gpt(name: str) -> Run:
    """19.9 M parameters, as many as the LSTM of 2 × 650 has; words, sums, attention and what is inside the layers are
    all dropped, since the text is small: with dropout of 0.4 alone, validation was at its best (94) after twelve
    epochs of forty."""
    model = GPTConfig(
        7, 512, inner=1024, heads=8, dropout=0.5, attention_dropout=0.2, word_dropout=0.2, position=parts.Rotary(),
        feed_forward=parts.Gelu(dropout=0.3), max_length=128,
    )  # fmt: skip
    return varied(
        ladder_run(name, model, 1e-3), data=treebank(), optimiser={"decay": 0.5},
        schedule={"warmup": 500, "floor": 0.02}, validation=Validation(454, 454),
        engine={"steps": 9000, "batch": 32 * 128, "average": 8, "snapshot": 454, "checkpoint": 908, "log": 100},
    )  # fmt: skip


# From the foot up. A bag of words is worse than any n-gram: from it on each rung is better than the one before.
LADDER = ("ladder-kn", "mlp", *(f"ladder-{name}" for name in STEPS))
