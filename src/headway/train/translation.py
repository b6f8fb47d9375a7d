"""Training a translator: from files and a run to a model folder with its score."""

from __future__ import annotations

import copy
import itertools
import math
import os
import shutil
import time
import warnings
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headway.data.batches import PairBatch, PairBatches, pad_rows
from headway.data.readers import read_pairs
from headway.device import choose
from headway.errors import InputError
from headway.evaluate.bleu import corpus_bleu
from headway.folder import WEIGHTS, Card, Loaded, find_model, load_weights, read_model, write_model
from headway.generate.translator import Translator
from headway.models.transformer import Transformer
from headway.plain import to_plain
from headway.train.chance import process_seed
from headway.train.checkpoint import Checkpoint, Checkpoints
from headway.train.corpus import Corpus, listed, open_corpus
from headway.train.gauge import Gauge
from headway.train.log import Log
from headway.train.loop import Interrupted, Progress, Training, prefetch
from headway.train.optimiser import Masters
from headway.train.parallel import Shared, joined, recompute_blocks, shard_rows
from headway.train.ranks import ALONE, Ranks
from headway.train.run import Run, write_run
from headway.train.sealed import Broken
from headway.train.snapshots import Snapshots, Weights
from headway.train.step import GraphStep, TrainStep, compiled
from headway.train.writer import Writer

SMALL = 20_000_000  # parameters up to which launching kernels costs more than running them


@dataclass
class Outcome:
    """What a run came to. `scores` holds validation and, where there are test pairs, test figures."""

    folder: Path
    scores: dict[str, Any]
    seconds: float


