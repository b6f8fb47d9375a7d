"""Training skip-gram: steps down the gradient of a few rows of its tables, which is all that a word touches.

For a word i of a tile, its n_i neighbours j, and the tile's M words of noise m,

    loss = −Σ_i [Σ_j log σ(u_j·v_i) + (K n_i / M) Σ_m log σ(−u_m·v_i)]

which is eq. 4 of Mikolov et al. (2013) summed over all pairs, in expectation: every pair has K words of noise there and
M of the weight K/M here. The letters are those of `headway.data.word_windows`; E columns and noise (C + M), D width.
"""

from __future__ import annotations

import itertools
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.token_store import TokenStore
from headway.data.word_windows import Tiles, WordWindows, count_words
from headway.device import choose
from headway.errors import InputError, is_full
from headway.folder import Card, weights_of, write_model
from headway.models.skip_gram import SkipGram, SkipGramConfig, kept_share, noise
from headway.plain import to_plain
from headway.train.checkpoint import Checkpoint, Checkpoints
from headway.train.health import Diverged
from headway.train.job import Outcome, make_deterministic
from headway.train.log import Log
from headway.train.loop import Interrupted, prefetch
from headway.train.pace import Pace
from headway.train.parallel.ranks import expected
from headway.train.pretrained import earlier_model, fill_from_vectors
from headway.train.run import Run, write_run
from headway.train.stop import Stop
from headway.train.text_corpus import TextCorpus, open_text
from headway.train.writer import Writer

# The gradients of a step are summed. For a word that stands in many of its pairs the sum would overshoot where steps of
# one pair each would not: rate · pairs is held to this.
MOST = 1.0
JUDGED, JUDGED_AT_ONCE = 1 << 16, 1 << 13  # tokens of held-out text that a validation takes
JUDGED_NOISE = 256  # words of a tile
PASSES = 5  # many more make words alike that only once stood together
HINT = "try a lower schedule.peak or engine.batch"


def weights(tiles: Tiles, negatives: int) -> tuple[Tensor, Tensor]:
    """What each product of a tile counts: 1 for a neighbour, K n_i / M for noise."""
    near_PTC = tiles.near_PTC.float()
    return near_PTC, near_PTC.sum(-1, keepdim=True) * (negatives / tiles.noise_PM.shape[1])


def tile_loss(model: SkipGram, tiles: Tiles) -> Tensor:
    """The loss of a step as it is written above, summed."""
    near_PTC, noise_PT1 = weights(tiles, model.config.negatives)
    v_PTD = model.table(tiles.words_PT)
    score_PTC, score_PTM = (v_PTD @ model.around_VD[ids].mT for ids in (tiles.around_PC, tiles.noise_PM))
    return -(near_PTC * F.logsigmoid(score_PTC)).sum() - (noise_PT1 * F.logsigmoid(-score_PTM)).sum()


@torch.no_grad()
def learn(model: SkipGram, tiles: Tiles, rate: float, most_V: Tensor) -> None:
    """One step down the gradient of `tile_loss`: only the rows of words that are in the tiles are touched.

    The rate of a word is `rate`, or `most_V` where that is less.
    """
    columns = tiles.around_PC.shape[1]
    ids_PE = torch.cat([tiles.around_PC, tiles.noise_PM], 1)
    v_PTD, u_PED = F.embedding(tiles.words_PT, model.table.weight), F.embedding(ids_PE, model.around_VD)
    near_PTC, noise_PT1 = weights(tiles, model.config.negatives)
    # ∂loss/∂(u·v): weight · (σ − 1) for a neighbour, weight · σ for noise.
    slope_PTE = torch.bmm(v_PTD, u_PED.mT).sigmoid_()
    slope_PTE[:, :, :columns].sub_(1).mul_(near_PTC)
    slope_PTE[:, :, columns:].mul_(noise_PT1)
    toward_v, toward_u = torch.bmm(slope_PTE, u_PED), torch.bmm(slope_PTE.mT, v_PTD)
    _descend(model.table.weight, tiles.words_PT, toward_v, rate, most_V)
    _descend(model.around_VD, ids_PE, toward_u, rate, most_V)


def _descend(table_VD: Tensor, ids: Tensor, toward: Tensor, rate: float, most_V: Tensor) -> None:
    """Take each gradient off its row; a row that is there several times gets the sum."""
    ids_N1 = ids.flatten()[:, None]
    steps_ND = toward.flatten(0, 1).mul_(most_V[ids_N1].clamp_(max=rate).neg_())
    # Over rows that are expanded this is twice as fast as index_add_.
    table_VD.scatter_add_(0, ids_N1.expand_as(steps_ND), steps_ND)


