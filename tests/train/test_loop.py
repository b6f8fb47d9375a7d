"""The loop and its parts: pieces add up to the whole, errors travel, patience ends, the right snapshots stay."""

from __future__ import annotations

import copy
import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway.batch import IGNORED, TextInputs, TokenBatch
from headway.models.transformer import Transformer, TransformerConfig
from headway.recipes import RECIPES
from headway.tasks.objective import CrossEntropy, Objective
from headway.text.tokenizer import END, PAD, START
from headway.train.checkpoint import Checkpoints
from headway.train.log import Log
from headway.train.loop import Progress, Training, prefetch
from headway.train.optimiser import Adam, Masters
from headway.train.run import Run
from headway.train.snapshots import Snapshots
from headway.train.step import TrainStep, compiled
from headway.train.writer import Writer

V = 30
CONFIG = TransformerConfig(encoder_layers=1, decoder_layers=1, width=16, inner=32, heads=2, dropout=0.0, max_length=32)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # small matrices: threads cost more than they bring
    yield
    torch.set_num_threads(before)


def uneven(rows: int, seed: int = 0) -> TokenBatch:
    """Rows of very different lengths: a mean of the pieces' means would not be the mean of the whole."""
    dice = torch.Generator().manual_seed(seed)
    source_lengths = torch.randint(1, 13, (rows,), generator=dice)
    target_lengths = torch.randint(1, 11, (rows,), generator=dice)
    source_lengths[0], target_lengths[0], target_lengths[-1] = 12, 10, 1
    source_BS = torch.full((rows, 13), PAD)
    target_BT, labels_BT = torch.full((rows, 11), PAD), torch.full((rows, 11), IGNORED)
    for row, (s, t) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        source_BS[row, : s + 1] = torch.cat([torch.randint(4, V, (s,), generator=dice), torch.tensor([END])])
        words = torch.randint(4, V, (t,), generator=dice)
        target_BT[row, : t + 1] = torch.cat([torch.tensor([START]), words])
        labels_BT[row, : t + 1] = torch.cat([words, torch.tensor([END])])
    return TokenBatch(target_BT, labels_BT, inputs=TextInputs(source_BS, source_lengths + 1))


