"""The training loop: the only one. It knows objectives, batches and steps, and nothing of any family."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from headway.data.batches import PairBatch
from headway.train.checkpoint import Checkpoints
from headway.train.log import Log
from headway.train.optimiser import Masters
from headway.train.run import Run
from headway.train.step import Sums

# Whether to score as well → the score (better is higher) if so, and figures for the log.
Validate = Callable[[bool], tuple[float | None, dict[str, float]]]


@dataclass
class Progress:
    """How far a run is, and how good its best score was. `stopped` says why it ended early."""

    step: int = 0
    tokens: int = 0
    best: float = float("-inf")
    best_step: int = 0
    since_best: int = 0
    stopped: str | None = None


class Meter:
    """Sums that stay on the device until somebody reads them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.tokens, self.steps, self.started = 0, 0, time.perf_counter()

    def add(self, sums: Sums, tokens: int) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value.clone()
        self.tokens += tokens
        self.steps += 1

    def read(self) -> dict[str, float]:
        """Means over what was added since the last reading: terms per token, the gradient's norm per step."""
        values = {name: float(value) for name, value in self.sums.items()}
        norm = values.pop("norm") / self.steps
        per_token = {name: value / self.tokens for name, value in values.items()}
        rate = self.tokens / (time.perf_counter() - self.started)
        self.reset()
        return per_token | {"gradient": norm, "tokens_per_second": rate}


def prefetch(
    batches: Iterator[PairBatch], ready: Callable[[PairBatch], PairBatch], ahead: int = 8
) -> Iterator[PairBatch]:
    """Batches made by a thread, a few ahead of the one in use; an error there is raised here, in its turn."""
    waiting: queue.Queue[PairBatch | BaseException | None] = queue.Queue(ahead)
    stop = threading.Event()

    def hand_over(item: PairBatch | BaseException | None) -> None:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.2)
                return
            except queue.Full:
                continue

    def fill() -> None:
        try:
            for batch in batches:
                hand_over(ready(batch))
                if stop.is_set():
                    return
            hand_over(None)
        except BaseException as error:
            hand_over(error)

    threading.Thread(target=fill, daemon=True).start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()


def fit(
    run: Run,
    objective: nn.Module,
    masters: Masters,
    step_once: Callable[[PairBatch, int], Sums],
    batches: Iterator[PairBatch],
    validate: Validate,
    checkpoints: Checkpoints,
    log: Log,
) -> Progress:
    """Train to the run's last step or until patience ends; `batches` start at step 0."""
    engine, judged, progress, meter = run.engine, run.validation, Progress(), Meter()
    objective.train()
    said = ""
    with log.bar("training", engine.steps, " steps") as show:
        for batch in batches:
            progress.step += 1
            step, last = progress.step, progress.step == engine.steps
            rate = run.schedule.rate(step, engine.steps)
            masters.set_rate(rate)
            meter.add(step_once(batch, engine.accumulate), batch.tokens)
            progress.tokens += batch.tokens
            show(step, said)
            if step % engine.log == 0 or last:
                values = meter.read()
                log.event("train", step, rate=rate, tokens=progress.tokens, **values)
                said = f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s"
            if step % engine.snapshot == 0 or last:
                checkpoints.save(step, masters.named(objective), {"tokens": progress.tokens})
            if step % judged.every == 0 or step % judged.score_every == 0 or last:
                paused = time.perf_counter()
                _judge(run, step, last, validate, progress, log)
                if progress.best_step == step:
                    checkpoints.keep_best(step, masters.named(objective), {"tokens": progress.tokens})
                objective.train()
                meter.started += time.perf_counter() - paused
            if last or progress.stopped:
                return progress
    return progress


def _judge(run: Run, step: int, last: bool, validate: Validate, progress: Progress, log: Log) -> None:
    """Validate, and keep the best score and how long ago it was."""
    score, values = validate(last or step % run.validation.score_every == 0)
    log.event("validation", step, **values)
    log.say(f"step {step:,}: " + ", ".join(f"{name} {value:.3f}" for name, value in values.items()))
    if score is None:
        return
    if score > progress.best:
        progress.best, progress.best_step, progress.since_best = score, step, 0
    else:
        progress.since_best += 1
        if run.validation.patience and progress.since_best >= run.validation.patience:
            progress.stopped = f"no better score since step {progress.best_step:,}"
