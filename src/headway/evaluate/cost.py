"""What a model costs at a length: operations, memory, steps that wait for one another, the longest path.

A training step is a forward pass and a backward pass of twice its products: one for the gradient of the inputs, one for
that of the weights. (A fused attention that makes its scores again does a little more; a first state that is not
learned spares a recurrence a little.)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headway.batch import TextInputs
from headway.errors import InputError
from headway.evaluate.memory import activation_bytes, state_bytes, training_bytes, weight_bytes
from headway.evaluate.operations import Call, Count, count, last_words, shapes_only
from headway.models import FAMILIES
from headway.models.ngram import NGram
from headway.models.skip_gram import SkipGramConfig

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
    both operations. state: bytes that a step hands to the next after so many tokens, `state_per_token` its growth.
    path: hops between the first and the last position (None: the model cannot see so far). unknown: parts that nobody
    has a rule for; the figures are then too low.
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
    """A model as its description alone: nothing of it is in memory."""

    family: str
    config: Any
    vocabularies: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    def build(self) -> nn.Module:
        # Not made and then converted: what has no memory cannot be.
        usual = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            model: nn.Module = FAMILIES[self.family].model(self.config, *self.vocabularies)
        finally:
            torch.set_default_dtype(usual)
        return model

    def inputs(self, batch: int, *lengths: int) -> tuple[Tensor, ...]:
        """What a forward pass reads: ids of each text, or pairs of words with their negatives."""
        if isinstance(self.config, SkipGramConfig):
            (pairs,) = (batch * length for length in lengths)
            shapes: list[tuple[int, ...]] = [(pairs,), (pairs,), (pairs, self.config.negatives)]
        else:
            shapes = [(batch, length) for length in lengths]
        return tuple(torch.zeros(shape, dtype=torch.long) for shape in shapes)

    def size(self) -> Size:
        with torch.device("meta"):
            model = self.build()
        count = sum(weight.numel() for weight in model.parameters())
        return Size(count, weight_bytes(model), training_bytes(count, self.dtype.itemsize))

    def cost(self, length: int, source_length: int | None = None, batch: int = 1) -> Cost:
        if min(length, batch, source_length or 1) < 1:
            raise InputError(f"a cost needs a length and a batch of at least 1, not {length} and {batch}")
        two = len(self.vocabularies) == 2
        if source_length is not None and not two:
            raise InputError(f"a model of the family '{self.family}' has no source: leave the source's length out")
        lengths = (source_length or length, length) if two else (length,)
        try:
            with torch.device("meta"), torch.no_grad():
                model = self.build().eval()
                passed = _passed(model, self.inputs(batch, *lengths))
                with shapes_only(model):
                    state = _state_after(model, batch, lengths)
                    before = _state_after(model, batch, (*lengths[:-1], length - 1))
            learns = any(weight.requires_grad for weight in model.parameters())
            kept = activation_bytes(self.build, partial(self.inputs, batch), *lengths) if learns else 0
        except IndexError as error:
            raise InputError(f"length {length} is too long for this model: {error}") from error
        return _cost(passed, batch, lengths, kept, state, before)


def _cost(count: Count, batch: int, lengths: tuple[int, ...], kept: int, state: int, before: int) -> Cost:
    parts = [Part(name, calls, work.products, work.elements) for name, (calls, work) in count.parts().items()]
    return Cost(
        batch, lengths[-1], lengths[0] if len(lengths) == 2 else None,
        count.products, count.pairs, count.elements, count.steps, count.path(max(lengths)),
        kept, state, state - before, tuple(parts), count.unknown,
    )  # fmt: skip


def _passed(model: nn.Module, inputs: tuple[Tensor, ...]) -> Count:
    if isinstance(model, NGram):
        # No products, and what a pass looks up depends on what is in the tables.
        return Count([Call("", last_words(model, (), None))])
    return count(model, *inputs)


def _state_after(model: Any, batch: int, lengths: tuple[int, ...]) -> int:
    """Bytes of the state when so many tokens have been read; what is not stepped has none."""
    *sources, ids_BT = (torch.zeros(batch, length, dtype=torch.long) for length in lengths)
    if not hasattr(model, "hidden"):
        return 0
    source = TextInputs(sources[0]) if sources else None
    state = model.start(source, batch, ids_BT.device)
    if ids_BT.shape[1]:
        _, state = model.read(ids_BT, state)
    return state_bytes(state)