def train_translator(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    """The whole trip. `out` gets run.json, log.jsonl, checkpoints, snapshots and the model; it is empty, or, to
    `resume`, holds what an earlier start of the same run has left."""
    started = time.perf_counter()
    device, dtype = choose(run.engine.device, run.engine.dtype)
    with joined(device) as ranks:
        if not ranks.first:
            log = Log(quiet=True)
            warnings.simplefilter("ignore")  # those that matter the first has too
        resume = ranks.tell(resume)
        make_deterministic(run.engine.deterministic)
        job = _prepare(run, out, log, download, resume, device, dtype, ranks)
        try:
            progress = job.fit()
            job.writer.close()
        except Interrupted as error:
            log.say(str(error))
            job.writer.close()
            job.training.stop.leave()
            raise
        except Exception:  # not a second Ctrl-C, which waits for nothing
            job.training.checkpoints.hurry()
            job.writer.close()
            raise
        if progress.stopped:
            log.say(f"stopped at step {progress.step:,}: {progress.stopped}")
        scores = job.finish(out / "model", progress) if ranks.first else {}
        ranks.meet()
        return Outcome(out / "model", scores, time.perf_counter() - started)


def _prepare(
    run: Run, out: Path, log: Log, download: bool, resume: bool, device: torch.device, dtype: torch.dtype, ranks: Ranks
) -> TranslationJob:
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
    earlier = read_model(run.init) if run.init else None
    with ranks.in_turn():
        known = found is not None or not ranks.first
        corpus = open_corpus(run, out, log, download, earlier, known=known, split=ranks.first)
    torch.manual_seed(run.engine.seed)
    sizes = earlier.card.vocabularies if earlier else (len(corpus.tokenizers[0]), len(corpus.tokenizers[1]))
    model = Transformer(run.model, *sizes)
    if run.init:
        load_weights(model, find_model(run.init) / WEIGHTS)
    if ranks.count > 1:
        torch.manual_seed(process_seed(run.engine.seed, ranks.rank))
    card = Card(
        "transformer", run.model, sizes, earlier.card.text if earlier else run.data.text,
        run.data.source, run.data.target, to_plain(run.search), to_plain(run),
    )  # fmt: skip
    parameters = sum(p.numel() for p in model.parameters())
    job = TranslationJob(run, corpus, model.to(device, dtype), card, device, log, writer, checkpoints, out, ranks)
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


class TranslationJob:
    """A run in progress: its model, its batches, and how it is judged."""

    def __init__(
        self, run: Run, corpus: Corpus, model: Any, card: Card, device: torch.device, log: Log, writer: Writer,
        checkpoints: Checkpoints, out: Path, ranks: Ranks = ALONE,
    ) -> None:  # fmt: skip
        self.run, self.corpus, self.card, self.device, self.log = run, corpus, card, device, log
        self.writer, self.ranks = writer, ranks
        self.plain_model = model  # what is judged and kept: the model itself, or a twin of one that is sharded
        if ranks.count > 1 and run.engine.parallel == "fsdp":
            model = copy.deepcopy(model)
        self.objective = run.objective.build(model)
        self.judged = self.objective if model is self.plain_model else run.objective.build(self.plain_model)
        step_objective: Any = self.objective
        if run.engine.recompute:
            recompute_blocks(self.objective)
        if ranks.count > 1:
            if run.engine.parallel == "fsdp":
                shard_rows(self.objective)
            step_objective = Shared(self.objective, run.engine.parallel, ranks, device)
        self.masters = Masters(model.named_parameters(), run.optimiser, run.engine.clip, ranks)
        dtype = next(model.parameters()).dtype
        self.translator = Translator(Loaded(self.plain_model, card, *corpus.tokenizers), device, dtype)
        self.batches = PairBatches(corpus.train, run.engine.batch, run.engine.seed)
        self.valid_batches = PairBatches(corpus.valid, 4 * run.engine.batch, 0, shuffle=False)
        limit = run.validation.sentences or None
        self.valid_texts = tuple(side[:limit] for side in self.texts("valid"))
        # Read now: what is wrong with a test file should not be found out after hours of training.
        self.test_texts = self.texts("test") if corpus.files.get("test") else ([], [])
        self.speed = run.engine.speed if run.engine.speed != "auto" else self._speed()
        self.snapshots = Snapshots(out / "snapshots", run.engine.average, writer=writer, say=log.say)
        self.snapshots.needed = checkpoints.needed_snapshots
        stores = {"train": corpus.train.folder.name, "valid": corpus.valid.folder.name}
        identity = {"run": to_plain(run), "data": stores}
        self.training = Training(
            run, self.objective, self.masters, self._step(step_objective), self.validate, checkpoints,
            self.snapshots, log, ranks=ranks, identity=identity, guess=entropy(corpus.train.target_counts()),
            shown=self.source_text, gauge=Gauge(self.judged, device, dtype, ranks.count) if ranks.first else None,
        )  # fmt: skip

    def _speed(self) -> str:
        if self.device.type == "cpu":
            return "plain"
        small = sum(weight.numel() for weight in self.masters.weights) <= SMALL
        return "graphs" if small and self.run.engine.accumulate == 1 and self.ranks.count == 1 else "compile"

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
        self.training.go_on(checkpoint)

    def source_text(self, example: int) -> str:
        return self.corpus.tokenizers[0].decode(self.corpus.train.source(example).tolist())

    def fit(self) -> Progress:
        first = self.training.progress.step
        makers = (partial(self.batches.batch, step) for step in itertools.count(first))
        batches = prefetch(makers, self._ready, self.run.engine.workers)
        return self.training.fit(batches)

    def _ready(self, batch: PairBatch) -> PairBatch:
        """For a GPU: as many rows as every batch of these lengths has, in pinned memory."""
        if self.device.type == "cpu":
            return batch
        shape = (batch.source_BS.shape[1], batch.target_BT.shape[1])
        rows = next(b.rows for b in self.batches.buckets if (b.source_length, b.target_length) == shape)
        return pad_rows(batch, rows).map(Tensor.pin_memory)

    def finish(self, place: Path, progress: Progress) -> dict[str, Any]:
        """Choose the weights, score them, write the model."""
        weights, chosen, bleu = self.choose_weights(progress)
        scores = {"validation BLEU": round(bleu, 2), "weights": chosen} | self.test_scores()
        scores |= {"steps": progress.step, "training seconds": round(progress.seconds, 1)}
        self.card.score = scores
        self.log.event("end", progress.step, **scores)
        self.log.position()  # the log is whole before there is a model that says the run is finished
        write_model(place, weights, self.card, self.corpus.tokenizers)
        return scores

    @torch.no_grad()
    def validate(self, with_bleu: bool) -> tuple[float | None, dict[str, float]]:
        """Loss and perplexity on every validation pair and, if asked for, BLEU with the run's own search; of
        several processes the first does it, and tells the others."""
        if self.judged is not self.objective:
            weights = self.masters.named()
            if self.ranks.first:
                self._use(weights)
        return self.ranks.tell(self._validate(with_bleu) if self.ranks.first else None)

    def _validate(self, with_bleu: bool) -> tuple[float | None, dict[str, float]]:
        self.judged.eval()
        loss, nll, tokens = 0.0, 0.0, 0
        for batch in self.valid_batches.epoch():
            triples = self.judged(batch.map(lambda tensor: tensor.to(self.device)))
            loss += float(triples["loss"][0])
            nll += float(triples["nll"][0])
            tokens += batch.tokens
        values = {"loss": loss / tokens, "perplexity": math.exp(min(nll / tokens, 700))}
        if not with_bleu:
            return None, values
        bleu = self.bleu(*self.valid_texts)
        return bleu, values | {"bleu": bleu}

    def bleu(self, sources: list[str], references: list[str]) -> float:
        with self.log.bar("translating", len(sources), " sentences") as show:
            found = self.translator.translate_n(sources, progress=show)
        texts = [hypotheses[0].text if hypotheses else "" for hypotheses in found]
        return corpus_bleu(texts, references, tokenize=self.run.validation.tokenize)

    def texts(self, part: str) -> tuple[list[str], list[str]]:
        """The pairs of a part as text, without those whose source is longer than the model takes."""
        pairs = list(read_pairs(self.corpus.files[part], self.run.data.source, self.run.data.target))
        fits = [len(ids) <= self.translator.limit for ids in self.translator.encode([source for source, _ in pairs])]
        too_long = [number for number, fit in enumerate(fits, 1) if not fit]
        if too_long:
            self.log.say(
                f"{part}: {len(too_long):,} sources longer than {self.translator.limit} pieces are not scored "
                f"(pairs {listed(too_long, len(too_long))})"
            )
            self.log.event("scored", part=part, pairs=sum(fits), too_long=too_long)
        kept = list(compress(pairs, fits))
        return [source for source, _ in kept], [target for _, target in kept]

    def choose_weights(self, progress: Progress) -> tuple[Weights, str, float]:
        """The average or the best snapshot, whichever has the better validation BLEU."""
        candidates: list[tuple[str, Weights]] = []
        try:
            candidates.append((f"step {progress.best_step}", self.snapshots.load(progress.best_step)))
        except Broken as error:
            self.log.say(f"the best snapshot, of step {progress.best_step:,}, is broken ({error})")
        # A run that patience ended early may have no regular snapshot yet.
        if (self.run.engine.average > 1 or not candidates) and self.snapshots.regular:
            mean, steps = self.snapshots.average(self.run.engine.average)
            if steps:
                candidates.append((f"mean of the last {len(steps)} snapshots (steps {steps[0]} to {steps[-1]})", mean))
        if not candidates:
            if self.masters.sharded:
                raise InputError(f"no snapshot of {self.snapshots.folder} can be read: train again with --overwrite")
            candidates.append((f"step {progress.step}", self.masters.named()))
        scored = []
        for name, weights in candidates:
            self._use(weights)
            scored.append((self.bleu(*self.valid_texts), name, weights))
            self.log.say(f"validation BLEU {scored[-1][0]:.2f}: {name}")
            self.log.event("candidate", bleu=scored[-1][0], weights=name)
        bleu, name, weights = max(scored, key=lambda item: item[0])
        self._use(weights)
        return weights, name, bleu

    def _use(self, weights: Weights) -> None:
        self.judged.eval()
        with torch.no_grad():
            for name, parameter in self.plain_model.named_parameters():
                parameter.copy_(weights[name])

    def test_scores(self) -> dict[str, Any]:
        """The chosen model on the test pairs, once, at the very end."""
        return {"test BLEU": round(self.bleu(*self.test_texts), 2)} if self.test_texts[0] else {}


def entropy(counts: npt.NDArray[np.int64]) -> float:
    """−Σ p log p: the mean loss, per token, of knowing nothing but how frequent each is."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
