"""The training loop. It depends on objectives, batches and steps, not on any family or task."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from headway.batch import Batch
from headway.durations import spoken
from headway.models.format_1 import renamed
from headway.random_states import process_seed, put_states, take_states
from headway.tasks.objective import Objective
from headway.train.checkpoint import Checkpoint, Checkpoints
from headway.train.gauge import Gauge, words
from headway.train.health import Diverged, Health, Record
from headway.train.log import Log, unless_full
from headway.train.meter import Meter
from headway.train.optimiser import Masters
from headway.train.pace import Pace
from headway.train.run import Run
from headway.train.snapshots import Snapshots
from headway.train.step import Sums
from headway.train.stop import Stop

# Whether to score as well → the score (better is higher) if so, and figures for the log.
Validate = Callable[[bool], tuple[float | None, dict[str, float]]]
Key = TypeVar("Key")
Made = TypeVar("Made")
WARM_UP = 5.0  # seconds of a first step that are worth a line


@dataclass
class Progress:
    """The step of a run and its best score. `stopped`: why it ended early."""

    step: int = 0
    tokens: int = 0
    best: float = float("-inf")
    best_step: int = 0
    since_best: int = 0
    seconds: float = 0.0  # of training and validation
    stopped: str | None = None
    scores: list[float] = field(default_factory=list)


def prefetch(make: Callable[[Key], Made], keys: Iterable[Key], workers: int = 1) -> Iterator[Made]:
    """Batches made by threads, a few ahead of the one in use, in order; an error is raised here, in its turn."""
    waiting: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(max(workers, 1), thread_name_prefix="batches")
    try:
        for key in keys:
            waiting.append(pool.submit(make, key))
            if len(waiting) > 8 * max(workers, 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Interrupted(Exception):
    """A signal stopped the run, after a checkpoint."""


@dataclass
class Training:
    """A training in progress, from its first step or resumed.

    identity: must be the same when a checkpoint is resumed (the data, the run). guess: the nll of predicting each token
    by its frequency. shown: gives an example's text. unit: what the tokens of a batch are. example: shows what the
    model gives at present. carried, restore: what the task saves between steps.
    """

    run: Run
    objective: Objective
    masters: Masters
    step_once: Callable[[Batch, int], Sums]
    validate: Validate
    checkpoints: Checkpoints
    snapshots: Snapshots
    log: Log
    identity: dict[str, Any] = field(default_factory=dict)
    guess: float = float("inf")
    shown: Callable[[int], str] = lambda example: ""
    gauge: Gauge | None = None
    unit: str = "tokens"
    example: Callable[[], str] = lambda: ""
    carried: Callable[[], dict[str, Tensor]] = dict
    restore: Callable[[dict[str, Tensor]], None] = lambda carried: None

    def __post_init__(self) -> None:
        engine, self.ranks = self.run.engine, self.masters.ranks
        self.progress, self.meter, self.stop = Progress(), Meter(self.ranks), Stop(self.log.say)
        self.pace = Pace(engine.steps, engine.seconds, self.ranks)
        self.health = Health(engine.skips, engine.astray, self.run.schedule.warmup, self.guess)
        self.checkpoints.before = self.snapshots.flush  # it refers to snapshots, which must be on the disk first
        self.status = self.judgement = ""
        self._asked: Callable[[], bool] = lambda: False
        self._since = time.perf_counter()
        self.saved = 0  # the newest step that was handed to the writer

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the state of the checkpoint."""
        rank, device = self.ranks.rank, self.masters.device
        own = checkpoint.facts(rank)
        facts = own or checkpoint.facts()
        kinds = {kind: checkpoint.whole(kind) for kind in checkpoint.kinds() if kind not in OWN}
        if kinds["weights"].keys() != renamed(kinds["weights"], self.masters.names).keys():
            kinds = {kind: renamed(tensors, self.masters.names) for kind, tensors in kinds.items()}
        self.masters.resume(kinds)
        self.progress, self.saved = Progress(**facts["progress"]), checkpoint.step
        self.pace.resume(facts.get("pace"))
        over = self.pace.look(self.progress.step, max(facts["seconds"], self.progress.seconds))
        if not (self._out_of_patience() or over):  # the run may have been given more time
            self.progress.stopped = None
        self.health.record = Record(**facts["health"])
        sums = [checkpoint.own("meter", other) for other in range(facts["processes"])]
        self.meter.resume(facts["meter"], sums, device)
        self.meter.tokens = facts["meter_tokens"]
        if OBJECTIVE in checkpoint.kinds():
            self.objective.resume(checkpoint.own(OBJECTIVE, rank))
        if TASK in checkpoint.kinds():
            self.restore(checkpoint.own(TASK, rank))
        if own:
            put_states(device, own["random"], checkpoint.own("random", rank))
        else:  # an additional process: a seed that no other has had
            torch.manual_seed(process_seed(self.run.engine.seed, rank, checkpoint.step))
        if self.ranks.first:
            self.snapshots.resume(facts["snapshots"], facts["best_snapshot"], checkpoint.step)
            self.log.cut_back(facts["log"], facts["seconds"], checkpoint.step)

    def save(self) -> None:
        """Take a checkpoint, written in the background; all processes do it at the same step."""
        progress = self._clocked()
        random_facts, states = take_states(self.masters.device)
        position = -1
        with unless_full():
            position = self.log.position() if self.ranks.first else 0
        if self.ranks.any(position < 0):
            self.log.say(f"no checkpoint at step {progress.step:,}: no room left on the disk; training continues")
            return
        facts = {
            "progress": asdict(progress),
            "health": asdict(self.health.record),
            "meter": self.meter.names,
            "meter_tokens": self.meter.tokens,
            "pace": self.pace.state(),
            "random": random_facts,
            "snapshots": self.snapshots.regular,
            "best_snapshot": self.snapshots.best,
            "log": position,
            "seconds": self.log.seconds,
            "processes": self.ranks.count,
            **self.identity,
        }
        files = {"meter": self.meter.sums, "random": states}
        if kept := self.objective.carried():
            files[OBJECTIVE] = kept
        if kept := self.carried():
            files[TASK] = kept
        if self.ranks.first or self.masters.sharded:
            files |= self.masters.state()
        self.checkpoints.save(progress.step, files, self.masters.shards(), facts)
        self.saved = progress.step

    def fit(self, batches: Iterator[Batch]) -> Progress:
        """Train to the run's last step, or until patience or time ends; `batches` start at the step after the last."""
        self.objective.train()
        engine, progress, began = self.run.engine, self.progress, self.progress.step
        self.meter.started = self._since = time.perf_counter()
        with self.stop, self.log.bar("training", engine.steps, " steps") as show:
            while progress.step < engine.steps and not progress.stopped:
                before = time.perf_counter()
                self.advance(next(batches))
                spent = time.perf_counter() - before
                if progress.step == began + 1 and spent > WARM_UP:  # it may compile
                    self.log.say(
                        f"the first step took {spoken(spent)} (warm-up); new shapes of batches may take some more"
                    )
                show(progress.step, self.status, self.pace.steps)
                if self._stop_now():
                    self._interrupt()
            self.checkpoints.writer.wait()
            if self.stop.asked and self.ranks.count == 1:
                self._interrupt()
        return self._clocked()

    def _clocked(self) -> Progress:
        now = time.perf_counter()
        self.progress.seconds += now - self._since
        self._since = now
        return self.progress

    def advance(self, batch: Batch) -> None:
        """One step, and whatever is due after it."""
        engine, progress = self.run.engine, self.progress
        progress.step += 1
        step, last = progress.step, progress.step == engine.steps
        if self.gauge:
            self.gauge.measure(batch)
        rate = self.run.schedule.rate(step, self.pace.steps)
        self.masters.set_rate(rate)
        sums = self.step_once(batch, engine.accumulate)
        self.meter.add(sums, batch.tokens)
        self.health.add(step, batch.examples, sums["bad"])
        progress.tokens += batch.tokens
        logged = step % engine.log == 0
        if (logged or self.pace.due(step)) and not last and self._out_of_time():
            progress.stopped, last = f"{spoken(engine.seconds)} are over, the last scoring included", True
        if logged or last:
            self._report(rate)
        if step % engine.snapshot == 0 or last:
            self._snapshot(self.snapshots.save)
        judged = self.run.validation
        due = step % judged.every == 0 or step % judged.score_every == 0
        if last or (due and self.pace.may_validate(self.log.seconds)):
            paused = time.perf_counter()
            scored = last or step % judged.score_every == 0
            self._judge(scored)
            spent = time.perf_counter() - paused
            self.meter.started += spent
            self.pace.validated(spent, scored)
            if not last:
                self.pace.look(step, self.log.seconds)
        if step % engine.checkpoint == 0 or last or progress.stopped:
            self._checkpoint(must=last or bool(progress.stopped))

    def _report(self, rate: float) -> None:
        """Log the means of the last steps, and check whether the run still learns."""
        step = self.progress.step
        self._read_health()
        values = self.meter.read()
        figures = self.gauge.read(values["tokens_per_second"]) if self.gauge else {}
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self.log.event("train", step, rate=rate, tokens=self.progress.tokens, **known, **figures)
        speed, use = f"{values['tokens_per_second']:,.0f} {self.unit}/s", words(figures) if figures else ""
        self.status = "  ".join(filter(None, (f"loss {values['loss']:.3f}", self.judgement, speed, use)))
        try:
            self.health.judge(step, values["loss"], values.get("nll", values["loss"]))
        except Diverged as error:
            self._give_up(error, self.health.record.well)

    def _read_health(self) -> None:
        """Report the batches that were skipped since the last time."""
        found = self.health.read()
        for skipped in found:
            text = self.shown(skipped.examples[0]) if skipped.examples else ""
            numbers = [example + 1 for example in skipped.examples]
            self.log.event("skipped", skipped.step, examples=numbers, first=text)
            first = f", the first: {text}" if text else ""
            self.log.say(f"loss or gradient not finite, batch skipped: {skipped}{first}")
        try:
            self.health.count(found)
        except Diverged as error:
            self._give_up(error, self.progress.step)  # a skipped step has changed nothing

    def _give_up(self, error: Diverged, well: int) -> None:
        """End the run. Checkpoints after the step `well`, the last good one, are set aside."""
        self.checkpoints.writer.wait()
        if self.ranks.first:
            self.checkpoints.set_aside_after(well)
        newest = self.checkpoints.steps()
        kept = f"the last good checkpoint is that of step {newest[-1]:,}" if newest else "there is no checkpoint yet"
        raise Diverged(f"{error} ({kept})") from None

    def _snapshot(self, keep: Callable[[int, dict[str, Tensor]], None]) -> None:
        with self.masters.judged():
            weights = self.masters.named()  # all processes: a sharded weight is put together
            if self.ranks.first:
                keep(self.progress.step, weights)

    def _judge(self, scored: bool) -> None:
        """Validate, and keep the best score and how long ago it was."""
        step, progress = self.progress.step, self.progress
        with self.masters.judged():
            self._read_health()
            score, values = self.validate(scored)
            example = self.example() if self.ranks.first else ""
            self.objective.train()
            self.judgement = f"valid {values['loss']:.3f}"
            self.log.event("validation", step, **values)
            self.log.say(f"step {step:,}: " + ", ".join(f"{name} {value:.3f}" for name, value in values.items()))
            if changed := self.objective.follow(values["loss"]):
                self.log.say(changed)
            if example:
                self.log.event("example", step, text=example)
                self.log.say(f"  {example}")
            if score is not None:
                self.judgement += f", score {score:.2f}"
                progress.scores.append(score)
                progress.since_best += 1
                if score > progress.best:
                    progress.best, progress.best_step, progress.since_best = score, step, 0
                    self._snapshot(self.snapshots.keep_best)
                elif self._out_of_patience():
                    progress.stopped = f"no better score since step {progress.best_step:,}"
        if progress.scores and self.masters.follow_scores(progress.scores):
            progress.since_best = 0
            self.log.say("no better for some time: from now on the mean of the weights is judged and kept")

    def _out_of_patience(self) -> bool:
        return 0 < self.run.validation.patience <= self.progress.since_best

    def _out_of_time(self) -> bool:
        if self.run.engine.seconds and self.masters.device.type == "cuda":
            torch.cuda.synchronize(self.masters.device)  # measure finished steps, not launched ones
        return self.pace.look(self.progress.step, self.log.seconds)

    def _checkpoint(self, must: bool) -> None:
        """Take a checkpoint, unless the last one is still being written or the loss has diverged."""
        self._read_health()
        if not self.health.sound and not must:
            self.log.say(f"no checkpoint at step {self.progress.step:,}: the loss has diverged; the earlier ones stay")
            return
        busy = self.ranks.any(self.checkpoints.unwritten > 0)
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
        """Whether any process was asked to stop; the answer to the question of one step comes after the next."""
        answer, self._asked = self._asked(), self.ranks.any_later(self.stop.asked)
        return answer if self.ranks.count > 1 else self.stop.asked

    def _interrupt(self) -> None:
        step = self.progress.step
        if self.saved < step:
            self._read_health()
            self.checkpoints.writer.wait()
            self.save()
        self.checkpoints.writer.wait()
        self.ranks.barrier()  # the launcher ends all when the first has left: not before the checkpoint is sealed
        saved = "with a checkpoint" if step in self.checkpoints.steps()[-1:] else "its checkpoint could not be written"
        raise Interrupted(f"stopped after step {step:,} of {self.run.engine.steps:,}, {saved}")


OBJECTIVE = "carried"  # what the objective takes over from step to step
TASK = "task"  # what the task does
OWN = ("meter", "random", OBJECTIVE, TASK)  # kinds of tensors that each process keeps for itself
