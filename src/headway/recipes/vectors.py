"""Recipes for word vectors."""

from __future__ import annotations

from headway.models.skip_gram import SkipGramConfig
from headway.recipes.recipe import recipe
from headway.tasks.objective import NegativeSampling
from headway.tasks.word_vectors import Words
from headway.text.tokenizer import TextOptions
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Linear

# Words in lower case, punctuation apart; those that are there less than five times teach little.
TEXT = TextOptions(kind="word", size=200_000, lowercase=True, min_count=5, marks=True)


def skip_gram_run(name: str, data: Words, steps: int) -> Run:
    """word2vec's settings: the rate falls from 0.025 to next to nothing."""
    return Run(
        name, data, SkipGramConfig(), NegativeSampling(),
        schedule=Linear(peak=0.025, warmup=0, floor=0.004),
        validation=Validation(every=1000, score_every=1000),
        engine=Engine(steps=steps, batch=4096, checkpoint=2000, snapshot=2000, average=0, log=100),
    )  # fmt: skip


@recipe("skip-gram", "word vectors of your own text: --data FILE")
def own_text(name: str) -> Run:
    return skip_gram_run(name, Words(text=TEXT), steps=5000)


@recipe(
    "novels-skip-gram", "word vectors of 18 English novels",
    "loss 2.59 a pair on held-out novels, in 39 s on two CPU cores that were busy with other work",
)  # fmt: skip
def novels(name: str) -> Run:
    """Five passes."""
    return skip_gram_run(name, Words(("novels/core",), text=TEXT), steps=2800)
