"""Several processes on one run (torchrun): joining them, and wrapping an objective from outside.

The global batch is formed first and shared out after, and knows its counts, so that the gradient does not depend
on the number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from headway.data.batches import PairBatch, pad_rows
from headway.errors import InputError
from headway.train.ranks import ALONE, Ranks, expected

# The first process may validate for long while the others wait; torchrun ends them all when one fails.
PATIENCE = timedelta(hours=6)


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """The processes that torchrun started, each with its own GPU where there are GPUs; or this one alone."""
    if expected() == 1:
        yield ALONE
        return
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise InputError(f"process {local} of this machine has no GPU: it has {torch.cuda.device_count()}")
        torch.cuda.set_device(local)
    dist.init_process_group("cuda:nccl,cpu:gloo" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        words = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield Ranks(dist.get_rank(), dist.get_world_size(), local, words)
    finally:
        dist.destroy_process_group()


def blocks(objective: nn.Module) -> list[nn.Module]:
    """The equal layers that a model is stacked of."""
    return [block for module in objective.modules() if isinstance(module, nn.ModuleList) for block in module]


def recompute_blocks(objective: nn.Module) -> None:
    """Blocks keep only what goes in; their insides are computed again for the gradient, with the same dropout."""
    for block in blocks(objective):
        forward: Callable[..., Any] = block.forward
        block.forward = partial(checkpoint, forward, use_reentrant=False)


def shard_rows(objective: nn.Module) -> None:
    """FSDP2: each process keeps its rows of every weight, and gathers a block's weights when it needs them."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for block in blocks(objective):
        fully_shard(block)
        if hasattr(block, "remember"):
            register_fsdp_forward_method(block, "remember")
    fully_shard(objective)


class Shared:
    """An objective for TrainStep that is one process's part of many."""

    def __init__(self, objective: nn.Module, how: str, ranks: Ranks, device: torch.device) -> None:
        self.how, self.ranks = how, ranks
        self.module: Any = objective
        if how == "ddp":
            from torch.nn.parallel import DistributedDataParallel

            self.module = DistributedDataParallel(objective, device_ids=[device] if device.type == "cuda" else None)

    def __call__(self, piece: PairBatch) -> Any:
        return self.module(piece)

    def last(self, is_last: bool) -> AbstractContextManager[None]:
        """Gradients of all but the last piece of a batch stay here; with the last they are summed."""
        if self.how == "fsdp":
            self.module.set_requires_gradient_sync(is_last)
        elif not is_last:
            return self.module.no_sync()
        return nullcontext()


def last_piece(objective: Any, is_last: bool) -> AbstractContextManager[None]:
    """For an objective that several processes share; any other has nothing to sum."""
    return objective.last(is_last) if isinstance(objective, Shared) else nullcontext()


def shares(batch: PairBatch, parts: int, ranks: Ranks) -> list[PairBatch]:
    """This process's pieces of a global batch: as many in every process, an empty one as a row of padding."""
    pieces = batch.split(parts * ranks.count)
    mine = pieces[ranks.rank :: ranks.count]
    nothing = pieces[0].rows(0, 0)
    return [*mine, *[pad_rows(nothing, 1)] * (parts - len(mine))]
