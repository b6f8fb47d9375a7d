"""One process or many: what a training asks of the others, and what it holds of a sharded tensor.

Alone, every question has its answer at once and costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class Lost(Exception):
    """Another process of this run has ended; this one can only follow."""


@dataclass(frozen=True)
class Ranks:
    """This process among `count`; `group` carries words between hosts (the control group)."""

    rank: int = 0
    count: int = 1
    local: int = 0  # among those of this machine
    group: Any = None

    @property
    def first(self) -> bool:
        """The one that talks and writes what is not sharded."""
        return self.rank == 0

    def largest(self, value: Tensor) -> Tensor:
        """The largest over all processes, on the device."""
        return self._reduce(value, "MAX")

    def total(self, value: Tensor) -> Tensor:
        return self._reduce(value, "SUM")

    def _reduce(self, value: Tensor, how: str) -> Tensor:
        if self.count == 1:
            return value
        import torch.distributed as dist

        value = value.clone()
        dist.all_reduce(value, op=getattr(dist.ReduceOp, how))
        return value

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process (asked on the host)."""
        return self.ask(flag)()

    def ask(self, flag: bool) -> Callable[[], bool]:
        """`any`, asked now and answered when it is called, so that nobody waits for the slowest."""
        if self.count == 1:
            return lambda: flag
        import torch.distributed as dist

        value = torch.tensor(int(flag))
        asked: Any = dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.group, async_op=True)

        def answer() -> bool:
            asked.wait()
            return bool(value.item())

        return answer

    def tell(self, value: Any) -> Any:
        """The first process's value, in all of them."""
        if self.count == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process alone, then the others: what it made they find."""
        if not self.first:
            self.meet()
        yield
        if self.first:
            self.meet()

    def meet(self) -> None:
        """Wait until all are here."""
        if self.count > 1:
            import torch.distributed as dist

            dist.barrier(group=self.group)


ALONE = Ranks()


def expected() -> int:
    """How many processes the launcher (torchrun) has started; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def local(tensor: Any) -> Tensor:
    """This process's rows of a sharded tensor; any other as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def shard(tensor: Any) -> dict[str, Any]:
    """Where this process's rows of a sharded tensor begin, and the shape of the whole."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return {"start": int(offset[0]), "shape": list(tensor.shape)}


def rows_of(like: Any, value: Tensor) -> Tensor:
    """Of a whole tensor the rows that this process has of `like`."""
    if not is_sharded(like):
        return value
    start = shard(like)["start"]
    return value[start : start + len(local(like))]


def whole(like: Any, value: Tensor) -> Tensor:
    """The tensor whose rows of this process are `value`, sharded as `like` is; all processes must ask together."""
    if not is_sharded(like):
        return value
    from torch.distributed.tensor import DTensor

    made: Any = DTensor.from_local(
        value.detach(), like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )
    return made.full_tensor()
