"""Communication between the processes of a run, and a process's rows of a sharded tensor.

With one process every operation returns at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor


class Lost(Exception):
    """Another process of this run has ended, so this one must end too."""


@dataclass
class Ranks:
    """This process among `count`; `group` is for values on the host (gloo), until the processes part."""

    rank: int = 0
    count: int = 1
    group: Any = None

    @property
    def first(self) -> bool:
        """The process that reports, and writes what is not sharded."""
        return self.rank == 0

    def reduce(self, value: Tensor, how: Literal["SUM", "MAX"] = "SUM") -> Tensor:
        """The sum, or the largest, over all processes, on the device."""
        if self.count == 1:
            return value
        value = value.clone()
        dist.all_reduce(value, op=getattr(dist.ReduceOp, how))
        return value

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true in any process (a value on the host)."""
        return self.any_later(flag)()

    def any_later(self, flag: bool) -> Callable[[], bool]:
        """`any`, started now; the result is a function that waits for it, so that no process waits for the slowest."""
        if self.count == 1:
            return lambda: flag
        value = torch.tensor(int(flag))
        asked: Any = dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.group, async_op=True)

        def answer() -> bool:
            asked.wait()
            return bool(value.item())

        return answer

    def broadcast(self, value: Any) -> Any:
        """The first process's value, in all of them."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process runs the block alone, then the others, which find the files that it made."""
        if not self.first:
            self.barrier()
        yield
        if self.first:
            self.barrier()

    def barrier(self) -> None:
        """Wait until all are here."""
        if self.count > 1:
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
    """The tensor whose rows of this process are `value`, sharded as `like` is; all processes must call it together."""
    if not is_sharded(like):
        return value
    from torch.distributed.tensor import DTensor

    made: Any = DTensor.from_local(
        value.detach(), like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )
    return made.full_tensor()
