"""Ways to take steps: launched kernel by kernel, or replayed as captured CUDA graphs.

R rows, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from headway.capture import capture
from headway.compiling import compiled
from headway.generate import samples
from headway.generate.pool import Captured, Key, Pool
from headway.models.protocols import Steps
from headway.nn import tap
from headway.nn.cache import FixedCache

Speed = Literal["auto", "plain", "graphs", "compile"]


class PlainStepper:
    """Every step as it is, for just the rows there are."""

    def __init__(self, model: Steps) -> None:
        self.model = model

    def slots(self, count: int) -> int:
        """How many slots a pool for `count` should have."""
        return count

    def length(self, need: int, most: int) -> int:
        """How many ids its rows should have room for."""
        return need

    def size(self, pool: Pool[Any]) -> int:
        """Slots that are stepped for those that are open."""
        return pool.used

    def at_once(self, pool: Pool[Any]) -> int:
        """Steps that are launched together."""
        return 1

    def ahead(self, pool: Pool[Any]) -> bool:
        """Whether steps are launched before the last ones are read: rows must be able to go past their end."""
        return False

    def lease(self, key: Key, make: Callable[[], Pool[Any]]) -> Pool[Any]:
        """A pool for one engine alone."""
        return make()

    def release(self, pool: Pool[Any]) -> None:
        """The engine has done with it."""

    def steps(self, pool: Pool[Any], count: int) -> Tensor:
        """Take steps and return their record. `count` is at most `at_once`."""
        return pool.plain()


class GraphStepper(PlainStepper):
    """Steps captured for each size of view and replayed: nothing is launched, and the device is not asked.

    Slots are a power of two, as are the lengths, so that few graphs serve all; a pool's graphs outlive a batch and
    follow the model's weights, which are changed in place. Where all sampled rows have one chain, the graph is the
    whole step; otherwise it ends with the logits, and tokens are chosen outside, since every mixture of chains would be
    a graph of its own. What cannot be captured is stepped plainly. For one thread at a time.
    """

    most = 4  # idle pools kept
    most_graphs = 24  # of a pool

    def __init__(self, model: Steps, predict: Callable[..., Tensor] = samples.predict) -> None:
        """`predict` may be another way to the same logits, such as a compiled one."""
        super().__init__(model)
        self.predict = predict
        self.idle: OrderedDict[Key, list[Pool[Any]]] = OrderedDict()

    def slots(self, count: int) -> int:
        return _power_of_two(count)

    def length(self, need: int, most: int) -> int:
        return min(most, max(64, _power_of_two(need)))

    def size(self, pool: Pool[Any]) -> int:
        return min(pool.slots, _power_of_two(len(pool))) if pool.capturable else len(pool)

    def at_once(self, pool: Pool[Any]) -> int:
        return pool.at_once if pool.capturable else 1

    def ahead(self, pool: Pool[Any]) -> bool:
        return pool.capturable

    def lease(self, key: Key, make: Callable[[], Pool[Any]]) -> Pool[Any]:
        waiting = self.idle.get(key)
        return waiting.pop() if waiting else make()

    def release(self, pool: Pool[Any]) -> None:
        pool.clear()
        if pool.capturable:
            self.idle.setdefault(pool.key, []).append(pool)
            self.idle.move_to_end(pool.key)
            while sum(map(len, self.idle.values())) > self.most:
                self.idle.popitem(last=False)

    def steps(self, pool: Pool[Any], count: int) -> Tensor:
        if not pool.capturable:
            return pool.plain()
        tap.closed()
        return pool.replay(self._captured(pool, count), count)

    def _captured(self, pool: Pool[Any], count: int) -> Captured:
        slots = min(pool.slots, _power_of_two(len(pool.entries)))
        bound = self._bound(pool, max(pool.lengths(), default=0) + count + 1)
        source_length = min(pool.source_length, -(-pool.widest() // 16) * 16)
        key = (slots, bound, source_length, pool.capture_key())
        if key not in pool.captured:
            view = pool.rows.first(slots, bound - 1, source_length or None)
            pool.captured[key] = self._capture(pool, view)
        pool.captured.move_to_end(key)
        if len(pool.captured) > self.most_graphs:
            pool.captured.popitem(last=False)
        return pool.captured[key]

    def _bound(self, pool: Pool[Any], need: int) -> int:
        """Positions that a graph reads."""
        size, ratio = pool.bounds
        while size < need:
            size *= ratio
        return min(size, pool.capacity)

    def _capture(self, pool: Pool[Any], view: Any) -> Captured:
        captured = Captured(view)
        step = pool.capture(captured, self.predict)
        # Libraries set themselves up and kernels are compiled at their first call, which must not be captured; what
        # it wrote is taken back.
        saved = [(home, home.clone()) for home in _changed(view, pool.reorders)]
        captured.graph = self._graph(step, lambda: [home.copy_(before) for home, before in saved])
        return captured

    def _graph(self, step: Callable[[], None], restore: Callable[[], Any]) -> Any:
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            step()
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with capture(graph):
            step()
        restore()
        return graph


def _changed(view: Any, caches: bool) -> list[Tensor]:
    """What a step changes. A key or value that it writes is written again by the next, so caches matter only where a
    step reorders them."""
    found = [*view.tensors().values(), *view.state.parts()]
    if view.state.clock is not None:
        found.append(view.state.clock.lengths_R)
    if caches:
        kept = (slot.kv_2CRHK for slot in view.state if isinstance(slot, FixedCache))
        found += [kv_2CRHK for kv_2CRHK in kept if kv_2CRHK is not None]
    return found


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def compiled_predict() -> Callable[..., Tensor]:
    """`predict` through torch.compile, for capture: without graphs of the compiler's own; products of one row become
    sums that norms, biases and activations are fused into."""
    options: Any = {"triton.cudagraphs": False, "coordinate_descent_tuning": True}
    return compiled(samples.predict, dynamic=False, options=options)


def stepper_for(model: Steps, device: torch.device, speed: Speed = "auto") -> PlainStepper:
    if speed == "plain" or (speed == "auto" and device.type != "cuda"):
        return PlainStepper(model)
    return GraphStepper(model, compiled_predict() if speed == "compile" else samples.predict)
