"""A dry run: the settings of a run, its size, its memory and an estimate of its time, without training."""

from __future__ import annotations

import json
import timeit
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.device import choose
from headway.durations import spoken
from headway.errors import InputError
from headway.evaluate.cost import Sketch, training_bytes
from headway.folder import find_model, read_card
from headway.models import FAMILIES, build
from headway.plain import to_plain
from headway.tasks.files import files_of, look_for_known, look_for_own
from headway.tasks.start import starts_from_vectors
from headway.train.optimiser import Masters
from headway.train.run import Run
from headway.train.selection import choose_trained, counts
from headway.train.step import TrainStep

MUCH = 5e11  # parameters times tokens of a step: a CPU would take long even for a share of it
SHARES = (16, 4, 1)  # of a batch
QUICK = 0.3  # seconds; a share that takes no longer is followed by a larger one


def describe(run: Run) -> str:
    """The resolved run as JSON, then parameters, memory and an estimate of the time from a few real steps."""
    plain, data = json.dumps(to_plain(run), indent=1, ensure_ascii=False), _data_in_words(run)
    if (words := run.objective.cost_in_words(run)) is not None:
        return f"{plain}\n\n{data}\n{words}"
    device, dtype = choose(run.engine.device, run.engine.dtype)
    sizes = run.task.sizes(run, likely=True)
    if run.init and not starts_from_vectors(run):
        sizes = read_card(find_model(run.init)).sizes
    sketch = Sketch(run.model.name, run.model, sizes, dtype, run.head)
    outline = sketch.build()
    choose_trained(outline, run)
    count, trained = counts(outline)
    held = training_bytes(trained, dtype.itemsize) + (count - trained) * dtype.itemsize
    if count * run.task.tokens_a_step(run) > MUCH and device.type == "cpu":
        seconds, how = _counted(run, sketch, device), "counted from its operations"
    else:
        model: Any = build(run.model.name, run.model, sizes, run.head).to(device, dtype)
        seconds, how = _measured(run, model, device, min(sizes)), "measured on a few steps of random values"
    some = "" if trained == count else f", {trained:,} of them trained"
    ends = f", or {spoken(run.engine.seconds)} in all, if those are over sooner" if run.engine.seconds else ""
    return (
        f"{plain}\n\n{data}\n"
        f"parameters: {count:,}{some} (with {FAMILIES[run.model.name].sized[0].format(f'{sizes[-1]:,}')})\n"
        f"memory for weights, gradients and optimiser: {held / 2**20:,.0f} MiB, activations beside it\n"
        f"time on {device}: about {seconds:.2g} s a step, {spoken(run.engine.steps * seconds)} "
        f"for {run.engine.steps:,} steps{ends}, validation beside it ({how})"
    )


def _data_in_words(run: Run) -> str:
    """Whether the data is available. A missing file of the user's is an error, as in training."""
    look_for_own(run)
    try:
        look_for_known(run)
    except InputError as error:
        return f"data: {error}"
    if not (files := files_of(run)):
        return f"data: {run.data.without_files}"
    size = sum(path.stat().st_size for path in map(Path, files) if path.is_file())
    return f"data: available ({', '.join(files)}{f'; {size / 1e6:,.3g} MB' if size else ''})"


def _measured(run: Run, model: Any, device: torch.device, size: int) -> float:
    """Seconds a step, from a small share of its batch, or from more of it where that is quick."""
    choose_trained(model, run)
    step = TrainStep(run.objective.build(model), Masters(model.named_parameters(), run.optimiser))
    for parts in SHARES:
        try:
            part = replace(run, engine=replace(run.engine, batch=max(1, run.engine.batch // parts)))
        except InputError:  # too small a share for this task
            continue
        batch = run.task.sample(part, size, device)
        taken = min(timeit.repeat(lambda: float(step(batch, run.engine.accumulate)["loss"]), number=1, repeat=2))  # noqa: B023
        share = run.task.tokens_a_step(run) / run.task.tokens_a_step(part)
        if taken > QUICK:
            break
    return taken * share


def _counted(run: Run, sketch: Sketch, device: torch.device) -> float:
    """Seconds a step, by its operations (three forward passes) and what a large product takes here."""
    length = max(1, run.max_length)
    x = torch.randn(1024, 1024, device=device)
    taken = min(timeit.repeat(lambda: x @ x, number=1, repeat=3))
    operations = 3 * sketch.cost(length).flops / length * run.task.tokens_a_step(run)
    return operations / (2 * 1024**3) * taken
