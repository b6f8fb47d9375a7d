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
from headway.recipes.recipe import Recipe
from headway.tasks.language import PlainText
from headway.tasks.objective import Counting, NextToken
from headway.text.tokenizer import TextOptions
from headway.train.optimiser import AdamW
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Cosine

TOKENS = TextOptions(size=4000, exact=True)
WIDTH, DROPOUT = 128, 0.2
PEAKS = {"bow": 5e-3, "attention": 5e-3, "positions": 5e-3, "heads": 5e-3, "block": 5e-3, "stack": 3e-3}


def ladder_run(name: str, model: ModelConfig, peak: float) -> Run:
    """A million tokens of one's own text, at a rate that warms up and falls to a tenth of its peak."""
    return Run(
        name,
        PlainText(text=TOKENS),
        model,
        objective=NextToken(),
        optimiser=AdamW(beta2=0.99, epsilon=1e-8, decay=0.1),
        schedule=Cosine(peak=peak, warmup=100, floor=0.1),
        validation=Validation(every=250, score_every=250),
        engine=Engine(steps=1000, batch=16 * 64, clip=1.0, average=0, snapshot=250, log=50),
    )


def rung(name: str) -> Run:
    return ladder_run(f"ladder-{name}", replace(RUNGS[name], width=WIDTH, dropout=DROPOUT), PEAKS[name])


def counted() -> Run:
    """The foot of the ladder: 5-grams by modified Kneser-Ney, of the same tokens."""
    return Run("ladder-kn", PlainText(text=TOKENS), NGramConfig(order=5), Counting())


def mlp() -> Run:
    """Without the direct path: on a small text it learns pairs of words by heart (perplexity 199 against 130)."""
    model = NeuralNGramConfig(order=5, width=WIDTH, hidden=WIDTH, direct=False, dropout=0.15)
    return ladder_run("mlp", model, 6e-3)


def treebank_mlp() -> Run:
    """Four words of context, one table for vectors and head."""
    model = NeuralNGramConfig(order=5, width=256, hidden=256, direct=False, tied=True, dropout=0.3)
    run = ladder_run("ptb-mlp", model, 2e-3)
    engine = Engine(steps=18_000, batch=16 * 64, clip=1.0, average=0, snapshot=907, checkpoint=907, log=200)
    return replace(run, data=treebank(), validation=Validation(every=907, score_every=907), engine=engine)


def treebank_gpt() -> Run:
    """19.9 M parameters, as many as the LSTM of 2 × 650 has; words, sums, attention and what is inside the layers are
    all dropped, since the text is small: with dropout of 0.4 alone, validation was at its best (94) after twelve
    epochs of forty."""
    model = GPTConfig(
        7, 512, inner=1024, heads=8, dropout=0.5, attention_dropout=0.2, word_dropout=0.2, position=parts.Rotary(),
        feed_forward=parts.Gelu(dropout=0.3), max_length=128,
    )  # fmt: skip
    run = ladder_run("ptb-gpt", model, 1e-3)
    engine = Engine(steps=9000, batch=32 * 128, clip=1.0, average=8, snapshot=454, checkpoint=908, log=100)
    return replace(
        run,
        data=treebank(),
        optimiser=AdamW(beta2=0.99, epsilon=1e-8, decay=0.5),
        schedule=Cosine(peak=1e-3, warmup=500, floor=0.02),
        validation=Validation(every=454, score_every=454),
        engine=engine,
    )


STEPS = {
    "bow": "the bag of words",
    "attention": "self-attention in place of the mean",
    "positions": "and positions",
    "heads": "and four heads",
    "block": "and GELU, residual, norm: a Transformer block",
    "stack": "and four of them: a Transformer",
}

RUNG_RECIPES = (
    Recipe("ladder-kn", "the ladder on your own text (--data FILE): counted 5-grams", "", counted),
    Recipe("mlp", "a neural 5-gram of your own text: --data FILE", "", mlp),
    *(
        Recipe(f"ladder-{name}", f"the ladder on your own text: {what}", "", partial(rung, name))
        for name, what in STEPS.items()
    ),
    Recipe(
        "ptb-mlp", "Penn Treebank, a neural 5-gram", "test perplexity 125.1 (validation 136.0); one H200, 31 s",
        treebank_mlp,
    ),
    Recipe(
        "ptb-gpt", "Penn Treebank, a Transformer (for a GPU)",
        "test perplexity 77.0 (validation 83.5); one H200, shared with others", treebank_gpt,
    ),
)  # fmt: skip

# From the foot up. A bag of words is worse than any n-gram: from it on each rung is better than the one before.
LADDER = ("ladder-kn", "mlp", *(f"ladder-{name}" for name in STEPS))
