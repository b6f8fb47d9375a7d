"""A training job of any kind: from a run to a model folder with its score.

What a kind of model says for itself (its data, its batches, how it is judged) is a subclass of `Job`; everything else
is here once.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headway.device import choose
from headway.errors import InputError
from headway.folder import Card, write_model
from headway.plain import to_plain
from headway.text.tokenizer import Tokenizer
from headway.train.checkpoint import Checkpoint, Checkpoints
from headway.train.gauge import Gauge
from headway.train.log import Log
from headway.train.loop import Interrupted, Progress, Training, prefetch
from headway.train.objective import CarriedObjective
from headway.train.optimiser import Masters, freeze
from headway.train.parallel.processes import Shared, joined, recompute_blocks, shard_rows
from headway.train.parallel.ranks import Ranks
from headway.train.pretrained import fill_from_model, fill_from_vectors, starts_from_vectors
from headway.train.random_states import process_seed
from headway.train.run import Run, write_run
from headway.train.sealed import Broken
from headway.train.snapshots import Snapshots, Weights
from headway.train.step import GraphStep, TrainStep, compiled
from headway.train.writer import Writer

SMALL = 20_000_000  # parameters up to which launching kernels costs more than running them


@dataclass
class Outcome:
    """What a run came to. `scores` holds validation and, where there is test data, test figures."""

    folder: Path
    scores: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Desk:
    """Where a job works and whom it talks to. `resumed`: vocabularies and held-out text are there already."""

    out: Path
    log: Log
    device: torch.device
    dtype: torch.dtype
    ranks: Ranks
    writer: Writer
    checkpoints: Checkpoints
    download: bool
    resumed: bool


OpenJob = Callable[[Run, Desk], "Job"]


def train(
    run: Run, out: Path, log: Log, open_job: OpenJob, *, download: bool = False, resume: bool = False
) -> Outcome:  # fmt: skip
    """The whole trip. `out` gets run.json, log.jsonl, checkpoints, snapshots and the model; it is empty, or, to
    `resume`, holds what an earlier start of the same run has left."""
    started = time.perf_counter()
    device, dtype = choose(run.engine.device, run.engine.dtype)
    with joined(device) as ranks:
        if not ranks.first:
            log = Log(quiet=True)
            warnings.simplefilter("ignore")  # those that matter the first has too
        make_deterministic(run.engine.deterministic)
        job = _prepare(run, out, log, open_job, download, ranks.tell(resume), device, dtype, ranks)
        try:
            progress = job.fit()
            job.desk.writer.close()
        except Interrupted as error:
            log.say(str(error))
            job.desk.writer.close()
            job.training.stop.leave()
            raise
        except Exception:  # not a second Ctrl-C, which waits for nothing
            job.training.checkpoints.hurry()
            job.desk.writer.close()
            raise
        if progress.stopped:
            log.say(f"stopped at step {progress.step:,}: {progress.stopped}")
        scores = job.finish(out / "model", progress) if ranks.first else {}
        ranks.meet()
        return Outcome(out / "model", scores, time.perf_counter() - started)


def _prepare(
    run: Run, out: Path, log: Log, open_job: OpenJob, download: bool, resume: bool, device: torch.device,
    dtype: torch.dtype, ranks: Ranks,
) -> Job:  # fmt: skip
    """Data, model and, where there is one, the newest checkpoint: ready to train from there."""
    writer = Writer()
    checkpoints = Checkpoints(
        out / "checkpoints", run.engine.keep, run.engine.keep_every,
        writer=writer, say=log.say, rank=ranks.rank, processes=ranks.count,
    )  # fmt: skip
    found = None
    if resume:
        # One looks, verifies and sets aside; the others take what it found.
        step = ranks.tell(newest.step if ranks.first and (newest := checkpoints.newest()) else 0)
        found = Checkpoint(checkpoints.place(step)) if step else None
    if found:
        log.go_on()
        log.say(f"going on from step {found.step:,}")
    elif ranks.first:
        write_run(run, out / "run.json")
        if resume:
            log.say("there is no checkpoint to go on from: starting again")
            for left in ("snapshots", "tensorboard"):
                shutil.rmtree(out / left, ignore_errors=True)
    known = found is not None or not ranks.first
    job = open_job(run, Desk(out, log, device, dtype, ranks, writer, checkpoints, download, known))
    parameters = sum(p.numel() for p in job.plain_model.parameters())
    how = f", {ranks.count} processes ({run.engine.parallel})" if ranks.count > 1 else ""
    kind = str(dtype).removeprefix("torch.")
    log.say(f"{parameters:,} parameters on {_name(device)}{how}, {kind}, speed {job.speed}")
    log.event("start", parameters=parameters, device=_name(device), dtype=str(dtype), speed=job.speed)
    if found:
        job.go_on(found)
        if ranks.first:
            write_run(run, out / "run.json")
    return job


def make_deterministic(wanted: bool) -> None:
    """Only algorithms that give the same bits each time; those of cuBLAS are chosen by a variable."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted, warn_only=True)


