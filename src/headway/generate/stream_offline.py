"""Offline generation: a loop over the step engine, answers in the asked order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from headway.generate.stream import Prompt, StreamEngine, Token, Written
from headway.generate.stream_stepper import StreamStepper
from headway.models.protocols import Steps


def generate_all(
    model: Steps,
    prompts: Sequence[Prompt],
    *,
    context: int,
    device: torch.device,
    batch: int | None = None,
    ends: Callable[[Token], bool] | None = None,
    progress: Callable[[int], None] | None = None,
    stepper: StreamStepper | None = None,
) -> list[list[Written]]:
    """The samples of every prompt. A key is a prompt's place in the list.

    `batch` bounds the rows in flight (a prompt with more samples goes alone); `ends` is shown every token and may
    end its row; `progress` is called with the number of prompts done so far; `stepper` is as in `StreamEngine`.
    """
    batch = batch or (256 if device.type == "cuda" else 32)
    for number, prompt in enumerate(prompts, 1):
        prompt.check(f"prompt {number}", model.vocabulary, context)  # before the first is read, not after hours
    room = max((prompt.need(context) for prompt in prompts), default=0)
    engine = StreamEngine(model, context=context, device=device, room=room, stepper=stepper)
    # Longest first: the batch that needs most memory fails first, if one does.
    waiting = sorted(range(len(prompts)), key=lambda key: len(prompts[key].ids))
    answers: list[dict[int, Written]] = [{} for _ in prompts]
    done = 0
    while waiting or len(engine):
        # Who joins has all caches moved: so some at a time.
        if waiting and len(engine) <= batch * 3 // 4:
            _refill(engine, prompts, waiting, batch)
        for token in engine.step():
            written = token.written
            if ends is not None and ends(token) and written is None:
                (written,) = engine.evict([(token.key, token.sample)])
            if written is not None:
                answers[token.key][token.sample] = written
                if len(answers[token.key]) == prompts[token.key].samples:
                    done += 1
                    if progress:
                        progress(done)
    return [[found[sample] for sample in range(len(found))] for found in answers]


def _refill(engine: StreamEngine, prompts: Sequence[Prompt], waiting: list[int], batch: int) -> None:
    joining: list[tuple[int, Prompt]] = []
    rows = len(engine)
    while waiting and (not rows or rows + prompts[waiting[-1]].samples <= batch):
        key = waiting.pop()
        joining.append((key, prompts[key]))
        rows += prompts[key].samples
    if joining:
        engine.admit(joining)
