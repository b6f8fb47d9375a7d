"""A training job: from a run to a model folder with its score. The task gives data, model, objective and figures."""

from __future__ import annotations

import copy
import itertools
import math
import os
import shutil
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.batch import Batch
from headway.device import choose
from headway.durations import spoken
from headway.errors import InputError, refuse
from headway.folder import weights_of
from headway.models.format_1 import renamed
from headway.nn.weights import buffers_of, kept_tensors
from headway.plain import to_plain
from headway.random_states import put_states, take_states
from headway.tasks.start import RunContext
from headway.tasks.task import Task
from headway.train.adapters import finished
from headway.train.checkpoint import Checkpoint, Checkpoints
from headway.train.gauge import Gauge
from headway.train.health import Diverged
from headway.train.log import Log
from headway.train.loop import Interrupted, Progress, Training, prefetch
from headway.train.optimiser import Masters
from headway.train.parallel.processes import joined, recompute_blocks, shared
from headway.train.run import Run, write_run
from headway.train.sealed import Broken
from headway.train.selection import choose_trained, counts, decays_of, rates_of
from headway.train.snapshots import Snapshots
from headway.train.step import GraphStep, TrainStep, compiled
from headway.train.writer import Named, Writer

EXAMPLE = 200  # characters of an example that a validation shows
SMALL = 20_000_000  # parameters up to which launching kernels costs more than running them
SHORT = (
    1e16  # operations of a whole run up to which compiling its steps costs more time than it saves: about a minute's
)


def best_speed(device: str, weights: int, tokens: int, *, whole: bool, small_kernels: bool) -> str:
    """What `auto` means for a run that trains so many weights by so many tokens. whole: one process, one part a step.
    small_kernels: a recurrent layer is one kernel already, and around it there is little to compile."""
    if device == "cpu":
        return "plain"
    small = small_kernels or weights <= SMALL or 6 * weights * tokens <= SHORT
    return "graphs" if small and whole else "plain" if small_kernels else "compile"


@dataclass
class Outcome:
    """The result of a run. `scores`: validation figures and, where there is test data, test figures."""

    folder: Path
    scores: dict[str, Any]
    seconds: float


