"""A loss that is not finite is never stepped on; a run that is past help is stopped, its last good checkpoint whole."""

from __future__ import annotations

import json
import math
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import result
from running import World
from torch import nn

from headway.tasks.objective import TokenObjective
from headway.train.health import Diverged, Health, Record
from headway.train.meter import Meter
from headway.train.optimiser import Adam, AdamW, Masters
from headway.train.sealed import verify
from small_runs import before_each_step, call


class Crash(Exception):
    """As if the process had been killed."""


# One step


def bits(masters: Masters) -> dict[str, bytes]:
    """Weights, masters, moments and counters of steps."""
    tensors = {f"model.{name}": w for name, w in zip(masters.names, masters.weights, strict=True)}
    tensors |= {f"{kind}.{name}": t for kind, named in masters.state().items() for name, t in named.items()}
    return {name: t.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for name, t in tensors.items()}


def set_gradients(masters: Masters, seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    for weight in masters.weights:
        weight.grad = torch.randn(weight.shape, generator=dice).to(weight.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", [Adam(), AdamW()], ids=["adam", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("wrong", ["inf", "-inf", "nan", "loss"])
def test_a_bad_step_changes_no_bit_and_leaves_no_trace(
    dtype: torch.dtype, config: Adam | AdamW, clip: float, wrong: str
) -> None:
    def build() -> Masters:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).to(dtype)
        masters = Masters(model.named_parameters(), config, clip)
        masters.set_rate(0.1)
        return masters

    disturbed, undisturbed = build(), build()
    for seed in range(3):
        for masters in (disturbed, undisturbed):
            set_gradients(masters, seed)
            assert masters.step(torch.tensor(1.0))[1] == 0
    before = bits(disturbed)
    assert any("exp_avg" in name for name in before) and any("optimiser.step" in name for name in before)
    set_gradients(disturbed, 99)
    if wrong != "loss":
        gradient = disturbed.weights[0].grad
        assert gradient is not None
        gradient[1, 2] = float(wrong)
    _, bad = disturbed.step(torch.tensor(math.inf if wrong == "loss" else 1.0))
    assert bad == 1 and bits(disturbed) == before
    for masters in (disturbed, undisturbed):
        set_gradients(masters, 4)
        masters.step(torch.tensor(1.0))
    assert bits(disturbed) == bits(undisturbed) != before


def test_the_very_first_step_may_be_bad() -> None:
    masters = Masters(nn.Linear(2, 2).named_parameters(), Adam())
    masters.set_rate(0.1)
    before = bits(masters)
    set_gradients(masters, 0)
    masters.step(torch.tensor(math.nan))
    assert before.items() <= bits(masters).items()
    assert all(not any(data) for name, data in bits(masters).items() if name.startswith("optimiser"))


# Whole runs with bad batches


@pytest.fixture
def infinite(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[int], bool]], None]]:
    """`infinite(lambda step: …)`: the loss of these steps is infinite."""
    now = {"bad": False}
    forward = TokenObjective.forward

    def patched(objective: TokenObjective, batch: Any) -> Any:
        terms = forward(objective, batch)
        loss, weight = terms["loss"]
        return terms | {"loss": (loss * math.inf, weight)} if now["bad"] and objective.training else terms

    monkeypatch.setattr(TokenObjective, "forward", patched)

    def make(steps: Callable[[int], bool]) -> None:
        before_each_step(monkeypatch, lambda _, step: now.update(bad=steps(step)))

    yield make


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    rows = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, rows) if row["event"] == kind]


