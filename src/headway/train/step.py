"""One training step, at two speeds: launched kernel by kernel, or replayed as one captured CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from headway import compiling
from headway.data.batches import Batch
from headway.train.objective import Triples
from headway.train.optimiser import Masters
from headway.train.parallel.processes import last_piece, shares

Sums = dict[str, Tensor]


def compiled(objective: nn.Module) -> Any:
    """The objective through torch.compile, with the norm's two sums of its backward as kernels of their own:
    joined, they take longer (20.9 against 19.2 ms a step of `base` on an H200)."""
    import torch._inductor.config as inductor

    known = hasattr(inductor.triton, "mix_order_reduction")
    return compiling.compiled(objective, options={"triton.mix_order_reduction": False} if known else {})


class TrainStep:
    """Forward, backward and update on one global batch, in `parts` pieces whose gradients add up.

    The batch knows its counts before the first piece, so the pieces give the gradient of the whole; several
    processes take their pieces of it each. Returns the sum of every term (over this process's pieces), the
    gradient's norm (`norm`) and whether the step was skipped (`bad`), all still on the device.
    """

    def __init__(self, objective: Callable[[Batch], Triples], masters: Masters) -> None:
        self.objective, self.masters, self.ranks = objective, masters, masters.ranks

    def __call__(self, batch: Batch, parts: int = 1) -> Sums:
        self.masters.zero()
        sums: Sums = {}
        pieces = shares(batch, parts, self.ranks) if parts * self.ranks.count > 1 else [batch]
        for number, piece in enumerate(pieces, 1):
            here = piece.map(lambda tensor: tensor.to(self.masters.device, non_blocking=True))
            with last_piece(self.objective, number == len(pieces)):
                found = self._backward(here, batch)
            for name, value in found.items():
                sums[name] = sums[name] + value if name in sums else value
        norm, bad = self.masters.step(sums["loss"])
        return sums | {"norm": norm, "bad": bad}

    def _backward(self, piece: Batch, batch: Batch) -> Sums:
        triples = self.objective(piece)
        total = sum(weight * value / batch.counts[name] for name, (value, _, weight) in triples.items() if weight)
        assert isinstance(total, Tensor)
        (total * self.ranks.count).backward()  # several processes take the mean of their gradients
        return {name: value.detach() for name, (value, _, _) in triples.items()}


class GraphStep:
    """`TrainStep` captured once for each shape of batch and replayed: no launch costs, which is most of the
    time of a small model. Batches should come in few shapes (`pad_rows`)."""

    warm = 2  # steps of a shape that run plainly before it is captured

    def __init__(self, objective: Callable[[Batch], Triples], masters: Masters) -> None:
        self.plain = TrainStep(objective, masters)
        self.seen: dict[Any, int] = {}
        self.captured: dict[Any, tuple[torch.cuda.CUDAGraph, Batch, Tensor, Sums]] = {}
        self.pool: Any = None

    def __call__(self, batch: Batch, parts: int = 1) -> Sums:
        if parts > 1:
            return self.plain(batch, parts)
        key = tuple(tensor.shape for tensor in tensors_of(batch).values())
        if key not in self.captured:
            self.seen[key] = self.seen.get(key, 0) + 1
            if self.seen[key] <= self.warm:
                return self.plain(batch)
            self._capture(key, batch)
        graph, room, count, sums = self.captured[key]
        given = tensors_of(batch)
        for name, place in tensors_of(room).items():
            if name in given:  # not the count, which is a tensor in the room only
                place.copy_(given[name], non_blocking=True)
        count.fill_(batch.tokens)
        graph.replay()
        return sums

    def _capture(self, key: Any, batch: Batch) -> None:
        device = self.plain.masters.device
        count: Any = torch.full((), float(batch.tokens), device=device)
        # The count is a tensor here: it must be read at each replay, not fixed at capture.
        room = replace(batch.map(lambda tensor: tensor.to(device, copy=True)), tokens=count)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Other threads prepare batches meanwhile: what they allocate is no business of this capture.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            sums = self.plain(room)
        self.pool = self.pool or graph.pool()
        self.captured[key] = (graph, room, count, sums)


def tensors_of(batch: Any) -> dict[str, Tensor]:
    """The tensors of a batch by name; what it has none for is left out."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
