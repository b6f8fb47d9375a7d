"""Several processes on one run (torchrun): joining them, and wrapping an objective from outside.

The global batch is formed first, with its counts, and then split, so that the gradient does not depend
on the number of processes.
"""

from __future__ import annotations

import gc
import inspect
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from headway.batch import Batch
from headway.errors import InputError, refuse
from headway.nn.attention import CrossAttention
from headway.train.parallel.ranks import ALONE, Lost, Ranks, expected

# The first process may validate for long while the others wait; torchrun ends them all when one fails.
PATIENCE = timedelta(hours=6)
MEETING, HERE = "headway/port", "headway/here"


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """The processes that torchrun started, each with its own GPU where there are GPUs; or this one alone.

    A process that fails keeps its connections until it has reported the error and ends; then the others notice.
    """
    if expected() == 1:
        yield ALONE
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        refuse(device.index is not None, f"several processes take a GPU each: write --device cuda, not {device}")
        if local >= torch.cuda.device_count():
            raise InputError(f"process {local} of this machine has no GPU: it has {torch.cuda.device_count()}")
        torch.cuda.set_device(local)
    try:
        backend = "cuda:nccl,cpu:gloo" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE, **_meeting_place())
        ranks = Ranks(dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo", timeout=PATIENCE))
        yield ranks
    except RuntimeError as error:
        if _is_of_another(error):
            raise Lost("another process of this run has ended; its own error, or the launcher, says why") from error
        raise
    dist.destroy_process_group()
    # Threads of a group may still hold tensors; giving one back while Python ends aborts the process
    # (https://github.com/pytorch/pytorch/pull/179291). They end with their group, which training's objects hold too.
    ranks.group = None
    gc.collect()


def _meeting_place() -> dict[str, Any]:
    """Where the processes of this start find each other.

    torchrun keeps one store for all restarts, in which they would find the addresses of those that are gone
    (https://github.com/pytorch/pytorch/issues/135712). So the first opens another one and publishes its port there.
    All waiting is done here: inside torch a process would not react to the signal of the launcher.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    host, rank, count = os.environ["MASTER_ADDR"], int(os.environ["RANK"]), expected()
    notes = dist.TCPStore(host, int(os.environ["MASTER_PORT"]), is_master=False, timeout=PATIENCE)
    if rank == 0:
        store = dist.TCPStore(host, 0, count, is_master=True, wait_for_workers=False)
        notes.set(MEETING, str(store.port))
    else:
        store = _found(notes, host, count)
    store.add(HERE, 1)
    while store.add(HERE, 0) < count:
        time.sleep(0.05)
    return {"store": store, "rank": rank, "world_size": count}


def _found(notes: Any, host: str, count: int) -> Any:
    """The store of this start; the port of an earlier start may still be there, and does not answer."""
    while True:
        if notes.check([MEETING]):
            port = int(notes.get(MEETING))
            with suppress(OSError), socket.create_connection((host, port), timeout=5):
                return dist.TCPStore(host, port, count, is_master=False, timeout=PATIENCE)
        time.sleep(0.1)


def _is_of_another(error: RuntimeError) -> bool:
    """Whether a connection to another process broke."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "connection" in text


def blocks(objective: nn.Module) -> list[nn.Module]:
    """The equal layers that a model is stacked of."""
    return [block for module in objective.modules() if isinstance(module, nn.ModuleList) for block in module]


def recompute_blocks(objective: nn.Module) -> None:
    """Blocks keep only their inputs; activations are computed again for the gradient, with the same dropout."""
    for block in blocks(objective):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def shard_rows(objective: nn.Module) -> None:
    """FSDP2: each process keeps its rows of every weight, and gathers a block's weights when it needs them."""
    from torch.distributed.fsdp import fully_shard

    # What a linear map returns may be a view; it warns of writing to it in place, which nothing here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for block in blocks(objective):
        for part in block.modules():
            if isinstance(part, CrossAttention):
                fully_shard(part.key_value)  # needed before its block is, for the source's keys and values
        fully_shard(block)
    fully_shard(objective)


def shared(objective: nn.Module, how: str, device: torch.device) -> nn.Module:
    """The objective of one of several processes."""
    if how == "fsdp":
        shard_rows(objective)
        return objective
    from torch.nn.parallel import DistributedDataParallel

    on = [device] if device.type == "cuda" else None
    # Buffers are the same in all processes: they need not be sent at each step.
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    still: dict[str, Any] = {name: False}
    return DistributedDataParallel(objective, device_ids=on, **still)


def last_part(objective: Any, is_last: bool) -> AbstractContextManager[None]:
    """Of a `shared` objective the gradients of all but the last part of a batch stay here; with the last part they are
    summed. Any other has nothing to sum."""
    if hasattr(objective, "set_requires_gradient_sync"):  # FSDP
        objective.set_requires_gradient_sync(is_last)
    elif not is_last and hasattr(objective, "no_sync"):  # DDP
        return objective.no_sync()
    return nullcontext()


def shares(batch: Batch, parts: int, ranks: Ranks) -> list[Any]:
    """This process's parts of a global batch: as many in every process, an empty one as a row of padding."""
    mine = batch.split(parts * ranks.count)[ranks.rank :: ranks.count]
    return [*mine, *[batch.rows(0, 0).pad(1)] * (parts - len(mine))]