def test_a_bad_batch_is_skipped_and_named(world: World, tmp_path: Path, infinite: Any) -> None:
    infinite(lambda step: step == 16)
    out = world.train(tmp_path / "run")
    [event] = events(out, "skipped")
    texts = (world.root / "train.en").read_text(encoding="utf-8").splitlines()
    assert event["step"] == 16 and len(event["examples"]) > 8
    assert event["first"] == texts[event["examples"][0] - 1]
    [line] = [line for line in world.lines if "skipped" in line]
    assert line.startswith("loss or gradient not finite, batch skipped: step 16 (examples ")
    assert f"{event['examples'][0]:,}, " in line and f"and {len(event['examples']) - 8} more" in line
    assert line.endswith(f"the first: {event['first']}")
    for row in (*events(out, "train"), *events(out, "validation")):
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float)), row
    assert [row["step"] for row in events(out, "train")] == [5, 10, 15, 20, 24]
    facts = json.loads((out / "checkpoints/step-24/state-0.json").read_text(encoding="utf-8"))
    assert facts["health"]["skipped"] == 1


@pytest.mark.parametrize("end", [11, 14], ids="killed at step {}".format)
def test_going_on_over_a_bad_batch_is_exact(
    world: World, tmp_path: Path, infinite: Any, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    infinite(lambda step: step in (2, 9))
    world.train(tmp_path / "undisturbed")

    def crash(_: object, step: int) -> None:
        if step == end:
            raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        before_each_step(patch, crash)
        world.train(tmp_path / "run")
    world.train(tmp_path / "run", resume=True)
    assert world.heard("resuming from step")
    assert result(tmp_path / "run") == result(tmp_path / "undisturbed")


def test_a_signal_at_a_bad_batch_is_exact_too(
    world: World, tmp_path: Path, infinite: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was skipped is in the log before what comes later, whenever it was read."""
    infinite(lambda step: step == 7)
    world.train(tmp_path / "undisturbed")

    def at(_: object, step: int) -> None:
        if step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        before_each_step(patch, at)
        world.train(tmp_path / "run")
    world.train(tmp_path / "run", resume=True)
    assert world.heard("resuming from step 7")
    assert result(tmp_path / "run")["log"] == result(tmp_path / "undisturbed")["log"]


def test_too_many_in_a_row_end_the_run(world: World, tmp_path: Path, infinite: Any) -> None:
    """One of four is fine, five running are not."""
    infinite(lambda step: step >= 14 or step % 4 == 0)
    code, out, err = call(*world.command(tmp_path / "run", "engine.skips=5", "engine.steps=100"))
    assert code == 1 and out == ""
    line = err.splitlines()[-1]
    assert line.startswith("headway: the loss or its gradient was not finite in 5 consecutive steps: try a lower"), err
    assert "(the last good checkpoint is that of step 12)" in line
    assert f"headway train {tmp_path / 'run'} --resume --set schedule.peak=… resumes from it" in line
    assert err.count("headway: ") == 1
    assert [row["step"] for row in events(tmp_path / "run", "skipped")] == [4, 8, 12, *range(14, 19)]
    verify(tmp_path / "run/checkpoints/step-12")


def test_a_log_line_of_skipped_steps_only_has_no_numbers(world: World, tmp_path: Path, infinite: Any) -> None:
    infinite(lambda step: step <= 7)
    out = world.train(tmp_path / "run")
    first, *others = events(out, "train")
    assert first["loss"] is None and first["gradient"] is None
    assert all(math.isfinite(row["loss"]) for row in others)
    assert "NaN" not in (out / "log.jsonl").read_text(encoding="utf-8")


# A rate that is too high

RATE = ("engine.steps=160", "engine.checkpoint=10", "engine.log=10", "engine.snapshot=50", "schedule.warmup=20",
        "validation.every=1000", "validation.score_every=1000", "model.width=32", "model.inner=64",
        "schedule.peak=0.02")  # fmt: skip


@pytest.mark.parametrize("norm", ["pre", pytest.param("post", marks=pytest.mark.long)])
def test_a_rate_that_is_100_times_too_high_stops_the_run_with_a_good_checkpoint(
    world: World, tmp_path: Path, norm: str
) -> None:
    settings = (*RATE, f"model.norm={norm}")
    assert call(*world.command(tmp_path / "sane", *settings))[0] == 0
    losses = [row["loss"] for row in events(tmp_path / "sane", "train")]
    assert losses[-1] < 0.7 * losses[0]

    code, out, err = call(*world.command(tmp_path / "run", *settings, "schedule.peak=2.0"))
    assert code == 1 and out == ""
    line = err.splitlines()[-1]
    assert line.startswith("headway: the loss is ") and "the run has diverged; try a lower schedule.peak" in line
    assert err.count("headway: ") == 1
    steps = sorted(int(path.name.removeprefix("step-")) for path in (tmp_path / "run/checkpoints").glob("step-*"))
    assert f"(the last good checkpoint is that of step {steps[-1]})" in line and steps[-1] <= 20
    verify(tmp_path / f"run/checkpoints/step-{steps[-1]}")
    assert "no checkpoint at step" in err  # of those due while the loss was astray

    code, out, err = call("train", tmp_path / "run", "--resume", "--set", "schedule.peak=0.02")
    assert code == 0 and f"resuming from step {steps[-1]}" in err
    assert events(tmp_path / "run", "train")[-1]["loss"] < 0.9 * losses[0]


def test_a_checkpoint_of_a_time_when_the_loss_was_astray_is_set_aside(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal saves whatever there is; when the run is then given up, the one before is the newest."""

    def at(_: object, step: int) -> None:
        if step == 35:
            os.kill(os.getpid(), signal.SIGTERM)

    high = (*RATE, "model.norm=pre", "schedule.peak=2.0")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        before_each_step(patch, at)
        world.train(tmp_path / "run", *high)
    assert (tmp_path / "run/checkpoints/step-35").is_dir()
    with pytest.raises(Diverged, match="last good checkpoint"):
        world.train(tmp_path / "run", *high, resume=True)
    assert world.heard("the checkpoint of step 35 was made when the loss had diverged: set aside as astray-step-35")
    assert max(int(path.name[5:]) for path in (tmp_path / "run/checkpoints").glob("step-*")) <= 20


# The rule, on curves

GUESS = 6.0


def verdict(losses: list[float], warmup: int = 0, break_at: int | None = None, every: int = 50) -> int | None:
    """The line of the log, one `every` so many steps, at which the run is ended; `break_at` goes on there from a
    checkpoint."""
    health = Health(20, 10, warmup * every, GUESS)
    for number, loss in enumerate(losses, 1):
        try:
            health.judge(number * every, loss, loss - 0.2)
        except Diverged:
            return number
        if number == break_at:
            facts = json.loads(json.dumps(asdict(health.record)))
            health = Health(20, 10, warmup * every, GUESS)
            health.record = Record(**facts)
    return None


def noisy(values: list[float], share: float, seed: int) -> list[float]:
    dice = random.Random(seed)
    return [value * (1 + dice.gauss(0, share)) for value in values]


def falling(first: float, last: float, pace: float, count: int) -> list[float]:
    return [last + (first - last) * math.exp(-number / pace) for number in range(count)]


NORMAL = {
    "from scratch": falling(9.5, 2.0, 20, 400),
    "slowly": falling(9.5, 5.0, 100, 400),
    "a long warm-up": [9.5 - 0.002 * number for number in range(100)] + falling(9.3, 2.0, 20, 200),
    "a plateau, then on": falling(9.5, 6.0, 5, 25) + falling(6.0, 2.0, 30, 200),
    "fine-tuning from a low loss": [1.3] * 200,
    "fine-tuning that gets worse first": [1.3] * 3 + [1.3 + 0.03 * n for n in range(20)] + falling(1.9, 1.0, 30, 200),
    "overfitting": falling(9.5, 0.05, 30, 400),
    "a spike": falling(9.5, 2.0, 10, 100) + falling(8.0, 2.0, 5, 100),
    "a slow spike": falling(9.5, 2.0, 10, 100) + falling(9.0, 2.0, 18, 100),
    "a higher rate after going on": falling(9.5, 2.0, 10, 100) + [3.5] * 100,
    "two losses at once": [14.0, 13.0, 12.5, 12.8, 12.6] + falling(12.5, 4.0, 30, 200),
}


@pytest.mark.parametrize("curve", NORMAL.values(), ids=NORMAL)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1])
def test_normal_curves_raise_no_alarm(curve: list[float], share: float) -> None:
    warmup = 100 if curve is NORMAL["a long warm-up"] else 0
    for seed in range(10 if share else 1):
        values = noisy(curve, share, seed)
        assert verdict(values, warmup) is None, seed
        assert verdict(values, warmup, break_at=50) is None, seed


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_readings_of_single_small_batches_raise_no_alarm(share: float) -> None:
    """engine.log=1: readings so noisy that the first and the lowest of them say little."""
    for seed in range(40):
        assert verdict(noisy([1.35] * 1500, share, seed)) is None, seed
        assert verdict(noisy([1.35] * 3000, 2 * share, seed), every=1) is None, seed
        assert verdict(noisy(falling(9.5, 5.0, 400, 3000), share, seed), every=1) is None, seed


