"""From a run to what trains it. A family that is not named here learns from text by gradients."""

from __future__ import annotations

from collections.abc import Callable

from headway.train.job import Outcome
from headway.train.language import train_language_model
from headway.train.run import Run
from headway.train.translation import train_translator

KINDS: dict[str, Callable[..., Outcome]] = {"transformer": train_translator}


def trainer(run: Run) -> Callable[..., Outcome]:
    """Called with the run, its folder and a log; `download`, `resume` as in `train.job.train`."""
    return KINDS.get(run.model.name, train_language_model)
