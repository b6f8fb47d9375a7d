"""From a run to what trains it. A family that is not named here learns from text by gradients."""

from __future__ import annotations

from collections.abc import Callable

from headway.train.counting import train_by_counting
from headway.train.job import Outcome
from headway.train.labels import train_classifier
from headway.train.language import train_language_model
from headway.train.run import Run
from headway.train.skip_gram import train_skip_gram
from headway.train.translation import train_translator

KINDS: dict[str, Callable[..., Outcome]] = {
    "bert": train_classifier,
    "transformer": train_translator,
    "t5": train_translator,
    "ngram": train_by_counting,
    "skip-gram": train_skip_gram,
}


def trainer(run: Run) -> Callable[..., Outcome]:
    """Called with the run, its folder and a log; `download`, `resume` as in `train.job.train`."""
    return KINDS.get(run.model.name, train_language_model)


def learns_in_steps(run: Run) -> bool:
    """Or in one pass over the text, whatever the budget."""
    return trainer(run) in (train_language_model, train_translator, train_classifier)


def cost_in_words(run: Run) -> str:
    """Of a run whose steps are not those of the training loop."""
    if trainer(run) is train_skip_gram:
        tokens = run.engine.steps * run.engine.batch
        return f"{tokens:,} tokens in {run.engine.steps:,} steps: about a minute for 20 million on two CPU cores"
    return "learned in one pass over the text: seconds for a million words"
