"""Memory of a model: its weights, what training keeps besides, and the state that one step passes to the next."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from headway.nn.mask import triangle
from headway.nn.recurrent import RecurrentLayer

FEW = 4  # steps of a recurrence that are run


def weight_bytes(model: nn.Module) -> int:
    """Each weight once, also where parts share it."""
    return sum(weight.numel() * weight.element_size() for weight in model.parameters())


def training_bytes(parameters: int, element: int) -> int:
    """Weights and gradients, Adam's two moments and, under bfloat16, a float32 copy of each weight and gradient."""
    return parameters * (2 * element + 8 + (0 if element >= 4 else 8))


def state_bytes(state: Any) -> int:
    """Every tensor that a state holds, whatever its structure."""
    found: dict[int, Any] = {}
    waiting = [state]
    while waiting:
        value = waiting.pop()
        if id(value) not in found:
            found[id(value)] = value
            inside = value if isinstance(value, dict) else getattr(value, "__dict__", {})
            waiting += value if isinstance(value, list | tuple) else inside.values()
    return sum(value.numel() * value.element_size() for value in found.values() if isinstance(value, Tensor))


def activation_bytes(build: Callable[[], nn.Module], inputs: Callable[..., tuple[Any, ...]], *lengths: int) -> int:
    """What a forward pass in training keeps for the gradient, weights aside: `inputs(*lengths)` are what is read.

    Counted from what autograd stores while the pass runs on tensors without memory, with the fused attention that
    training uses; the loss, which is computed in chunks, is not in it.
    """
    with torch.device("meta"):
        steps = any(isinstance(part, nn.RNNBase | RecurrentLayer) for part in build().modules())
    if not steps or len(lengths) > 1 or lengths[0] <= FEW:
        return _kept(build, lambda: inputs(*lengths))
    # A recurrence keeps the same amount at every step, and without its kernel a step is slow: a few are enough.
    some, more = (_kept(build, partial(inputs, length)) for length in (FEW // 2, FEW))
    return some + (more - some) * (lengths[0] - FEW // 2) // (FEW // 2)


def _kept(build: Callable[[], nn.Module], inputs: Callable[[], tuple[Any, ...]]) -> int:
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        return tensor

    with _without_memory():
        model = build().train()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            # The result must live until all is counted: a freed storage may be used again.
            result = model(*inputs())
        for tensor in (*model.parameters(), *model.buffers()):
            kept.pop(tensor.untyped_storage()._cdata, None)
        del result
    return sum(kept.values())


@contextmanager
def _without_memory() -> Iterator[None]:
    """Tensors without memory; cached masks of real tensors stay out, and none without memory stays in the cache."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about a setting for AMD GPUs
        triangle.cache_clear()
        try:
            # Without oneDNN: its LSTM keeps memory that these tensors do not show.
            with torch.backends.mkldnn.flags(enabled=False), FakeTensorMode():
                yield
        finally:
            triangle.cache_clear()