ASTRAY = {
    "blown up at once": [9.5, 9.4, 11.0, 20.0, 40.0, 60.0, *[50.0] * 20],
    "blown up and on its way down": [9.5, 9.4, 20.0, *falling(90.0, 20.0, 10, 20)],
    "blown up later": falling(9.5, 3.0, 10, 60) + [25.0] * 20,
    "back where it began": falling(9.5, 3.0, 10, 60) + [9.0] * 20,
    "half of it lost": falling(9.5, 3.0, 10, 60) + [6.8] * 20,
    "no better than guessing": falling(9.5, 6.3, 2, 200),
    "worse than guessing": [9.5, 8.0, *[7.5] * 90],
    "a fine-tuned model destroyed": [1.3] * 20 + [5.0] * 20,
}


@pytest.mark.parametrize("curve", ASTRAY.values(), ids=ASTRAY)
@pytest.mark.parametrize("share", [0.0, 0.02])
def test_a_run_that_is_past_help_is_ended(curve: list[float], share: float) -> None:
    values = noisy(curve, share, 1)
    found = verdict(values)
    assert found is not None
    assert verdict(values, break_at=found - 5) == found


def test_a_rough_start_that_is_logged_at_each_step_raises_no_alarm() -> None:
    rough = [6.0, 9.0, 14.0, *[20.0] * 30, *falling(20.0, 2.0, 20, 200)]
    assert verdict(rough, every=1) is None
    assert verdict([*[6.0] * 300, *falling(6.0, 2.0, 50, 200)], every=1) is None


