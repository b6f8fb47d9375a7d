"""Gates and cells over time as a picture: words along the top, units down the side, a panel a gate.

T length, U units.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.errors import InputError
from headway.explore.canvas import INK, QUIET, check_path, inches, new_figure, save, write
from headway.models.recurrent import Recurrent
from headway.nn import tap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

OPEN = ("#f7f3ee", "#f0c9a5", "#e8772e", "#8a3a0c")  # of a gate, from shut to open
SIGNED = ("#2f6fa3", "#a3c5dd", "#f7f7f7", "#f0b98f", "#c4581a")  # from −1 to 1
CELL, HEIGHT, GAP, ABOVE = 0.13, 1.5, 0.28, 0.5  # inches
MOST_WORDS = 160


def gates_of(model: Recurrent, ids_T: Tensor, layer: int = -1) -> dict[str, Floats]:
    """What a layer's gates, hidden vector and cell were while it read one text: (T, U) by name, from the readable
    twin of its kernels."""
    layers = len(model.stack.layers)
    if not -layers <= layer < layers:
        raise InputError(f"there is no layer {layer}: this model has {layers}, counted from 0")
    training = model.training
    model.eval()
    with torch.no_grad(), tap.record(model) as seen:
        model(ids_T[None])
    model.train(training)
    prefix = f"stack.{layer % layers}."
    found = {name.removeprefix(prefix): tensor for name, tensor in seen.tensors.items() if name.startswith(prefix)}
    return {name: tensor[0].double().cpu().numpy() for name, tensor in found.items()}


def gates_picture(
    gates: Mapping[str, Floats], words: Sequence[str], path: str | Path, *, units: int = 24, title: str = ""
) -> Path:
    """Draw the `units` that change most over the text to `path` as PNG, SVG or PDF."""
    path = check_path(path)
    for name, values_TU in gates.items():
        if len(values_TU) != len(words):
            raise InputError(f"'{name}' has {len(values_TU)} steps for {len(words)} words: give as many of each")
    if not gates or not 1 <= len(words) <= MOST_WORDS:
        raise InputError(f"a picture of gates has 1 to {MOST_WORDS} words, not {len(words)}")
    chosen_U = _liveliest(gates, units)
    width, height = len(words) * CELL, len(gates) * (HEIGHT + GAP)
    figure = new_figure(width, height + ABOVE)
    for number, (name, values_TU) in enumerate(gates.items()):
        bottom = height - (number + 1) * (HEIGHT + GAP)
        axes = figure.add_axes(inches(figure, 0, bottom, width, HEIGHT))
        _panel(axes, name, values_TU[:, chosen_U])
        if number == 0:
            for at, word in enumerate(words):
                write(axes, at, -1.0, word, 7, ha="center", va="bottom", rotation=90 if len(word) > 1 else 0)
    if title:
        write(figure, 0, 1, title, 10, va="top")
    return save(figure, path)


def _liveliest(gates: Mapping[str, Floats], units: int) -> NDArray[np.int64]:
    """The same units in every panel: those whose cell (or hidden vector) changes most, in their own order."""
    kept = next((gates[name] for name in ("cell", "hidden") if name in gates), next(iter(gates.values())))
    spread_U = np.std(kept, axis=0)
    return np.sort(np.argsort(-spread_U)[:units])


def _panel(axes: "Axes", name: str, values_TU: Floats) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    signed = bool((values_TU < 0).any())
    colours = LinearSegmentedColormap.from_list("gates", SIGNED if signed else OPEN)
    largest = max(1.0, float(np.abs(values_TU).max()))
    low, high = (-largest, largest) if signed else (0.0, 1.0)
    axes.imshow(values_TU.T, aspect="auto", cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    write(axes, -1.5, values_TU.shape[1] / 2, name, 9, INK, ha="right", va="center")
    write(axes, len(values_TU), -0.5, f"{low:.1f} to {high:.1f}", 6, QUIET, ha="left", va="top")
