"""Training a translator: from files and a run to a model folder with its score."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.data.batches import PairBatch, PairBatches, pad_rows
from headway.data.catalog import cache_folder, find
from headway.data.readers import read_pairs
from headway.data.split import split_corpus
from headway.data.store import PairStore, prepare, train_tokenizers
from headway.device import choose
from headway.errors import InputError
from headway.evaluate.bleu import corpus_bleu
from headway.folder import WEIGHTS, Card, Loaded, find_model, load_weights, read_model, write_model
from headway.generate.translator import Translator
from headway.models.transformer import Transformer
from headway.plain import to_plain
from headway.text.tokenizer import Tokenizer
from headway.train.checkpoint import Checkpoints, Weights
from headway.train.log import Log
from headway.train.loop import Progress, fit, prefetch
from headway.train.optimiser import Masters
from headway.train.run import ParallelText, Run, write_run
from headway.train.step import GraphStep, TrainStep, compiled

NAMED = 20  # numbers of pairs that a line for a person lists
SMALL = 20_000_000  # parameters up to which launching kernels costs more than running them


@dataclass
class Corpus:
    """A run's data, ready: files of each part, tokenizers, and the encoded pairs."""

    files: dict[str, list[Path]]
    tokenizers: tuple[Tokenizer, Tokenizer]
    train: PairStore
    valid: PairStore


@dataclass
class Outcome:
    """What a run came to. `scores` holds validation and, where there are test pairs, test figures."""

    folder: Path
    scores: dict[str, Any]
    seconds: float


def locate(data: ParallelText, download: bool, log: Log) -> dict[str, list[Path]]:
    """The files of each part: paths as they are, known names from the data folder or, if asked, the network."""
    if not data.train:
        raise InputError("no training data: pass --data SOURCE TARGET (two aligned files), a .tsv or a .jsonl")
    parts: dict[str, list[Path]] = {}
    for part, names in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        parts[part] = [Path(name) if _is_own(name) else _known(name, download, log) for name in names]
    return parts


def _known(name: str, download: bool, log: Log) -> Path:
    if not download:
        return find(name)
    with log.bar(f"fetching {name}", None, " bytes") as show:
        return find(name, download=True, progress=lambda done, total: show(done))


def _is_own(name: str) -> bool:
    """Whether a name means a file of one's own, there or mistyped, and not one of a known data set."""
    path = Path(name)
    return path.exists() or path.is_absolute() or path.parent.is_dir()


def open_corpus(run: Run, out: Path, log: Log, download: bool = False, init: Loaded | None = None) -> Corpus:
    """Find the files, hold some pairs out where that is needed, learn the vocabularies, encode the pairs."""
    data = run.data
    files = locate(data, download, log)
    if not files["valid"]:
        held = split_corpus(files["train"], out / "data", data.hold_out, data.source, data.target)
        files = {part: list(paths) for part, paths in held.items()} | ({"test": files["test"]} if files["test"] else {})
    if init is not None:
        tokenizers = (init.source_tokenizer, init.target_tokenizer)
    else:
        log.say("learning the vocabulary")
        tokenizers = train_tokenizers(files["train"], data.text, source=data.source, target=data.target)
    stores = {part: _encode(run, files[part], tokenizers, part, log) for part in ("train", "valid")}
    return Corpus(files, tokenizers, stores["train"], stores["valid"])


def _encode(run: Run, files: list[Path], tokenizers: tuple[Tokenizer, Tokenizer], part: str, log: Log) -> PairStore:
    longest = run.model.max_length - 1
    with log.bar(f"encoding {part}", None, " pairs") as show:
        store = prepare(
            files, *tokenizers, cache_folder() / "stores", max_length=longest,
            source=run.data.source, target=run.data.target, progress=show,
        )  # fmt: skip
    tokens = int(store.source_lengths.sum()), int(store.target_lengths.sum())
    before = " (encoded before)" if store.reused else ""
    log.say(f"{part}: {len(store):,} pairs, {tokens[0]:,} + {tokens[1]:,} pieces{before}")
    log.event("data", part=part, pairs=len(store), skipped=store.skipped, too_long=store.too_long)
    if store.skipped["too_long"]:
        which = _listed(store.too_long, store.skipped["too_long"])
        log.say(f"{part}: {store.skipped['too_long']:,} pairs longer than {longest} pieces left out (pairs {which})")
    if store.skipped["empty"]:
        log.say(f"{part}: {store.skipped['empty']:,} pairs with an empty side left out")
    return store


def _listed(numbers: list[int], count: int) -> str:
    """The first of `count` numbers, for a line that a person reads."""
    shown = numbers[:NAMED]
    return ", ".join(map(str, shown)) + (" …" if count > len(shown) else "")