def test_it_can_be_switched_off() -> None:
    health = Health(0, 0)
    for step in range(100):
        health.judge(step, 1e9, 1e9)
    assert health.sound


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_the_host_never_waits_and_a_bad_step_changes_no_bit(dtype: torch.dtype) -> None:
    """Bad or not is decided on the device: torch raises where the host would have to wait for it."""
    device = torch.device("cuda")
    model = nn.Linear(8, 8).to(device, dtype)
    masters = Masters(model.named_parameters(), Adam(), clip=1.0)
    health, meter = Health(20, 10), Meter()
    x, one = torch.randn(4, 8, device=device, dtype=dtype), torch.ones((), device=device)

    def steps(*factors: float) -> None:
        scales = [torch.full((), factor, device=device) for factor in factors]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for number, scale in enumerate(scales, 1):
                masters.zero()
                masters.set_rate(0.1)
                loss = model(x).float().square().sum() * scale
                loss.backward()
                norm, bad = masters.step(loss.detach())
                meter.add({"loss": loss, "count.loss": one, "norm": norm, "bad": bad}, 4)
                health.add(number, (), bad)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def cpu_bits() -> dict[str, bytes]:
        tensors = dict(model.named_parameters()) | {
            f"{kind}.{name}": tensor for kind, named in masters.state().items() for name, tensor in named.items()
        }
        return {n: t.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() for n, t in tensors.items()}

    steps(1.0, 1.0)
    before = cpu_bits()
    steps(math.inf, math.nan)
    assert cpu_bits() == before
    steps(1.0)
    assert cpu_bits() != before
    assert [skipped.step for skipped in health.read()] == [1, 2]
    assert math.isfinite(meter.read()["loss"])