def train(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    """From a run to a model folder with its score. `out` gets run.json, log.jsonl, checkpoints, snapshots and the
    model; it is empty, or, to `resume`, holds what an earlier start of the same run has left."""
    started = time.perf_counter()
    device, dtype = choose(run.engine.device, run.engine.dtype)
    with joined(device) as ranks:
        if not ranks.first:
            log = Log(quiet=True)
            warnings.simplefilter("ignore")  # the first process shows them
        if run.engine.deterministic:  # cuBLAS chooses its algorithms by a variable
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(run.engine.deterministic, warn_only=True)
        context = RunContext(out, log, device, dtype, ranks, download, ranks.broadcast(resume))
        scores = _at_once(run, context) if run.objective.one_pass else _in_steps(run, context)
        return Outcome(out / "model", scores, time.perf_counter() - started)


def _at_once(run: Run, context: RunContext) -> dict[str, Any]:
    """Train a model that is learned in one pass; there is nothing to resume."""
    write_run(run, context.out / "run.json")
    task = run.task(run, context)
    scores = task.learn_at_once()
    _start_event(context, task, 0, "plain")
    _write(context, task, weights_of(task.model), scores)
    return scores


def _in_steps(run: Run, context: RunContext) -> dict[str, Any]:
    job = _prepare(run, context)
    log, ranks, training = context.log, context.ranks, job.training
    if run.engine.seconds:
        job.keep_to_time()
    try:
        numbers = itertools.count(training.progress.step)
        ahead = not job.task.acts
        progress = training.fit(prefetch(job.batch, numbers, run.engine.workers) if ahead else map(job.batch, numbers))
        job.checkpoints.writer.close()
    except Interrupted as error:
        log.say(str(error))
        job.checkpoints.writer.close()
        training.stop.leave()
        raise
    except Exception:  # not a second Ctrl-C, which waits for nothing
        job.checkpoints.hurry()
        job.checkpoints.writer.close()
        raise
    if progress.stopped:
        log.say(f"stopped at step {progress.step:,}: {progress.stopped}")
    scores: dict[str, Any] = ranks.broadcast(job.finish(progress) if ranks.first else {})
    return scores


def _prepare(run: Run, context: RunContext) -> Job:
    """Data, model and, where there is one, the newest checkpoint: ready to train from there."""
    out, log, ranks = context.out, context.log, context.ranks
    checkpoints = Checkpoints(
        out / "checkpoints", run.engine.keep, run.engine.keep_every,
        writer=Writer(), say=log.say, rank=ranks.rank, processes=ranks.count,
    )  # fmt: skip
    found = None
    if context.resumed:
        # The first process verifies the checkpoints; the others use the one that it found.
        step = ranks.broadcast(newest.step if ranks.first and (newest := checkpoints.newest()) else 0)
        found = Checkpoint(checkpoints.place(step)) if step else None
    if found:
        log.resume()
        log.say(f"resuming from step {found.step:,}")
    elif ranks.first:
        write_run(run, out / "run.json")
        if context.resumed:
            log.say("there is no checkpoint to resume from: starting again")
            for left in ("snapshots", "tensorboard"):
                shutil.rmtree(out / left, ignore_errors=True)
    task = run.task(run, replace(context, resumed=found is not None or not ranks.first))
    job = Job(run, context, task, checkpoints)
    how = f", {ranks.count} processes ({run.engine.parallel})" if ranks.count > 1 else ""
    parameters, trained = counts(job.plain_model)
    kind = str(context.dtype).removeprefix("torch.")
    some = "" if trained == parameters else f", {trained:,} of them trained ({100 * trained / parameters:.3g} %),"
    log.say(f"{parameters:,} parameters{some} on {_name(context.device)}{how}, {kind}, speed {job.speed}")
    _start_event(context, task, parameters, job.speed, trained)
    if found:
        job.resume(found)
        if ranks.first:
            write_run(run, out / "run.json")
    return job


def _start_event(context: RunContext, task: Task, parameters: int, speed: str, trained: int = 0) -> None:
    """The first event of a log: what is trained where, and which figure tables show."""
    figure, higher = task.headline_of(task.run)
    context.log.event(
        "start", parameters=parameters, trained=trained, device=_name(context.device), dtype=str(context.dtype),
        speed=speed, figure=figure, higher_is_better=higher, verb=task.verb, unit=task.unit,
    )  # fmt: skip


def _write(context: RunContext, task: Task, weights: Named, scores: dict[str, Any], step: int | None = None) -> None:
    context.log.event("end", step, **scores)
    context.log.position()  # the log is complete before the model marks the run as finished
    task.write(context.out / "model", weights, scores)


class Job:
    """A run in progress: a task's data and model, and all that trains them."""

    def __init__(self, run: Run, context: RunContext, task: Task, checkpoints: Checkpoints) -> None:
        self.run, self.context, self.task, self.checkpoints = run, context, task, checkpoints
        self.device, self.log, self.ranks = context.device, context.log, context.ranks
        model = self.plain_model = task.model  # what is validated and written: the model, or a copy of a sharded one
        choose_trained(model, run)
        sharded = self.ranks.count > 1 and run.engine.parallel == "fsdp"
        if sharded:
            model = copy.deepcopy(model)
        self.objective = run.objective.build(model)
        self.judged = run.objective.build(self.plain_model) if sharded else self.objective
        if run.engine.recompute:
            recompute_blocks(self.objective)
        alone = self.ranks.count == 1
        wrapped = self.objective if alone else shared(self.objective, run.engine.parallel, self.device)
        self.masters = Masters(
            model.named_parameters(), run.optimiser, run.engine.clip, self.ranks,
            rates_of(model, run.engine), buffers_of(model), decays_of(model, run.engine),
        )  # fmt: skip
        own = self.objective.step(self.masters)
        plain = own or not self.objective.capturable
        self.speed = "plain" if plain else run.engine.speed if run.engine.speed != "auto" else self._speed()
        folder, writer = context.out / "snapshots", checkpoints.writer
        self.snapshots = Snapshots(folder, run.engine.average, writer=writer, say=self.log.say)
        self.snapshots.needed = checkpoints.needed_snapshots
        counted = self.ranks.first and not own
        gauge = Gauge(self.judged, self.device, context.dtype, self.ranks.count) if counted else None
        self.training = Training(
            run, self.objective, self.masters, own or self._step(wrapped), self.validate, checkpoints,
            self.snapshots, self.log, identity={"run": to_plain(run), "data": task.data_names},
            guess=task.guess(), shown=task.shown, gauge=gauge, unit=task.unit, example=self.example,
            carried=task.carried, restore=task.resume,
        )  # fmt: skip

    def _speed(self) -> str:
        engine = self.run.engine
        return best_speed(
            self.device.type, sum(weight.numel() for weight in self.masters.weights), engine.batch * engine.steps,
            whole=engine.accumulate == 1 and self.ranks.count == 1, small_kernels=self.objective.small_kernels,
        )  # fmt: skip

    def _step(self, objective: Any) -> Any:
        """The step function: plain, captured, compiled, or both."""
        if self.speed == "compile":
            objective = compiled(objective)
        graphs = self.device.type == "cuda" and self.speed != "plain" and self.ranks.count == 1
        return (GraphStep if graphs else TrainStep)(objective, self.masters)

    def resume(self, checkpoint: Checkpoint) -> None:
        if checkpoint.facts()["data"] != self.training.identity["data"]:
            raise InputError(
                f"the data or their vocabulary have changed since step {checkpoint.step:,}: restore them, "
                "or choose another --out"
            )
        steps, step = self.run.engine.steps, checkpoint.step
        refuse(steps < step, f"the run is at step {step:,} already: engine.steps cannot be {steps:,}")
        self.training.resume(checkpoint)

    def batch(self, step: int) -> Batch:
        batch = self.task.batch(step)
        return batch.map(Tensor.pin_memory) if self.device.type == "cuda" else batch

    @torch.no_grad()
    def validate(self, with_score: bool) -> tuple[float | None, dict[str, float]]:
        """The losses on all validation data and, if asked for, the score (higher is better); of several processes the
        first computes them for all."""
        if self.judged is not self.objective:
            weights = self.masters.named()
            if self.ranks.first:
                self._use(weights)
        score, values = None, dict[str, float]()
        if self.ranks.first:
            self.judged.eval()
            losses = self.task.valid_losses(self.judged)
            values = self.task.shown_losses(losses)
            if with_score:
                name, figure = self.task.judge(losses)
                score, values = figure.score, values | {name.lower(): figure.value}
        return self.ranks.broadcast((score, values))

    @torch.no_grad()
    def example(self) -> str:
        """The task's example of what the model gives; the random generators stay as they were."""
        facts_and_states = take_states(self.device)
        self.judged.eval()
        try:
            return " ".join(self.task.example().split())[:EXAMPLE]
        finally:
            put_states(self.device, *facts_and_states)

    def keep_to_time(self) -> None:
        """Time the scoring, where the run has a time limit, and say how the time is divided."""
        pace, prepared = self.training.pace, self.log.seconds
        if not pace.times:
            pace.measure(self._timed_scoring, 2 if self.run.engine.average > 1 else 1)
        self.task.share = pace.share
        sample = "" if pace.share == 1 else f", on {100 * pace.share:.2g} % of the validation and test data"
        self.log.say(
            f"of {spoken(pace.seconds)}, preparing took {spoken(prepared)}; {spoken(pace.reserve)} are kept for the "
            f"last scoring{sample}"
        )
        self.log.event("time", seconds_allowed=pace.seconds, reserve=pace.reserve, share=pace.share)

    def _timed_scoring(self, share: float) -> tuple[float, float]:
        """Seconds of a validation and of the final figures on a share of their data."""
        self.task.share, facts_and_states = share, take_states(self.device)
        began = time.perf_counter()
        with self.masters.judged():
            self.validate(True)
        validated = time.perf_counter()
        if self.ranks.first:
            with torch.no_grad():
                self.task.final_figures()
        put_states(self.device, *facts_and_states)
        return validated - began, time.perf_counter() - validated

    @torch.no_grad()
    def finish(self, progress: Progress) -> dict[str, Any]:
        """Choose the average or the best snapshot, whichever scores better on the validation data, and write it."""
        scored, sane = [], []
        for chosen, weights in self._candidates(progress):
            self._use(weights)
            losses = self.task.valid_losses(self.judged)
            name, figure = self.task.judge(losses)
            scored.append((figure, name, chosen, weights))
            sane.append(all(map(math.isfinite, losses.values())))
            self.log.say(f"validation {name} {figure}: {chosen}")
            self.log.event("candidate", None, **{name.lower(): figure.value, "weights": chosen})
        figure, name, chosen, weights = max(scored, key=lambda found: found[0].score)
        if not any(sane) or not all(torch.isfinite(weight).all() for weight in weights.values()):
            raise Diverged("weights or losses are not finite at the end: no model is written; a lower rate may help")
        self._use(weights)
        scores = {f"validation {name}": round(figure.value, figure.digits), "weights": chosen}
        scores |= self.task.final_figures()
        if self.task.share < 1:
            scores["share scored"] = round(self.task.share, 6)
        scores["steps"] = progress.step
        if epochs := round(self.task.epochs(progress.step), 3):  # 0 where the data has no end
            scores["epochs"] = epochs
        scores |= {"training seconds": round(progress.seconds, 1)}
        _write(self.context, self.task, finished(self.plain_model, weights, self.run), scores, progress.step)
        return scores

    def _candidates(self, progress: Progress) -> list[tuple[str, Named]]:
        found: list[tuple[str, Named]] = []
        try:
            found.append((f"step {progress.best_step}", self.snapshots.load(progress.best_step)))
        except Broken as error:
            self.log.say(f"the best snapshot, of step {progress.best_step:,}, is broken ({error})")
        # A run that patience ended early may have no regular snapshot yet.
        if (self.run.engine.average > 1 or not found) and self.snapshots.regular:
            mean, steps = self.snapshots.average(self.run.engine.average)
            if steps:
                found.append((f"mean of the last {len(steps)} snapshots (steps {steps[0]} to {steps[-1]})", mean))
        if not found:
            if self.masters.sharded:
                raise InputError(f"no snapshot of {self.snapshots.folder} can be read: train again with --overwrite")
            found.append((f"step {progress.step}", self.masters.named()))
        return found

    def _use(self, weights: Named) -> None:
        self.judged.eval()
        kept = kept_tensors(self.plain_model)
        weights = renamed(weights, kept)
        with torch.no_grad():
            for name, tensor in kept.items():
                tensor.copy_(weights[name])


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
