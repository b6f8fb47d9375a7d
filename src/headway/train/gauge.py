"""How well a run uses its machine: operations per second against the measured peak, and memory."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

from headway.batch import Batch
from headway.nn.weights import buffers_of
from headway.random_states import put_states, take_states

ROWS = 8  # of a batch that are enough to count the operations of one token


def operations_per_token(objective: Any, batch: Batch, device: torch.device) -> float:
    """Multiplications and additions in matrix products for one target token, forward and backward, counted on a few
    rows. The random generators, gradients and carried states stay as they were."""
    from headway.evaluate.flops import FlopCounter

    facts, states = take_states(device)
    kept = {name: tensor.clone() for name, tensor in objective.carried().items()}
    buffers = {name: buffer.clone() for name, buffer in buffers_of(objective).items()}
    few = batch.rows(0, ROWS).map(lambda tensor: tensor.to(device))
    was_training = objective.training
    objective.train()
    counter = FlopCounter()
    try:
        with counter:
            losses = sum(value for value, weight in objective(few).values() if weight)
            weights = [weight for weight in objective.parameters() if weight.requires_grad]
            torch.autograd.grad(losses, weights, allow_unused=True)
    finally:
        objective.train(was_training)
        objective.resume(kept)
        for name, buffer in buffers_of(objective).items():
            buffer.copy_(buffers[name])
        put_states(device, facts, states)
    return counter.get_total_flops() / max(few.tokens, 1)


def measured_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.2) -> float:
    """Operations a second of one large matrix product, the best of some tries."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = torch.ones(size, size, device=device, dtype=dtype), torch.ones(size, size, device=device, dtype=dtype)
    best, until = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < until:
        _wait(device)
        start = time.perf_counter()
        a @ b
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory(device: torch.device) -> int:
    """Peak memory of this process in bytes: of the GPU, or resident; 0 on a system that does not count it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Gauge:
    """Turns tokens per second into a share of the machine's peak, which is measured at the first batch."""

    def __init__(self, objective: nn.Module, device: torch.device, dtype: torch.dtype, processes: int = 1) -> None:
        self.objective, self.device, self.dtype, self.processes = objective, device, dtype, processes
        self._per_token: float | None = None
        self._peak = 0.0

    def measure(self, batch: Batch) -> None:
        """Count operations and measure the peak, once."""
        if self._per_token is None:
            self._per_token = operations_per_token(self.objective, batch, self.device)
            self._peak = measured_peak(self.device, self.dtype) * self.processes

    def read(self, tokens_per_second: float) -> dict[str, Any]:
        found: dict[str, Any] = {"memory": memory(self.device)}
        if self._per_token:
            found["of_peak"] = round(tokens_per_second * self._per_token / self._peak, 4)
        return found


def words(figures: dict[str, Any]) -> str:
    """For a progress line: `41 % utilisation, 1.2 GB`."""
    share = f"{100 * figures['of_peak']:.0f} % utilisation, " if "of_peak" in figures else ""
    return f"{share}{figures['memory'] / 1e9:.1f} GB"
