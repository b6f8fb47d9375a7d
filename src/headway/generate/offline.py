"""Offline search: a loop over the step engine, sources of like length together, answers in the asked order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from headway.generate.engine import SearchEngine
from headway.generate.history import Branches
from headway.generate.search import Hypothesis, Request, Search
from headway.generate.stepper import Stepper, stepper_for
from headway.models.protocols import Steps
from headway.text.symbols import Symbols

HEADWAYS = Symbols()


def search_all(
    model: Steps,
    sources: Sequence[list[int]],
    search: Search,
    *,
    limit: int,
    device: torch.device,
    symbols: Symbols = HEADWAYS,
    stepper: Stepper | None = None,
    batch: int | None = None,
    progress: Callable[[int], None] | None = None,
    branches: dict[int, Branches] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of every source (ids with their end).

    `batch` bounds the sources in flight; `progress` is called with the number of sources done so far; `branches` is
    filled with what every beam of each source did.
    """
    stepper = stepper or stepper_for(model, device)
    batch = batch or (1024 if device.type == "cuda" else 64)
    engine = SearchEngine(model, search, stepper, symbols=symbols, limit=limit, device=device, branches=branches)
    # Longest first: the batch that needs most memory fails first, if one does.
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    answers: list[list[Hypothesis]] = [[] for _ in sources]
    done = 0
    for at in range(0, len(order), batch):
        engine.admit([Request(i, sources[i]) for i in order[at : at + batch]])
        while engine.flights:
            for key, hypotheses in engine.step():
                answers[key] = hypotheses
                done += 1
                if progress:
                    progress(done)
    return answers