def train_translator(run: Run, out: Path, log: Log, *, download: bool = False) -> Outcome:
    """The whole trip. `out` exists and is empty; it gets run.json, log.jsonl, checkpoints and the model."""
    started = time.perf_counter()
    write_run(run, out / "run.json")
    device, dtype = choose(run.engine.device, run.engine.dtype)
    earlier = read_model(run.init) if run.init else None
    corpus = open_corpus(run, out, log, download, earlier)
    torch.manual_seed(run.engine.seed)
    sizes = earlier.card.vocabularies if earlier else (len(corpus.tokenizers[0]), len(corpus.tokenizers[1]))
    model = Transformer(run.model, *sizes)
    if run.init:
        load_weights(model, find_model(run.init) / WEIGHTS)
    card = Card(
        "transformer", run.model, sizes, earlier.card.text if earlier else run.data.text,
        run.data.source, run.data.target, to_plain(run.search), to_plain(run),
    )  # fmt: skip
    parameters = sum(p.numel() for p in model.parameters())
    job = TranslationJob(run, corpus, model.to(device, dtype), card, device, log)
    log.say(f"{parameters:,} parameters on {_name(device)}, {str(dtype).removeprefix('torch.')}, speed {job.speed}")
    log.event("start", parameters=parameters, device=_name(device), dtype=str(dtype), speed=job.speed)
    checkpoints = Checkpoints(out / "checkpoints", run.engine.average)
    training = time.perf_counter()
    progress = job.fit(checkpoints)
    trained = time.perf_counter() - training
    if progress.stopped:
        log.say(f"stopped at step {progress.step:,}: {progress.stopped}")
    weights, chosen, bleu = job.choose_weights(checkpoints, progress)
    scores = {"validation BLEU": round(bleu, 2), "weights": chosen} | job.test_scores()
    scores |= {"steps": progress.step, "training seconds": round(trained, 1)}
    card.score = scores
    write_model(out / "model", weights, card, corpus.tokenizers)
    log.event("end", progress.step, **scores)
    return Outcome(out / "model", scores, time.perf_counter() - started)


class TranslationJob:
    """A run in progress: its model, its batches, and how it is judged."""

    def __init__(self, run: Run, corpus: Corpus, model: Any, card: Card, device: torch.device, log: Log) -> None:
        self.run, self.corpus, self.device, self.log = run, corpus, device, log
        self.objective = run.objective.build(model)
        self.masters = Masters(model.parameters(), run.optimiser, run.engine.clip)
        self.translator = Translator(Loaded(model, card, *corpus.tokenizers), device, next(model.parameters()).dtype)
        self.batches = PairBatches(corpus.train, run.engine.batch, run.engine.seed)
        self.valid_batches = PairBatches(corpus.valid, 4 * run.engine.batch, 0, shuffle=False)
        limit = run.validation.sentences or None
        self.valid_texts = tuple(side[:limit] for side in self.texts("valid"))
        # Read now: what is wrong with a test file should not be found out after hours of training.
        self.test_texts = self.texts("test") if corpus.files.get("test") else ([], [])
        self.speed = run.engine.speed if run.engine.speed != "auto" else self._speed()

    def _speed(self) -> str:
        if self.device.type == "cpu":
            return "plain"
        small = sum(weight.numel() for weight in self.masters.weights) <= SMALL
        return "graphs" if small and self.run.engine.accumulate == 1 else "compile"

    def fit(self, checkpoints: Checkpoints) -> Progress:
        objective: Any = compiled(self.objective) if self.speed == "compile" else self.objective
        graphs = self.device.type == "cuda" and self.speed != "plain"
        step = (GraphStep if graphs else TrainStep)(objective, self.masters)
        batches = prefetch(self.batches.from_step(0), self._ready)
        return fit(self.run, self.objective, self.masters, step, batches, self.validate, checkpoints, self.log)

    def _ready(self, batch: PairBatch) -> PairBatch:
        """For a GPU: as many rows as every batch of these lengths has, in pinned memory."""
        if self.device.type == "cpu":
            return batch
        shape = (batch.source_BS.shape[1], batch.target_BT.shape[1])
        rows = next(b.rows for b in self.batches.buckets if (b.source_length, b.target_length) == shape)
        return pad_rows(batch, rows).map(Tensor.pin_memory)

    @torch.no_grad()
    def validate(self, with_bleu: bool) -> tuple[float | None, dict[str, float]]:
        """Loss and perplexity on every validation pair and, if asked for, BLEU with the run's own search."""
        self.objective.eval()
        loss, nll, tokens = 0.0, 0.0, 0
        for batch in self.valid_batches.epoch():
            triples = self.objective(batch.map(lambda tensor: tensor.to(self.device)))
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
                f"(pairs {_listed(too_long, len(too_long))})"
            )
            self.log.event("scored", part=part, pairs=sum(fits), too_long=too_long)
        kept = list(compress(pairs, fits))
        return [source for source, _ in kept], [target for _, target in kept]

    def choose_weights(self, checkpoints: Checkpoints, progress: Progress) -> tuple[Weights, str, float]:
        """The average or the best snapshot, whichever has the better validation BLEU."""
        candidates: list[tuple[str, Weights]] = [(f"step {progress.best_step}", checkpoints.load(progress.best_step))]
        # A run that patience ended early may have no regular snapshot yet.
        if self.run.engine.average > 1 and checkpoints.regular:
            mean, steps = checkpoints.average(self.run.engine.average)
            candidates.append((f"mean of the last {len(steps)} snapshots (steps {steps[0]} to {steps[-1]})", mean))
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
        self.objective.eval()
        with torch.no_grad():
            for name, parameter in self.objective.get_submodule("model").named_parameters():
                parameter.copy_(weights[name])

    def test_scores(self) -> dict[str, Any]:
        """The chosen model on the test pairs, once, at the very end."""
        return {"test BLEU": round(self.bleu(*self.test_texts), 2)} if self.test_texts[0] else {}


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
