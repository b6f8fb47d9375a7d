"""The training loop: the only one. It knows objectives, batches and steps, and nothing of any family."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.data.batches import PairBatch
from headway.train.chance import put_states, take_states
from headway.train.checkpoint import Checkpoint, Checkpoints
from headway.train.health import Diverged, Health
from headway.train.log import Log
from headway.train.optimiser import Masters
from headway.train.ranks import ALONE, Ranks
from headway.train.run import Run
from headway.train.sealed import is_full
from headway.train.snapshots import Snapshots
from headway.train.step import Sums
from headway.train.stop import Stop

# Whether to score as well → the score (better is higher) if so, and figures for the log.
Validate = Callable[[bool], tuple[float | None, dict[str, float]]]
ASK_OTHERS = 10  # steps between questions to the other processes whether one was asked to stop


@dataclass
class Progress:
    """How far a run is, and how good its best score was. `stopped` says why it ended early."""

    step: int = 0
    tokens: int = 0
    best: float = float("-inf")
    best_step: int = 0
    since_best: int = 0
    seconds: float = 0.0  # of training and validation
    stopped: str | None = None


class Meter:
    """Sums that stay on the device until somebody reads them. Steps that were skipped count nowhere."""

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self.reset()

    def reset(self) -> None:
        self.names: list[str] = []
        self.sums: dict[str, Tensor] = {}  # `terms`, in the order of the names, and `tokens`
        self.started, self.tokens = time.perf_counter(), 0

    def add(self, sums: Sums, tokens: int) -> None:
        # Few and small operations: a captured step of a small model takes less time than launching twenty.
        bad = sums["bad"]
        terms = torch.stack([bad + 1, *(value.detach() for name, value in sums.items() if name != "bad")])
        terms = torch.where(bad > 0, torch.zeros_like(terms), terms)
        counted = (1 - bad) * tokens
        if self.sums:
            torch._foreach_add_([self.sums["terms"], self.sums["tokens"]], [terms, counted])
        else:
            self.sums = {"terms": terms, "tokens": counted}
        self.names = ["steps", *(name for name in sums if name != "bad")]
        self.tokens += tokens

    def read(self) -> dict[str, float]:
        """Means over what was added since the last reading: terms per token, the gradient's norm per step."""
        mine = dict(zip(self.names, self.sums["terms"].tolist(), strict=True))
        every = dict(zip(self.names, self.ranks.total(self.sums["terms"]).tolist(), strict=True))
        tokens, rate = float(self.sums["tokens"]), self.tokens / (time.perf_counter() - self.started)
        self.reset()
        # Steps and the gradient's norm are the same in every process; the other terms are sums of their shares.
        steps, norm = mine["steps"] or float("nan"), mine["norm"]
        per_token = {n: value / (tokens or float("nan")) for n, value in every.items() if n not in ("steps", "norm")}
        return per_token | {"gradient": norm / steps, "tokens_per_second": rate}


