"""What a model costs: FLOPs, memory, products that wait for one another, the longest path between positions.

A training step is a forward pass and a backward pass of twice its products: one for the gradient of the inputs, one for
that of the weights. (A fused attention that recomputes its scores does a little more; a recurrence whose first state is
not learned does a little less.)
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from headway.batch import TextInputs
from headway.errors import InputError
from headway.evaluate.flops import Call, Count, Part, ShapesOnly, count
from headway.models import FAMILIES
from headway.models.blank import blank
from headway.nn.recurrent import RecurrentLayer
from headway.nn.tiles import tiling_of
from headway.nn.view import triangle

TRAINING = 3  # forward passes that the products of a training step are worth
FEW = 4  # steps of a recurrence that are run
KEPT = (triangle, tiling_of)  # what is kept between calls: of real tensors it stays out, and none without memory stays


@dataclass(frozen=True)
class Cost:
    """Of `batch` rows of `length` tokens (and `source_length` of the source, where there is one).

    products: multiply-adds of matrix products in a forward pass, `pairs` of them between two positions; `flops` counts
    both operations. state: bytes that one step passes to the next after so many tokens, `state_per_token` its growth.
    path: hops between the first and the last position (None: the model cannot see so far). unknown: operators without
    a formula; the figures are then too low.
    """

    batch: int
    length: int
    source_length: int | None
    products: int
    pairs: int
    elements: int
    steps: int
    path: int | None
    activations: int
    state: int
    state_per_token: int
    parts: tuple[Part, ...]
    unknown: tuple[str, ...]

    @property
    def flops(self) -> int:
        return 2 * self.products

    @property
    def training_flops(self) -> int:
        return TRAINING * self.flops

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"flops": self.flops, "training_flops": self.training_flops}


@dataclass(frozen=True)
class Size:
    """What does not depend on a length: parameters, bytes of the weights, and bytes that training holds beside
    activations (weights, gradients, the optimiser's memory)."""

    parameters: int
    weights: int
    training: int


@dataclass(frozen=True)
class Sketch:
    """A model as its description alone: none of its weights is in memory."""

    family: str
    config: Any
    vocabularies: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    head: Any = None  # of an encoder

    def build(self, device: str = "meta") -> Any:
        # Built in this type: a tensor without memory cannot be converted.
        return blank(self.family, self.config, self.vocabularies, torch.device(device), self.dtype, self.head)

    def inputs(self, batch: int, *lengths: int) -> tuple[Tensor, ...]:
        """What a forward pass of this size reads."""
        return FAMILIES[self.family].example(self.config, self.vocabularies, batch, *lengths)

    def size(self) -> Size:
        weights = list(self.build().parameters())  # each once, also where parts share it
        count = sum(weight.numel() for weight in weights)
        return Size(count, sum(weight.nbytes for weight in weights), training_bytes(count, self.dtype.itemsize))

    def cost(self, length: int, source_length: int | None = None, batch: int = 1) -> Cost:
        if min(length, batch, source_length or 1) < 1:
            raise InputError(f"a cost needs a length and a batch of at least 1, not {length} and {batch}")
        family = FAMILIES[self.family]
        if source_length is not None and not family.has_source:
            raise InputError(f"a model of the family '{self.family}' has no source: leave the source's length out")
        lengths = (source_length or length, length) if family.has_source else (length,)
        learns = family.learns != "counting"
        try:
            with torch.device("meta"), torch.no_grad():
                model = self.build()
                # Of a model that is counted: no products, and what a pass looks up depends on what its tables hold.
                passed = count(model, *self.inputs(batch, *lengths)) if learns else Count([Call("", span=model.reach)])
                state, before = (self._state_after(model, batch, *lengths[:-1], read) for read in (length, length - 1))
            kept = self.activations(batch, *lengths) if learns else 0
        except IndexError as error:
            raise InputError(f"length {length} is too long for this model: {error}") from error
        flops, pairs, elements, steps = map(passed.total, ("flops", "pairs", "elements", "steps"))
        return Cost(
            batch, length, lengths[0] if family.has_source else None, flops // 2, pairs // 2, elements, steps,
            passed.path(max(lengths)), kept, state, state - before, passed.parts(), passed.unknown,
        )  # fmt: skip

    def _state_after(self, model: Any, batch: int, *lengths: int) -> int:
        """Bytes of the state after so many tokens; a model without steps has none."""
        if not FAMILIES[self.family].steps:
            return 0
        *sources, ids_BT = self.inputs(batch, *lengths)
        inputs = TextInputs(*sources) if FAMILIES[self.family].has_source else next(iter(sources), None)
        state = model.start(inputs, batch, ids_BT.device)
        if ids_BT.shape[1]:
            with ShapesOnly():
                _, state = model.read(ids_BT, state)
        return state_bytes(state)

    def activations(self, batch: int, *lengths: int) -> int:
        """Bytes that a forward pass in training keeps for the gradient, weights aside.

        Counted from what autograd stores while the pass runs on tensors without memory, with the fused attention that
        training uses; the loss, which is computed in chunks, is not in it.
        """
        steps = any(isinstance(part, nn.RNNBase | RecurrentLayer) for part in self.build().modules())
        if not steps or len(lengths) > 1 or lengths[0] <= FEW:
            return self._kept(batch, *lengths)
        # A recurrence keeps the same amount at every step, and without its kernel a step is slow: a few are enough.
        some, more = (self._kept(batch, length) for length in (FEW // 2, FEW))
        return some + (more - some) * (lengths[0] - FEW // 2) // (FEW // 2)

    def _kept(self, batch: int, *lengths: int) -> int:
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage._cdata] = storage.nbytes()
            return tensor

        _forget()
        try:
            # A warning is about a setting for AMD GPUs. Without oneDNN: its LSTM keeps memory that is not shown here.
            with (
                warnings.catch_warnings(action="ignore", category=UserWarning),
                torch.backends.mkldnn.flags(enabled=False),
                FakeTensorMode(),
            ):
                model = self.build("cpu").train()
                with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                    # The result must live until all is counted: a freed storage may be used again.
                    result = model(*self.inputs(batch, *lengths))
                for tensor in (*model.parameters(), *model.buffers()):
                    kept.pop(tensor.untyped_storage()._cdata, None)
                del result
        finally:
            _forget()
        return sum(kept.values())


def _forget() -> None:
    for function in KEPT:
        function.cache_clear()


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
    return sum(value.nbytes for value in found.values() if isinstance(value, Tensor))
