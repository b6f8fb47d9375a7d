"""A dry run: the settings of a run, its size, its memory and an estimate of its time, without training."""

from __future__ import annotations

import json
import timeit
from typing import Any

import torch

from headway.device import choose
from headway.durations import spoken
from headway.errors import InputError
from headway.evaluate.cost import training_bytes
from headway.folder import find_model, read_card
from headway.models import FAMILIES, build
from headway.plain import to_plain
from headway.tasks.files import files_of, look_for_known, look_for_own
from headway.tasks.start import starts_from_vectors
from headway.train.optimiser import Masters
from headway.train.run import Run
from headway.train.step import TrainStep


def describe(run: Run) -> str:
    """The resolved run as JSON, then parameters, memory and an estimate of the time from a few real steps."""
    plain, data = json.dumps(to_plain(run), indent=1, ensure_ascii=False), _data_in_words(run)
    if (words := run.objective.cost_in_words(run)) is not None:
        return f"{plain}\n\n{data}\n{words}"
    device, dtype = choose(run.engine.device, run.engine.dtype)
    sizes = run.task.sizes(run, likely=True)
    if run.init and not starts_from_vectors(run):
        sizes = read_card(find_model(run.init)).sizes
    model: Any = build(run.model.name, run.model, sizes, run.head).to(device, dtype)
    count = sum(p.numel() for p in model.parameters())
    held = training_bytes(count, dtype.itemsize)
    seconds = _seconds_per_step(run, model, device, min(sizes))
    ends = f", or {spoken(run.engine.seconds)} in all, if those are over sooner" if run.engine.seconds else ""
    return (
        f"{plain}\n\n{data}\n"
        f"parameters: {count:,} (with {FAMILIES[run.model.name].sized[0].format(f'{sizes[-1]:,}')})\n"
        f"memory for weights, gradients and optimiser: {held / 2**20:,.0f} MiB, activations beside it\n"
        f"time on {device}: about {seconds:.3f} s a step, {spoken(run.engine.steps * seconds)} "
        f"for {run.engine.steps:,} steps{ends}, validation beside it (measured on a few steps of random values)"
    )


def _data_in_words(run: Run) -> str:
    """Whether the data is available. A missing file of the user's is an error, as in training."""
    look_for_own(run)
    try:
        look_for_known(run)
    except InputError as error:
        return f"data: {error}"
    return f"data: available ({', '.join(files)})" if (files := files_of(run)) else "data: none yet, pass --data"


def _seconds_per_step(run: Run, model: Any, device: torch.device, size: int) -> float:
    batch = run.task.sample(run, size, device)
    step = TrainStep(run.objective.build(model), Masters(model.named_parameters(), run.optimiser))
    return min(timeit.repeat(lambda: float(step(batch, run.engine.accumulate)["loss"]), number=1, repeat=3))