def prefetch(
    batches: Iterator[Callable[[], PairBatch]], ready: Callable[[PairBatch], PairBatch], workers: int = 1
) -> Iterator[PairBatch]:
    """Batches made by threads, a few ahead of the one in use, in order; an error is raised here, in its turn."""
    waiting: deque[Future[PairBatch]] = deque()
    pool = ThreadPoolExecutor(max(workers, 1), thread_name_prefix="batches")

    def give(make: Callable[[], PairBatch]) -> None:
        waiting.append(pool.submit(lambda: ready(make())))

    try:
        for make in batches:
            give(make)
            if len(waiting) > 8 * max(workers, 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Interrupted(Exception):
    """The run was asked to stop, and has saved itself."""


class Training:
    """A run in progress, from any step on."""

    def __init__(
        self,
        run: Run,
        objective: nn.Module,
        masters: Masters,
        step_once: Callable[[PairBatch, int], Sums],
        validate: Validate,
        checkpoints: Checkpoints,
        snapshots: Snapshots,
        log: Log,
        *,
        ranks: Ranks = ALONE,
        identity: dict[str, Any] | None = None,
    ) -> None:
        """`identity` is what must not change between a checkpoint and going on from it (the data, the run)."""
        self.run, self.objective, self.masters, self.step_once = run, objective, masters, step_once
        self.validate, self.checkpoints, self.snapshots, self.log = validate, checkpoints, snapshots, log
        self.ranks, self.identity, self.stop = ranks, identity or {}, Stop(log.say)
        self.progress, self.meter = Progress(), Meter(ranks)
        self.health = Health(run.engine.skips, run.engine.astray)
        self.said = ""
        self._since = time.perf_counter()
        self.saved = 0  # the newest step that was handed to the writer

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Become what the checkpoint was made of."""
        rank = self.ranks.rank
        facts = checkpoint.facts(rank) or checkpoint.facts(0)
        assert facts is not None
        self.masters.go_on({kind: checkpoint.whole(kind) for kind in checkpoint.kinds() if kind not in OWN})
        self.progress, self.saved = Progress(**facts["progress"]), checkpoint.step
        self.health.go_on(facts["health"])
        own = checkpoint.facts(rank)
        if own is not None:
            self.meter.sums = {name: t.to(self.masters.device) for name, t in checkpoint.own("meter", rank).items()}
            self.meter.names = facts["meter"]
            put_states(self.masters.device, own["random"], checkpoint.own("random", rank))
        self.meter.tokens = facts["meter_tokens"]
        if self.ranks.first:
            self.snapshots.go_on(facts["snapshots"], facts["best_snapshot"], checkpoint.step)
            self.log.cut_back(facts["log"], facts["seconds"], checkpoint.step)

    def save(self) -> None:
        """A checkpoint of now, written beside the training; all processes do it at the same step."""
        progress = self._clocked()
        facts_of_chance, states = take_states(self.masters.device)
        try:
            position = self.log.position() if self.ranks.first else 0
        except OSError as error:
            if not is_full(error):
                raise
            position = -1
        if self.ranks.any(position < 0):
            self.log.say(f"no checkpoint at step {progress.step:,}: no room left on the disk; training goes on")
            return
        facts = {
            "progress": asdict(progress),
            "health": self.health.facts(),
            "meter": self.meter.names,
            "meter_tokens": self.meter.tokens,
            "random": facts_of_chance,
            "snapshots": self.snapshots.regular,
            "best_snapshot": self.snapshots.best,
            "log": position,
            "seconds": self.log.seconds,
            "processes": self.ranks.count,
            **self.identity,
        }
        files = {"meter": self.meter.sums, "random": states}
        if self.ranks.first or self.masters.sharded:
            files |= self.masters.state()
        self.checkpoints.save(progress.step, files, self.masters.shards(), facts)
        self.saved = progress.step

    def fit(self, batches: Iterator[PairBatch]) -> Progress:
        """Train to the run's last step or until patience ends; `batches` start at the step after the last."""
        self.objective.train()
        engine, progress = self.run.engine, self.progress
        self.meter.started = self._since = time.perf_counter()
        with self.stop, self.log.bar("training", engine.steps, " steps") as show:
            while progress.step < engine.steps and not progress.stopped:
                self.advance(next(batches))
                show(progress.step, self.said)
                if self._stop_now():
                    self._save_last()
                    raise Interrupted(f"stopped after step {progress.step:,} of {engine.steps:,}")
        return self._clocked()

    def _clocked(self) -> Progress:
        now = time.perf_counter()
        self.progress.seconds += now - self._since
        self._since = now
        return self.progress

    def advance(self, batch: PairBatch) -> None:
        """One step, and whatever is due after it."""
        engine, progress = self.run.engine, self.progress
        progress.step += 1
        step, last = progress.step, progress.step == engine.steps
        rate = self.run.schedule.rate(step, engine.steps)
        self.masters.set_rate(rate)
        sums = self.step_once(batch, engine.accumulate)
        self.meter.add(sums, batch.tokens)
        self.health.add(step, batch.examples, sums["bad"])
        progress.tokens += batch.tokens
        if step % engine.log == 0 or last:
            self._report(rate)
        if step % engine.snapshot == 0 or last:
            self._snapshot(self.snapshots.save)
        judged = self.run.validation
        if step % judged.every == 0 or step % judged.score_every == 0 or last:
            paused = time.perf_counter()
            self._judge(last)
            self.meter.started += time.perf_counter() - paused
        if step % engine.checkpoint == 0 or last or progress.stopped:
            self._checkpoint(must=last or bool(progress.stopped))

    def _report(self, rate: float) -> None:
        """Read the sums of the last steps, write them down, and see whether the run still learns."""
        step = self.progress.step
        self._read_health()
        values = self.meter.read()
        self.log.event("train", step, rate=rate, tokens=self.progress.tokens, **values)
        self.said = f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s"
        try:
            self.health.judge(step, values["loss"])
        except Diverged as error:
            self._give_up(error)

    def _read_health(self) -> None:
        try:
            for skipped in self.health.read():
                self.log.event("skipped", skipped.step, examples=list(skipped.examples))
                self.log.say(f"loss or gradient not finite, batch skipped: {skipped}")
        except Diverged as error:
            self._give_up(error)

    def _give_up(self, error: Diverged) -> None:
        self.checkpoints.writer.wait()
        newest = self.checkpoints.steps()
        kept = f"the last good checkpoint is that of step {newest[-1]:,}" if newest else "there is no checkpoint yet"
        raise Diverged(f"{error} ({kept})") from None

    def _snapshot(self, keep: Callable[[int, dict[str, Tensor]], None]) -> None:
        weights = self.masters.named()  # all processes: a sharded weight is put together
        if self.ranks.first:
            keep(self.progress.step, weights)

    def _judge(self, last: bool) -> None:
        """Validate, and keep the best score and how long ago it was."""
        step, progress, judged = self.progress.step, self.progress, self.run.validation
        score, values = self.validate(last or step % judged.score_every == 0)
        self.objective.train()
        self.log.event("validation", step, **values)
        self.log.say(f"step {step:,}: " + ", ".join(f"{name} {value:.3f}" for name, value in values.items()))
        if score is None:
            return
        if score > progress.best:
            progress.best, progress.best_step, progress.since_best = score, step, 0
            self._snapshot(self.snapshots.keep_best)
        else:
            progress.since_best += 1
            if judged.patience and progress.since_best >= judged.patience:
                progress.stopped = f"no better score since step {progress.best_step:,}"

    def _checkpoint(self, must: bool) -> None:
        """What is due, unless the last is still being written or the run is not well."""
        self._read_health()
        if not self.health.sound and not must:
            return
        busy = self.ranks.any(self.checkpoints.busy)
        if busy and not must:
            self.log.say(
                f"the checkpoint of step {self.progress.step:,} is left out: the last is still being written "
                "(raise engine.checkpoint, or write to a faster disk)"
            )
            return
        if busy:
            self.checkpoints.writer.wait()
        self.save()

    def _stop_now(self) -> bool:
        if self.ranks.count == 1:
            return self.stop.asked
        return self.progress.step % ASK_OTHERS == 0 and self.ranks.any(self.stop.asked)

    def _save_last(self) -> None:
        if self.saved < self.progress.step:
            self._read_health()
            self.checkpoints.writer.wait()
            self.save()
        self.checkpoints.writer.wait()


OWN = ("meter", "random")  # kinds of tensors that each process keeps for itself
