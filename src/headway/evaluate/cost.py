"""What a model costs at a length: FLOPs, memory, products that wait for one another, the longest path.

A training step is a forward pass and a backward pass of twice its products: one for the gradient of the inputs, one for
that of the weights. (A fused attention that recomputes its scores does a little more; a recurrence whose first state is
not learned does a little less.)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headway.batch import TextInputs
from headway.errors import InputError
from headway.evaluate.flops import Call, Count, ShapesOnly, count
from headway.evaluate.memory import activation_bytes, state_bytes, training_bytes, weight_bytes
from headway.models import FAMILIES, build

TRAINING = 3  # forward passes that the products of a training step are worth


@dataclass(frozen=True)
class Part:
    """Equal parts of all layers together, as one line of a table."""

    name: str
    calls: int
    products: int
    elements: int


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
    activations (weights, gradients, the optimiser's memory). learns: by gradients, not by counting."""

    parameters: int
    weights: int
    training: int
    learns: bool


@dataclass(frozen=True)
class Sketch:
    """A model as its description alone: none of its weights is in memory."""

    family: str
    config: Any
    vocabularies: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    head: Any = None  # of an encoder

    def build(self) -> nn.Module:
        # Built in this type: a tensor without memory cannot be converted.
        default = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            model: nn.Module = build(self.family, self.config, self.vocabularies, self.head)
        finally:
            torch.set_default_dtype(default)
        return model

    def inputs(self, batch: int, *lengths: int) -> tuple[Tensor, ...]:
        """What a forward pass of this size reads."""
        return FAMILIES[self.family].example(self.config, self.vocabularies, batch, *lengths)

    def size(self) -> Size:
        with torch.device("meta"):
            model = self.build()
        count = sum(weight.numel() for weight in model.parameters())
        return Size(count, weight_bytes(model), training_bytes(count, self.dtype.itemsize), _learns(model))

    def cost(self, length: int, source_length: int | None = None, batch: int = 1) -> Cost:
        if min(length, batch, source_length or 1) < 1:
            raise InputError(f"a cost needs a length and a batch of at least 1, not {length} and {batch}")
        family = FAMILIES[self.family]
        if source_length is not None and not family.has_source:
            raise InputError(f"a model of the family '{self.family}' has no source: leave the source's length out")
        lengths = (source_length or length, length) if family.has_source else (length,)
        try:
            with torch.device("meta"), torch.no_grad():
                model = self.build().eval()
                passed = count(model, *self.inputs(batch, *lengths)) if _learns(model) else _looked_up(model)
                state, before = (
                    self._state_after(model, batch, (*lengths[:-1], read)) for read in (length, length - 1)
                )
            kept = activation_bytes(self.build, partial(self.inputs, batch), *lengths) if _learns(model) else 0
        except IndexError as error:
            raise InputError(f"length {length} is too long for this model: {error}") from error
        flops, pairs, elements, steps = map(passed.total, ("flops", "pairs", "elements", "steps"))
        parts = [
            Part(name, len(calls), sum(call.flops for call in calls) // 2, sum(call.elements for call in calls))
            for name, calls in passed.parts().items()
        ]
        return Cost(
            batch, length, lengths[0] if family.has_source else None, flops // 2, pairs // 2, elements, steps,
            passed.path(max(lengths)), kept, state, state - before, tuple(parts), passed.unknown,
        )  # fmt: skip

    def _state_after(self, model: Any, batch: int, lengths: tuple[int, ...]) -> int:
        """Bytes of the state after so many tokens; a model without steps has none."""
        if not FAMILIES[self.family].steps:
            return 0
        *sources, ids_BT = (torch.zeros(batch, length, dtype=torch.long) for length in lengths)
        state = model.start(TextInputs(*sources) if sources else None, batch, ids_BT.device)
        if ids_BT.shape[1]:
            with ShapesOnly():
                _, state = model.read(ids_BT, state)
        return state_bytes(state)


def _learns(model: nn.Module) -> bool:
    """By gradients, not by counting."""
    return any(weight.requires_grad for weight in model.parameters())


def _looked_up(model: Any) -> Count:
    """Of a model that is counted: no products, and what a pass looks up depends on what its tables hold."""
    return Count([Call("", span=model.reach)])