def fresh_model(run: Run, desk: Desk, build: Callable[[], Any], tokenizers: tuple[Tokenizer, ...]) -> Any:
    """The model at its start, the same in every process; then chance goes its own way in each.

    `tokenizers` say which row of its tables is which word, for a file of word vectors to start from."""
    torch.manual_seed(run.engine.seed)
    model = build()
    if starts_from_vectors(run):
        fill_from_vectors(model, tokenizers, Path(run.init), desk.log.say)
    elif run.init:
        fill_from_model(model, run.init)
    if desk.ranks.count > 1:
        torch.manual_seed(process_seed(run.engine.seed, desk.ranks.rank))
    return model.to(desk.device, desk.dtype)


class Job:
    """Abstract. A run in progress. A subclass makes its batches, calls `begin`, and answers what is asked below."""

    training: Training

    def __init__(self, run: Run, desk: Desk, model: Any, card: Card, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
        self.run, self.desk, self.card, self.tokenizers = run, desk, card, tokenizers
        self.device, self.log, self.ranks = desk.device, desk.log, desk.ranks
        freeze(model, run.engine.frozen)
        self.plain_model = model  # what is judged and kept: the model itself, or a twin of one that is sharded
        sharded = self.ranks.count > 1 and run.engine.parallel == "fsdp"
        if sharded:
            model = copy.deepcopy(model)
        self.objective = run.objective.build(model)
        self.judged = run.objective.build(self.plain_model) if sharded else self.objective
        self.shared: Any = self.objective
        if run.engine.recompute:
            recompute_blocks(self.objective)
        if self.ranks.count > 1:
            if sharded:
                shard_rows(self.objective)
            self.shared = Shared(self.objective, run.engine.parallel, self.ranks, self.device)
        self.masters = Masters(
            model.named_parameters(), run.optimiser, run.engine.clip, self.ranks, run.engine.rates
        )  # fmt: skip
        self.speed = run.engine.speed if run.engine.speed != "auto" else self._speed()
        self.snapshots = Snapshots(
            desk.out / "snapshots", run.engine.average, writer=desk.writer, say=self.log.say
        )  # fmt: skip
        self.snapshots.needed = desk.checkpoints.needed_snapshots

    def begin(self, data: dict[str, str], guess: float) -> None:
        """`data` names what the run learns from, `guess` is the nll of knowing only how frequent a token is."""
        gauge = Gauge(self.judged, self.device, self.desk.dtype, self.ranks.count) if self.ranks.first else None
        self.training = Training(
            self.run, self.objective, self.masters, self._step(self.shared), self.validate, self.desk.checkpoints,
            self.snapshots, self.log, ranks=self.ranks, identity={"run": to_plain(self.run), "data": data},
            guess=guess, shown=self.shown, gauge=gauge,
        )  # fmt: skip

    # What a subclass says.

    figure, digits = "", 2  # the name of its score, and how it is written

    def batch(self, step: int) -> Any:
        """The batch of any step, counted from 0."""
        raise NotImplementedError

    def ready(self, batch: Any) -> Any:
        """For a GPU: in pinned memory, in one of few shapes."""
        return batch.map(Tensor.pin_memory)

    def valid_batches(self) -> Iterable[Any]:
        raise NotImplementedError

    def score(self, losses: dict[str, float] | None = None) -> float:
        """Of the weights as they are, on the validation data; higher is better. `losses` are `valid_losses` of them,
        where these were made already."""
        raise NotImplementedError

    def shown(self, example: int) -> str:
        """An example's text, for a line that names it."""
        raise NotImplementedError

    def test_scores(self) -> dict[str, Any]:
        """The chosen model on the test data, once, at the very end."""
        return {}

    def said(self, score: float) -> float:
        """A score as a person knows it (a loss is better when it is lower)."""
        return score

    # The same for all.

    def _speed(self) -> str:
        if self.device.type == "cpu":
            return "plain"
        # A recurrent layer is one kernel already: around it there is little to compile.
        carries = isinstance(self.objective, CarriedObjective)
        small = carries or sum(weight.numel() for weight in self.masters.weights) <= SMALL
        if small and self.run.engine.accumulate == 1 and self.ranks.count == 1:
            return "graphs"
        return "plain" if carries else "compile"

    def _step(self, objective: Any) -> Any:
        """How a step is taken: each process of several launches its own, compiled where that was asked for."""
        if self.speed == "compile":
            if isinstance(objective, Shared):
                objective.module = compiled(objective.module)
            else:
                objective = compiled(objective)
        graphs = self.device.type == "cuda" and self.speed != "plain" and self.ranks.count == 1
        return (GraphStep if graphs else TrainStep)(objective, self.masters)

    def go_on(self, checkpoint: Checkpoint) -> None:
        facts = checkpoint.facts() or {}
        if facts["data"] != self.training.identity["data"]:
            raise InputError(
                f"the text or its vocabulary is not what it was at step {checkpoint.step:,}: put it back as it was, "
                "or start again with --overwrite"
            )
        if self.run.engine.steps < checkpoint.step:
            raise InputError(
                f"the run is at step {checkpoint.step:,} already: engine.steps cannot be {self.run.engine.steps:,}"
            )
        self.training.go_on(checkpoint)

    def fit(self) -> Progress:
        makers = (partial(self.batch, step) for step in itertools.count(self.training.progress.step))
        ready = self.ready if self.device.type == "cuda" else lambda batch: batch
        return self.training.fit(prefetch(makers, ready, self.run.engine.workers))

    @torch.no_grad()
    def validate(self, with_score: bool) -> tuple[float | None, dict[str, float]]:
        """Loss and perplexity on all validation data and, if asked for, the score; of several processes the first
        does it, and tells the others."""
        if self.judged is not self.objective:
            weights = self.masters.named()
            if self.ranks.first:
                self._use(weights)
        return self.ranks.tell(self._validate(with_score) if self.ranks.first else None)

    def _validate(self, with_score: bool) -> tuple[float | None, dict[str, float]]:
        values = self.valid_losses()
        if not with_score:
            return None, values
        score = self.score(values)
        return score, values | {self.figure.lower(): self.said(score)}

    @torch.no_grad()
    def valid_losses(self) -> dict[str, float]:
        self.judged.eval()
        sums: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for batch in self.valid_batches():
            for name, (value, _) in self.judged(batch.map(lambda tensor: tensor.to(self.device))).items():
                sums[name] += float(value)  # type: ignore[assignment]
                counts[name] += float(batch.counts[name])  # type: ignore[assignment]
        means = {name: value / counts[name] for name, value in sums.items()}
        return {"loss": means["loss"], "perplexity": math.exp(min(means["nll"], 700))}

    def finish(self, place: Path, progress: Progress) -> dict[str, Any]:
        """Choose the weights, score them, write the model."""
        weights, chosen, score = self.choose_weights(progress)
        best = round(self.said(score), self.digits)
        scores = {f"validation {self.figure}": best, "weights": chosen} | self.test_scores()
        scores |= {"steps": progress.step, "training seconds": round(progress.seconds, 1)}
        self.card.score = scores
        self.log.event("end", progress.step, **scores)
        self.log.position()  # the log is whole before there is a model that says the run is finished
        write_model(place, weights, self.card, self.tokenizers)
        return scores

    def choose_weights(self, progress: Progress) -> tuple[Weights, str, float]:
        """The average or the best snapshot, whichever scores better on the validation data."""
        scored = []
        for name, weights in self._candidates(progress):
            self._use(weights)
            scored.append((self.score(), name, weights))
            value = self.said(scored[-1][0])
            self.log.say(f"validation {self.figure} {value:.{self.digits}f}: {name}")
            self.log.event("candidate", None, **{self.figure.lower(): value, "weights": name})
        score, name, weights = max(scored, key=lambda item: item[0])
        self._use(weights)
        return weights, name, score

    def _candidates(self, progress: Progress) -> list[tuple[str, Weights]]:
        found: list[tuple[str, Weights]] = []
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

    def _use(self, weights: Weights) -> None:
        self.judged.eval()
        with torch.no_grad():
            for name, parameter in self.plain_model.named_parameters():
                parameter.copy_(weights[name])


def entropy(counts: npt.NDArray[np.int64]) -> float:
    """−Σ p log p: the mean loss, per token, of knowing nothing but how frequent each is."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