@pytest.mark.parametrize("parts", [2, 4, 7, 8, 50])
def test_pieces_give_the_gradient_of_the_whole_batch(parts: int) -> None:
    torch.manual_seed(0)
    whole = Transformer(CONFIG, V, V).double()
    pieces = copy.deepcopy(whole)
    batch = uneven(rows=14)
    sums = []
    for model, count in ((whole, 1), (pieces, parts)):
        step = TrainStep(CrossEntropy().build(model), Masters(model.named_parameters(), Adam()))
        sums.append(step(batch, count))
    for name, one in sums[0].items():
        torch.testing.assert_close(sums[1][name], one, rtol=1e-10, atol=1e-10)
    for (name, a), b in zip(whole.named_parameters(), pieces.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None, name
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("workers", [1, 3])
def test_prefetched_batches_come_in_order_made_by_other_threads(workers: int) -> None:
    makers = set()

    def make(batch: TokenBatch) -> TokenBatch:
        makers.add(threading.current_thread())
        return batch

    batches = [uneven(rows) for rows in range(1, 30)]
    assert [id(batch) for batch in prefetch(make, batches, workers)] == [id(batch) for batch in batches]
    assert threading.current_thread() not in makers


def test_prefetch_hands_on_errors_after_the_batches_before_them() -> None:
    def make(rows: int) -> TokenBatch:
        if rows == 3:
            raise OSError("the disk is gone")
        return uneven(rows)

    found = prefetch(make, (1, 2, 3))
    assert [len(next(found)) for _ in range(2)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)


def test_prefetch_stops_its_thread_when_nobody_reads_on() -> None:
    before = threading.active_count()
    found = prefetch(uneven, itertools.repeat(1))
    next(found)
    found.close()  # type: ignore[attr-defined]
    limit = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < limit:
        time.sleep(0.02)
    assert threading.active_count() <= before


class Counter(Objective):
    """An objective whose model has one weight, which each step raises by 1."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1, bias=False))
        nn.init.zeros_(self.model.weight)


def kept_in(folder: Path, last: int) -> Snapshots:
    return Snapshots(folder, last, writer=Writer(), say=print)


def trained(folder: Path, scores: list[float], last: int = 2, **engine: Any) -> tuple[Progress, Snapshots, Log]:
    """The loop with steps that count and validation that reads its scores from a list."""
    recipe = RECIPES["translate"].make()
    patience = engine.pop("patience", 0)
    validation = replace(recipe.validation, every=2, score_every=4, patience=patience)
    run: Run = replace(recipe, engine=replace(recipe.engine, **engine), validation=validation)
    objective = Counter()
    masters = Masters(objective.model.named_parameters(), Adam())
    left = iter(scores)

    def step_once(batch: TokenBatch, parts: int) -> dict[str, Tensor]:
        assert objective.training
        with torch.no_grad():
            objective.model.weight += 1
        losses = {"loss": torch.tensor(2.0 * batch.tokens), "nll": torch.tensor(1.0)}
        losses |= {f"count.{name}": torch.tensor(float(batch.tokens)) for name in ("loss", "nll")}
        return losses | {"norm": torch.tensor(3.0), "bad": torch.tensor(0.0)}

    def validate(with_score: bool) -> tuple[float | None, dict[str, float]]:
        objective.eval()
        return (next(left), {"loss": 1.0}) if with_score else (None, {"loss": 1.0})

    snapshots, log = kept_in(folder / "snapshots", last), Log(folder, quiet=True)
    checkpoints = Checkpoints(folder / "checkpoints", 1, writer=snapshots.writer, say=print)
    batches = iter([uneven(3)] * 100)
    training = Training(run, objective, masters, step_once, validate, checkpoints, snapshots, log)
    progress = training.fit(batches)
    snapshots.writer.close()
    log.close()
    return progress, snapshots, log


def kept(folder: Path) -> set[str]:
    return {path.name for path in (folder / "snapshots").iterdir()}


def test_the_best_and_the_last_snapshots_are_kept(tmp_path: Path) -> None:
    progress, snapshots, _ = trained(tmp_path, [1.0, 9.0, 3.0, 4.0], steps=15, snapshot=5)
    assert (progress.step, progress.best, progress.best_step, progress.stopped) == (15, 9.0, 8, None)
    assert kept(tmp_path) == {"step-8", "step-10", "step-15"}
    assert snapshots.load(8)["weight"].item() == 8


def test_the_last_step_is_scored_and_kept_wherever_it_falls(tmp_path: Path) -> None:
    progress, _, _ = trained(tmp_path, [1.0, 2.0], steps=7, snapshot=100)
    assert (progress.best, progress.best_step) == (2.0, 7)
    assert kept(tmp_path) == {"step-7"}


def test_patience_stops_after_so_many_scores_without_a_better_one(tmp_path: Path) -> None:
    progress, _, _ = trained(tmp_path, [5.0, 6.0, 6.0, 2.0], steps=90, snapshot=3, patience=2)
    assert progress.step == 16 and progress.best_step == 8
    assert progress.stopped is not None and "step 8" in progress.stopped
    assert kept(tmp_path) == {"step-8", "step-12", "step-15"}


def test_time_ends_a_run_as_if_that_were_the_last_step(tmp_path: Path) -> None:
    progress, snapshots, _ = trained(tmp_path, [5.0, 6.0, 7.0], steps=90, snapshot=40, log=6, seconds=1e-9)
    assert progress.step == 1 and progress.stopped == "1e-09 s are over, the last scoring included"
    assert (progress.best, progress.best_step) == (5.0, 1)  # scored, though no score was due
    assert kept(tmp_path) == {"step-1"}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-1"]


def test_a_limit_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    progress, _, _ = trained(tmp_path, [1.0, 9.0, 3.0, 4.0], steps=15, snapshot=5, seconds=1000)
    assert (progress.step, progress.stopped) == (15, None)


def test_the_log_has_means_of_what_was_since_the_last_line(tmp_path: Path) -> None:
    trained(tmp_path, [1.0, 1.0], steps=5, snapshot=5, log=2)
    rows = [json.loads(row) for row in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    train = [row for row in rows if row["event"] == "train"]
    assert [row["step"] for row in train] == [2, 4, 5]
    assert all(row["loss"] == pytest.approx(2.0) and row["gradient"] == pytest.approx(3.0) for row in train)
    assert [row["step"] for row in rows if row["event"] == "validation"] == [2, 4, 5]


def test_the_average_is_the_mean_of_the_newest_snapshots(tmp_path: Path) -> None:
    torch.manual_seed(0)
    snapshots = kept_in(tmp_path, last=3)
    all_weights = {step: {"a": torch.randn(4, 3), "b": torch.randn(2)} for step in (10, 20, 30, 40)}
    for step, weights in all_weights.items():
        snapshots.save(step, weights)
    mean, steps = snapshots.average(3)
    assert steps == [20, 30, 40]
    for name in ("a", "b"):
        by_hand = (all_weights[20][name] + all_weights[30][name] + all_weights[40][name]) / 3
        torch.testing.assert_close(mean[name], by_hand)
        assert mean[name].dtype == torch.float32
    assert snapshots.average(1)[1] == [40]
    # A run that was stopped early has fewer than were asked for.
    assert snapshots.average(10)[1] == [20, 30, 40]


def test_the_best_snapshot_is_no_part_of_the_average(tmp_path: Path) -> None:
    snapshots = kept_in(tmp_path, last=2)
    for step in (1, 2, 3):
        snapshots.save(step, {"w": torch.tensor(float(step))})
        if step == 1:
            snapshots.keep_best(1, {"w": torch.tensor(1.0)})
    mean, steps = snapshots.average(5)
    assert snapshots.load(1)["w"].item() == 1.0
    assert steps == [2, 3] and mean["w"].item() == 2.5


@pytest.mark.long
def test_compiled_objective_equals_plain_on_batches_of_several_shapes():
    """One compilation serves many shapes: the code is made for any length after the second."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(2, 2, 32, 64, 2, dropout=0.0), 50, 50)
    plain = CrossEntropy(0.1).build(model)
    fast = compiled(plain)
    for rows, source, target in ((4, 8, 12), (6, 12, 8), (5, 16, 20), (3, 9, 7)):
        ids = [torch.randint(4, 50, (rows, n)) for n in (source, target, target)]
        batch = TokenBatch(ids[1], ids[2], inputs=TextInputs(ids[0], torch.randint(1, source + 1, (rows,))))
        expected = torch.autograd.grad(plain(batch)["loss"][0], list(model.parameters()))
        found = torch.autograd.grad(fast(batch)["loss"][0], list(model.parameters()))
        for a, b in zip(expected, found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert sum(torch._dynamo.utils.counters["frames"].values()) < 20
