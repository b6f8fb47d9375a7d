"""Taps: places in a forward where a recorder may look, without the module storing anything.

A part calls `tap.save(self, "weights", tensor, axes)`; while nobody records, `tap.recording()` is False and
parts take their fast path. Names come from the model's own module tree: `decoder.3.cross.weights`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass
class Recorder:
    """What was tapped: tensors by `stack.layer.site.tensor`, and the axes of each."""

    names: dict[int, str]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def save(self, module: nn.Module, what: str, tensor: Tensor, axes: tuple[str, ...]) -> None:
        if id(module) not in self.names:
            return
        name = f"{self.names[id(module)]}.{what}"
        self.tensors[name] = tensor.detach()
        self.axes[name] = axes


_recorders: list[Recorder] = []


def recording() -> bool:
    return bool(_recorders)


def save(module: nn.Module, what: str, tensor: Tensor, axes: tuple[str, ...]) -> None:
    for recorder in _recorders:
        recorder.save(module, what, tensor, axes)


@contextmanager
def record(model: nn.Module) -> Iterator[Recorder]:
    """Open the taps of every part of `model` for the calls made inside."""
    recorder = Recorder({id(part): path.replace(".layers.", ".") for path, part in model.named_modules()})
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)
