"""Gates and cells over time as a picture: words along the top, units down the side, a panel a gate.

T length, U units.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.evaluate.perplexity import judging
from headway.explore import plots
from headway.explore.plots import QUIET, write
from headway.nn import tap
from headway.traces import LAYERED

Floats = NDArray[np.float64]

OPEN: tuple[str, ...] = ("#f7f3ee", "#f0c9a5", "#e8772e", "#8a3a0c")  # of a gate, from shut to open
SIGNED: tuple[str, ...] = ("#2f6fa3", "#a3c5dd", "#f7f7f7", "#f0b98f", "#c4581a")  # from −1 to 1
CELL, HEIGHT, GAP, ABOVE = 0.13, 1.5, 0.28, 0.5  # inches
MOST_WORDS = 160


def gates_of(model: nn.Module, ids_T: Tensor, layer: int = -1) -> dict[str, Floats]:
    """What a recurrent layer's gates, hidden vector and cell were while it read one text: (T, U) by name, from the
    readable version of its kernels."""
    with judging(model), tap.record(model) as seen:
        model(ids_T[None])
    layered = {name: hit for name in seen.tensors if (hit := LAYERED.match(name))}
    layers = len({hit[2] for hit in layered.values()})
    refuse(not -layers <= layer < layers, f"there is no layer {layer}: this model has {layers}, counted from 0")
    return {
        hit[3]: seen.tensors[name][0].double().cpu().numpy()
        for name, hit in layered.items()
        if int(hit[2]) == layer % layers
    }


def gates_picture(
    gates: Mapping[str, Floats], words: Sequence[str], path: str | Path, *, units: int = 24, title: str = ""
) -> Path:
    """Draw the `units` that change most over the text to `path` as PNG, SVG or PDF."""
    for name, values_TU in gates.items():
        if len(values_TU) != len(words):
            raise InputError(f"'{name}' has {len(values_TU)} steps for {len(words)} words: give as many of each")
    if not gates or not 1 <= len(words) <= MOST_WORDS:
        raise InputError(f"a picture of gates has 1 to {MOST_WORDS} words, not {len(words)}")
    # The same units in every panel: those whose cell (or hidden vector) changes most, in their own order.
    kept_TU = next((gates[name] for name in ("cell", "hidden") if name in gates), next(iter(gates.values())))
    chosen_U = np.sort(np.argsort(-np.std(kept_TU, axis=0))[:units])
    width, height = len(words) * CELL, len(gates) * (HEIGHT + GAP)
    figure = plots.new_figure(width, height + ABOVE)
    for number, (name, all_TU) in enumerate(gates.items()):
        axes = plots.panel(figure, 0, height - (number + 1) * (HEIGHT + GAP), width, HEIGHT)
        values_TU = all_TU[:, chosen_U]
        largest = max(1.0, float(np.abs(values_TU).max()))
        low, high, colours = (-largest, largest, SIGNED) if (values_TU < 0).any() else (0.0, 1.0, OPEN)
        plots.heat(axes, values_TU.T, low, high, colours, line=None)
        write(axes, -1.0, len(chosen_U) / 2, name, 9, ha="right", va="center")
        write(axes, len(words) + 0.5, 0, f"{low:.1f} to {high:.1f}", 6, QUIET, va="top")
        for at, word in enumerate(words if number == 0 else ()):
            write(axes, at + 0.5, -0.5, word, 7, ha="center", va="bottom", rotation=90 if len(word) > 1 else 0)
    if title:
        write(figure, 0, 1, title, 10, va="top")
    return plots.save(figure, path)
