"""One training step, at two speeds: launched kernel by kernel, or replayed as one captured CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from headway import compiling
from headway.batch import Batch
from headway.capture import capture
from headway.models.protocols import Terms
from headway.train.optimiser import Masters
from headway.train.parallel.processes import last_part, shares

Sums = dict[str, Tensor]


def compiled(objective: nn.Module) -> Any:
    """The objective through torch.compile, with the norm's two sums of its backward as kernels of their own:
    joined, they take longer (20.9 against 19.2 ms a step of `base` on an H200)."""
    import torch._inductor.config as inductor

    known = hasattr(inductor.triton, "mix_order_reduction")
    return compiling.compiled(objective, options={"triton.mix_order_reduction": False} if known else {})


class TrainStep:
    """Forward, backward and update on one global batch, in `parts` parts whose gradients add up.

    The batch has its counts before the first part, so the parts give the gradient of the whole; several processes take
    their parts of it each. Returns the sum of every term and its count (`count.loss`) over this process's parts, the
    gradient's norm (`norm`) and whether the step was skipped (`bad`), all still on the device.
    """

    def __init__(self, objective: Callable[[Batch], Terms], masters: Masters) -> None:
        self.objective, self.masters, self.ranks = objective, masters, masters.ranks

    def __call__(self, batch: Batch, parts: int = 1) -> Sums:
        self.masters.zero()
        sums: Sums = {}
        mine = shares(batch, parts, self.ranks) if parts * self.ranks.count > 1 else [batch]
        for number, part in enumerate(mine, 1):
            here = part.map(lambda tensor: tensor.to(self.masters.device, non_blocking=True))
            with last_part(self.objective, number == len(mine)):
                found = self._backward(here, here.counts if part is batch else batch.counts)
            for name, value in found.items():
                sums[name] = sums[name] + value if name in sums else value
        norm, bad = self.masters.step(sums["loss"])
        return sums | {"norm": norm, "bad": bad}

    def _backward(self, part: Batch, counts: dict[str, Tensor]) -> Sums:
        """`counts` are those of the whole batch: every part divides by them."""
        terms = self.objective(part.unnamed())
        total = sum(weight * value / counts[name] for name, (value, weight) in terms.items() if weight)
        assert isinstance(total, Tensor)
        (total * self.ranks.count).backward()  # several processes take the mean of their gradients
        sums = {name: value.detach() for name, (value, _) in terms.items()}
        return sums | {f"count.{name}": part.counts[name] for name in terms}


class GraphStep:
    """`TrainStep` captured once for each shape of batch and replayed: no launch costs, which is most of the
    time of a small model. Batches should come in few shapes (`Batch.pad`)."""

    warm = 2  # steps of a shape that run plainly before it is captured

    def __init__(self, objective: Callable[[Batch], Terms], masters: Masters) -> None:
        self.plain = TrainStep(objective, masters)
        self.seen: Counter[Hashable] = Counter()
        self.captured: dict[Hashable, tuple[torch.cuda.CUDAGraph, Batch, Sums]] = {}
        self.pool: Any = None

    def __call__(self, batch: Batch, parts: int = 1) -> Sums:
        if parts > 1:
            return self.plain(batch, parts)
        key = batch.shape()
        if key not in self.captured:
            self.seen[key] += 1
            if self.seen[key] <= self.warm:
                return self.plain(batch)
            self._capture(key, batch)
        graph, room, sums = self.captured[key]
        for (_, place), (_, given) in zip(room.tensors(), batch.tensors(), strict=True):
            place.copy_(given, non_blocking=True)
        graph.replay()
        return sums

    def _capture(self, key: Hashable, batch: Batch) -> None:
        # Every tensor, the counts too, has a place on the device that is filled anew before each replay.
        room = batch.map(lambda tensor: tensor.to(self.plain.masters.device, copy=True))
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with capture(graph, self.pool):
            sums = self.plain(room)
        self.pool = self.pool or graph.pool()
        self.captured[key] = (graph, room, sums)
