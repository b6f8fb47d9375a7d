"""Offline generation: a loop over the engine, answers in the asked order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from headway.batch import TextRow
from headway.generate.engine import Engine
from headway.generate.history import Branches
from headway.generate.request import UNBOUNDED, Found, Request, Token
from headway.generate.search import Hypothesis, Search
from headway.generate.stepper import PlainStepper
from headway.models.protocols import Steps
from headway.text.tokenizer import Symbols

HEADWAYS = Symbols()
BATCH = {"cpu": (32, 64), "cuda": (512, 1024)}  # sampled rows, or sources of a search


def generate_all(
    model: Steps, requests: Sequence[Request], *, context: int, device: torch.device, batch: int | None = None,
    ends: Callable[[Token], bool] | None = None, progress: Callable[[int], None] | None = None,
    stepper: PlainStepper | None = None, checked: bool = False,
) -> list[Any]:  # fmt: skip
    """What every request gives: its samples (`Written`), or what its search found (`Found`). A key is a request's place
    in the list.

    `batch` bounds the slots in use (a request with more samples goes alone); `ends` is shown every sampled token and
    may end its row; `progress` is called with the number of requests done so far; `stepper` is as in `Engine`;
    `checked`: the caller has checked the requests.
    """
    for number, request in enumerate(() if checked else requests, 1):
        request.check(f"prompt {number}", model.vocabulary, context)  # before the first is read, not after hours
    searched = any(request.searched for request in requests)
    batch = batch or BATCH.get(device.type, BATCH["cpu"])[searched]
    # Longest first: the batch that needs most memory fails first, if one does.
    sizes, rows = [request.size for request in requests], [request.slots for request in requests]
    waiting = sorted(range(len(requests)), key=sizes.__getitem__)
    slots = min(batch, sum(rows))
    length = max((request.need(context) for request in requests), default=0)
    engine = Engine(model, context=context, device=device, slots=slots, length=length, stepper=stepper)
    # Few requests at a time would be read less efficiently; plain steps of a search are quickest where all sources are
    # equally old, and those of a small model take less time than admitting does.
    low = batch * 3 // 4 if not searched else 0 if engine.quick or device.type == "cpu" else batch // 2
    answers: list[dict[int, Any]] = [{} for _ in requests]
    done = 0
    try:
        while waiting or len(engine):
            if waiting and len(engine) <= low:
                _refill(engine, requests, rows, waiting, batch)
            for output in engine.step():
                written, answer = output.written, answers[output.key]
                if ends is not None and isinstance(output, Token) and ends(output) and written is None:
                    (written,) = engine.evict([(output.key, output.sample)])
                if written is None:
                    continue
                answer[output.sample] = written
                if len(answer) == rows[output.key]:
                    done += 1
                    if progress:
                        progress(done)
    finally:
        engine.close()
    return [
        answer[0] if request.searched else [answer[sample] for sample in range(request.samples)]
        for request, answer in zip(requests, answers, strict=True)
    ]


def _refill(
    engine: Engine, requests: Sequence[Request], rows: Sequence[int], waiting: list[int], batch: int
) -> None:  # fmt: skip
    joining: list[tuple[int, Request]] = []
    slots = len(engine)
    while waiting and (not slots or slots + rows[waiting[-1]] <= batch):
        key = waiting.pop()
        joining.append((key, requests[key]))
        slots += rows[key]
    if joining:
        engine.admit(joining, checked=True)


def search_all(
    model: Steps, sources: Sequence[list[int]], search: Search, *, limit: int, device: torch.device,
    symbols: Symbols = HEADWAYS, stepper: PlainStepper | None = None, batch: int | None = None,
    progress: Callable[[int], None] | None = None, branches: dict[int, Branches] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The best hypotheses of every source (ids with their end). `limit`: the most tokens of an output.

    `batch` bounds the sources in use; `branches` is filled with what every hypothesis of each source did.
    """
    start, end = [symbols.start], frozenset({symbols.end})
    longest = {length: search.longest(length, limit) for length in set(map(len, sources))}
    requests = [
        Request(
            start, search, longest[len(source)], end,
            inputs=TextRow(source), never=symbols.never, branches=branches is not None,
        )
        for source in sources
    ]  # fmt: skip
    context = min(limit + 1, model.context or UNBOUNDED)
    for request in requests[:1]:  # what is checked is the same in all
        request.check("the first source", model.vocabulary, context)
    found: list[Found] = generate_all(
        model, requests, context=context, device=device, batch=batch, progress=progress, stepper=stepper, checked=True
    )
    if branches is not None:
        branches.update(enumerate(one.branches or [] for one in found))
    return [one.hypotheses for one in found]
