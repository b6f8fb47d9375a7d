"""Taps: calls in a forward that hand tensors to a recorder, without the module storing anything.

A part calls `tap.save(self, "weights", tensor, axes)`, which returns the tensor: without a recorder a tap costs one
look at a list. Names come from the model's own module tree: `decoder.3.cross.weights`. Tensors that only a trace needs
are built inside `if tap.recording()`, or, where they are costly, `if tap.wants(self, "scores")`.

Axes are named by their role: row, head, target (queries), source (keys), unit, key_unit, vocabulary, label.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import refuse

UNITS = ("row", "target", "unit")  # the axes of a vector for each place
IN_LAYER = re.compile(r"^(.*?)\.layers\.(\d+)(.*)$")


@dataclass(frozen=True)
class Choice:
    """What to keep; None keeps everything.

    tensors: patterns (`*` matches anything) of whole names or of their ends: `weights`, `cross.weights`, `decoder.*`.
    """

    layers: Collection[int] | None = None
    heads: tuple[int, ...] | None = None
    tensors: tuple[str, ...] | None = None

    def takes(self, name: str, layer: int | None) -> bool:
        """Tensors outside of layers (an embedding, the logits) are chosen by their names alone."""
        if self.layers is not None and layer is not None and layer not in self.layers:
            return False
        if self.tensors is None:
            return True
        return any(fnmatchcase(name, wanted) or fnmatchcase(name, f"*.{wanted}") for wanted in self.tensors)


EVERYTHING = Choice()


def chosen(
    layers: Iterable[int] | None = None, heads: Iterable[int] | None = None, tensors: Iterable[str] | str | None = None
) -> Choice:
    """A choice from any iterables, or one pattern. What is named twice is kept once."""
    patterns = (tensors,) if isinstance(tensors, str) else tensors
    return Choice(
        None if layers is None else frozenset(layers),
        None if heads is None else tuple(dict.fromkeys(heads)),
        None if patterns is None else tuple(patterns),
    )


@dataclass
class Recorder:
    """Saved tensors by `stack.layer.site.tensor`, and the axes of each. A later call of the same part replaces the
    tensors of an earlier one."""

    paths: dict[int, tuple[str, int | None, str]]  # of each part: its stack, its layer there, its path in the layer
    choice: Choice = EVERYTHING
    tensors: dict[str, Tensor] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    layer: int | None = None  # the layer that a stack is computing

    def place(self, module: nn.Module, what: str) -> str | None:
        """The name of a tensor; None where the part is not one of this model, or the tensor is not chosen."""
        if id(module) not in self.paths:
            return None
        stack, layer, inside = self.paths[id(module)]
        if layer is not None and self.layer is not None:
            layer = self.layer  # one block may be several layers
        names = (stack, None if layer is None else str(layer), inside, what)
        name = ".".join(name for name in names if name)
        return name if self.choice.takes(name, layer) else None

    def save(self, module: nn.Module, what: str, tensor: Tensor, axes: tuple[str, ...]) -> None:
        name = self.place(module, what)
        if name is None:
            return
        tensor = tensor.detach()
        if self.choice.heads is not None and "head" in axes:
            at = axes.index("head")
            kept = [head for head in self.choice.heads if head < tensor.shape[at]]
            tensor = tensor.index_select(at, torch.tensor(kept, dtype=torch.long, device=tensor.device))
        self.tensors[name], self.axes[name] = tensor, axes


_recorders: list[Recorder] = []


def recording() -> bool:
    return bool(_recorders)


def closed() -> None:
    """Checked before a step is captured or replayed: a recorder would be captured too, or see nothing of a replay."""
    refuse(_recorders, "captured steps cannot be traced: trace a whole text, or use a CPU")


def wants(module: nn.Module, *names: str) -> bool:
    """Whether a recorder keeps one of these tensors of this part."""
    return any(recorder.place(module, name) is not None for recorder in _recorders for name in names)


def save(module: nn.Module, what: str, tensor: Tensor, axes: tuple[str, ...] = UNITS) -> Tensor:
    """The tensor itself, recorded where a recorder wants it."""
    for recorder in _recorders:
        recorder.save(module, what, tensor, axes)
    return tensor


def at_layer(number: int | None) -> None:
    """Called by a stack before each layer; with None after the last."""
    for recorder in _recorders:
        recorder.layer = number


@contextmanager
def record(model: nn.Module, choice: Choice = EVERYTHING) -> Iterator[Recorder]:
    """Record the taps of every part of `model` inside the context. Compiled code then runs uncompiled."""
    model = getattr(model, "_orig_mod", model)  # torch.compile wraps the model
    recorder = Recorder({id(part): _placed(path) for path, part in named_parts(model)}, choice)
    with _uncompiled():
        _recorders.append(recorder)
        try:
            yield recorder
        finally:
            # By identity: two empty recorders are equal.
            _recorders[:] = [other for other in _recorders if other is not recorder]


def named_parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a model by their paths. Those of a model that another one wraps (an encoder below its head) keep
    their own names."""
    wrapped = f"{getattr(model, 'wraps', '')}."
    for path, part in model.named_modules():
        yield path.removeprefix(wrapped), part


def _uncompiled() -> AbstractContextManager[Any]:
    """Where no compiler has been loaded nothing is compiled, and loading one takes seconds."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _placed(path: str) -> tuple[str, int | None, str]:
    """`decoder.layers.3.cross` is the part `cross` of layer 3 of the stack `decoder`."""
    found = IN_LAYER.match(path)
    return (found[1], int(found[2]), found[3].removeprefix(".")) if found else (path, None, "")