def train_skip_gram(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    """`out` gets run.json, log.jsonl, checkpoints and the model; to `resume` it holds what an earlier start left."""
    started = time.perf_counter()
    device = _check(run)
    make_deterministic(run.engine.deterministic)
    writer = Writer()
    checkpoints = Checkpoints(
        out / "checkpoints", run.engine.keep, run.engine.keep_every, writer=writer, say=log.say
    )  # fmt: skip
    found = checkpoints.newest() if resume else None
    if found:
        log.go_on()
        log.say(f"going on from step {found.step:,}")
    elif resume:
        log.say("there is no checkpoint to go on from: starting again")
    if not found:
        write_run(run, out / "run.json")
    earlier = earlier_model(run)
    corpus = open_text(run.documents, out, log, download=download, known=found is not None, init=earlier)
    torch.manual_seed(run.engine.seed)
    model: Any = earlier.model if earlier else SkipGram(run.model, len(corpus.tokenizer))  # type: ignore[arg-type]
    if run.init and not earlier:
        fill_from_vectors(model, (corpus.tokenizer,), Path(run.init), log.say)
    job = SkipGramJob(run, log, model.to(device, torch.float32), corpus, checkpoints)
    if found:
        job.go_on(found)
        write_run(run, out / "run.json")
    try:
        job.fit()
        writer.close()
    except Interrupted as error:
        log.say(str(error))
        writer.close()
        job.stop.leave()
        raise
    except Exception:
        writer.close()
        raise
    return Outcome(out / "model", job.finish(out / "model"), time.perf_counter() - started)


def _check(run: Run) -> torch.device:
    data = run.documents
    if run.engine.dtype not in ("auto", "float32"):
        raise InputError(f"skip-gram learns in float32, not in {run.engine.dtype}: leave --dtype out")
    if data.text.kind != "word":
        raise InputError(f"skip-gram learns vectors of words: set data.text.kind=word, not {data.text.kind}")
    if data.weights or data.order != "epoch":
        raise InputError("skip-gram takes every part of the text in turn: leave data.weights and data.order out")
    if expected() > 1:
        raise InputError("skip-gram learns in one process: start it without torchrun")
    return choose(run.engine.device, "float32")[0]


class SkipGramJob:
    """A run in progress."""

    def __init__(self, run: Run, log: Log, model: SkipGram, corpus: TextCorpus, checkpoints: Checkpoints) -> None:
        self.run, self.log, self.model, self.corpus, self.checkpoints = run, log, model, corpus, checkpoints
        self.device, self.stop = model.around_VD.device, Stop(log.say)
        self.step, self.saved, self.seconds, self.said = 0, 0, 0.0, ""
        self.pace, self.over = Pace(run.engine.steps, run.engine.seconds), False
        config = model.config
        counts_V = torch.from_numpy(count_words(corpus.train, model.vocabulary))
        if not counts_V.sum():
            raise InputError("no word of the vocabulary is in the text")
        kept_V, noise_V = kept_share(counts_V, config.threshold), noise(counts_V, config.power)
        self.valid = _judging(corpus.valid, config, kept_V, noise_V)
        self.windows = WordWindows(
            corpus.train, run.engine.batch, config.window, kept_V, noise_V, run.engine.seed
        )  # fmt: skip
        tokens = sum(store.tokens for store in corpus.train)
        pairs_V = self.windows.tokens * counts_V / tokens * kept_V * (config.window + 1)
        self.most_V = (MOST / pairs_V.clamp(min=1e-9)).float().to(self.device)
        passes = run.engine.steps * self.windows.tokens / tokens
        usual = math.ceil(PASSES * tokens / self.windows.tokens)
        log.say(
            f"{model.vocabulary:,} words of width {config.width}; {passes:.1f} passes over the text "
            f"({PASSES}, as word2vec does it: engine.steps={usual})"
        )
        log.event("start", parameters=2 * model.around_VD.numel(), device=str(self.device), passes=round(passes, 2))

    def go_on(self, checkpoint: Checkpoint) -> None:
        facts = checkpoint.facts() or {}
        if facts["data"] != self.corpus.names():
            raise InputError(
                f"the text or its vocabulary is not what it was at step {checkpoint.step:,}: put it back as it was, "
                "or start again with --overwrite"
            )
        if self.run.engine.steps < checkpoint.step:
            raise InputError(
                f"the run is at step {checkpoint.step:,} already: engine.steps cannot be {self.run.engine.steps:,}"
            )
        with torch.no_grad():
            for name, tensor in checkpoint.whole("weights").items():
                self.model.get_parameter(name).copy_(tensor)
        self.step = self.saved = checkpoint.step
        self.seconds = facts["trained"]
        self.pace.go_on(facts.get("pace"), self.step, self.seconds)
        self.log.cut_back(facts["log"], facts["seconds"], checkpoint.step)

    def fit(self) -> None:
        engine = self.run.engine
        makers = (partial(self.windows.batch, step) for step in itertools.count(self.step))
        batches = prefetch(makers, self._sent, engine.workers)
        self._since, self._read = time.perf_counter(), (time.perf_counter(), self.step)
        with self.stop, self.log.bar("training", engine.steps, " steps") as show:
            while self.step < engine.steps and not self.over:
                self._advance(next(batches))
                show(self.step, self.said, self.pace.steps)
                if self.stop.asked:
                    self._save()
                    self.checkpoints.writer.wait()
                    raise Interrupted(f"stopped after step {self.step:,} of {engine.steps:,}, with a checkpoint")

    def _sent(self, tiles: Tiles) -> Tiles:
        return tiles.map(Tensor.pin_memory) if self.device.type == "cuda" else tiles

    def _advance(self, tiles: Tiles) -> None:
        """One step, and whatever is due after it."""
        engine, judged = self.run.engine, self.run.validation
        rate = self.run.schedule.rate(self.step + 1, self.pace.steps)
        tiles = tiles.map(lambda tensor: tensor.to(self.device, non_blocking=True))
        self.step += 1
        logged = self.step % engine.log == 0
        if logged or self.pace.due(self.step):
            self.over = self.pace.look(self.step - 1, self._clocked())  # this one is yet to be made
        last = self.step == engine.steps or self.over
        logged = logged or last
        loss = self._loss(tiles) / max(tiles.pairs, 1) if logged else 0.0
        learn(self.model, tiles, rate, self.most_V)
        if logged:
            self._report(rate, loss)
        if self.step % judged.every == 0 or last:
            value = self.validate()
            self.log.event("validation", self.step, loss=value)
            self.log.say(f"step {self.step:,}: loss {value:.4f}")
        if (self.step % engine.checkpoint == 0 and not self.checkpoints.busy) or last:
            self._save()

    def _report(self, rate: float, loss: float) -> None:
        (before, read), now = self._read, time.perf_counter()
        speed = (self.step - read) * self.windows.tokens / max(now - before, 1e-9)
        self._read = now, self.step
        if not math.isfinite(loss):
            raise Diverged(f"the loss is not finite any more at step {self.step:,}: {HINT}")
        tokens = self.step * self.windows.tokens
        self.log.event("train", self.step, rate=rate, tokens=tokens, loss=loss, tokens_per_second=speed)
        self.said = f"loss {loss:.3f}  {speed:,.0f} tokens/s"

    def validate(self) -> float:
        """The loss by pair on held-out text, with the same windows and the same noise each time."""
        loss, pairs = 0.0, 0
        for tiles in self.valid:
            loss += self._loss(tiles.map(lambda tensor: tensor.to(self.device)))
            pairs += tiles.pairs
        return loss / max(pairs, 1)

    @torch.no_grad()
    def _loss(self, tiles: Tiles) -> float:
        return float(tile_loss(self.model, tiles))

    def _clocked(self) -> float:
        now = time.perf_counter()
        self.seconds += now - self._since
        self._since = now
        return self.seconds

    def _save(self) -> None:
        """A checkpoint of now, written beside the training."""
        if self.saved == self.step:
            return
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            raise Diverged(f"the vectors are not finite any more at step {self.step:,}: {HINT}")
        try:
            position = self.log.position()
        except OSError as error:
            if not is_full(error):
                raise
            self.log.say(f"no checkpoint at step {self.step:,}: no room left on the disk; training goes on")
            return
        facts = {
            "trained": self._clocked(), "pace": self.pace.first, "log": position, "seconds": self.log.seconds,
            "data": self.corpus.names(), "run": to_plain(self.run),
        }  # fmt: skip
        self.checkpoints.save(self.step, {"weights": dict(self.model.named_parameters())}, {}, facts)
        self.saved = self.step

    def finish(self, place: Path) -> dict[str, Any]:
        scores = {
            "validation loss": round(self.validate(), 4), "words": self.model.vocabulary, "steps": self.step,
            "training seconds": round(self.seconds, 1),
        }  # fmt: skip
        self.log.event("end", self.step, **scores)
        self.log.position()
        card = Card(
            "skip-gram", self.model.config, (self.model.vocabulary,), self.run.data.text, run=to_plain(self.run),
            score=scores,
        )  # fmt: skip
        write_model(place, weights_of(self.model), card, (self.corpus.tokenizer,) * 2)
        return scores


def _judging(store: TokenStore, config: SkipGramConfig, kept_V: Tensor, noise_V: Tensor) -> list[Tiles]:
    """Tiles from all over the held-out text, always the same, with much noise each."""
    windows = WordWindows([store], JUDGED_AT_ONCE, config.window, kept_V, noise_V, seed=0, noise=JUDGED_NOISE)
    return [windows.batch(step) for step in range(-(-min(store.tokens, JUDGED) // windows.tokens))]
