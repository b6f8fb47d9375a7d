"""RNN, convolution and attention as layers: operations, steps and paths, by the lecture's formula and counted.

The lecture (C, "Computational cost") gives an order for each: L·d², L·d²·k, L²·d. Beside it stands what real modules of
width d do at length L, and how many of them it takes until information from the first position reaches the last. All
of them are causal, as in a language model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.evaluate.flops import Call, Count, count
from headway.nn.attention import SelfAttention
from headway.nn.view import SEE_ALL


@dataclass(frozen=True)
class Kind:
    """A layer type: its name, the orders of its operations, its steps and its path, and how a real one is built (of
    width d, window k and the number of layers below it). more: what it is called with beside x_BTD. grows: higher
    layers reach further.
    """

    name: str
    order: str
    steps: str
    path: str
    build: Callable[[int, int, int], nn.Module]
    more: tuple[Any, ...] = ()
    grows: bool = False

    def counted(self, layer: nn.Module, length: int, width: int) -> Count:
        return count(layer, torch.zeros(1, length, width), *self.more)


@dataclass(frozen=True)
class LayerCost:
    """`formula` is the order without any factor; `products`, `parameters` and `steps` are counted on one real layer.
    `layers` of them connect the first and the last position, over `path` hops."""

    name: str
    length: int
    width: int
    window: int
    order: str
    formula: int
    products: int
    parameters: int
    steps_order: str
    steps: int
    path_order: str
    path: int
    layers: int


class Convolution(nn.Conv1d):
    """Σ_j W_j x_(t−j·dilation), j = 0 … k − 1: padded on the left alone."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        left = (self.kernel_size[0] - 1) * self.dilation[0]
        return super().forward(F.pad(x_BTD.mT, (left, 0))).mT


class Core(nn.Module):
    """softmax(xxᵀ)x: attention without any maps, which is what the lecture's L²·d stands for."""

    reach = math.inf

    def forward(self, x_BTD: Tensor) -> Tensor:
        return (x_BTD @ x_BTD.mT).softmax(-1) @ x_BTD


class WindowedCore(nn.Module):
    """The same where each position looks at the last `window` positions only: hidden positions cost nothing."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window, self.reach = window, window - 1

    def forward(self, x_BTD: Tensor) -> Tensor:
        before_BSD = F.pad(x_BTD, (0, 0, self.window - 1, 0))
        seen_BTDW = before_BSD.unfold(1, self.window, 1)
        place_T1 = torch.arange(x_BTD.shape[1], device=x_BTD.device)[:, None]
        place_TW = place_T1 + torch.arange(1 - self.window, 1, device=x_BTD.device)
        scores_BT1W = (x_BTD[:, :, None] @ seen_BTDW).masked_fill((place_TW < 0)[:, None], -torch.inf)
        return (scores_BT1W.softmax(-1) @ seen_BTDW.mT).squeeze(2)


def _order(length: int, width: int, window: int) -> dict[str, int]:
    """The lecture's three orders, and the windowed one (Vaswani et al. 2017, table 1)."""
    return {
        "L·d²": length * width**2,
        "L·d²·k": length * width**2 * window,
        "L²·d": length**2 * width,
        "L·k·d": length * window * width,
    }


# fmt: off
KINDS = (
    Kind("RNN", "L·d²", "L", "L", lambda d, k, at: nn.RNN(d, d, batch_first=True)),
    Kind("GRU", "L·d²", "L", "L", lambda d, k, at: nn.GRU(d, d, batch_first=True)),
    Kind("LSTM", "L·d²", "L", "L", lambda d, k, at: nn.LSTM(d, d, batch_first=True)),
    Kind("convolution", "L·d²·k", "1", "L/k", lambda d, k, at: Convolution(d, d, k)),
    Kind("dilated convolution", "L·d²·k", "1", "log_k L", lambda d, k, at: Convolution(d, d, k, dilation=k**at),
         grows=True),
    Kind("attention, core alone", "L²·d", "1", "1", lambda d, k, at: Core()),
    Kind("attention with its maps", "L²·d", "1", "1", lambda d, k, at: SelfAttention(d, 1), (SEE_ALL,)),
    Kind("windowed attention, core", "L·k·d", "1", "L/k", lambda d, k, at: WindowedCore(k)),
)
# fmt: on


# Where the lecture's orders are loose.
LOOSE = (
    "An order leaves factors out: an RNN has two matrices (2·L·d²), a GRU six, an LSTM eight; attention two products.",
    "L²·d is the core alone. With its four maps attention costs 4·L·d² + 2·L²·d, never less than the RNN's 2·L·d²:",
    "its advantages are that no position waits for another, and that the first is one hop away from the last.",
    "'Fewer parameters as long as L ≤ d' is about the core's operations: of parameters it has 4·d², an RNN 2·d².",
)


def compare(length: int, width: int, window: int) -> list[LayerCost]:
    """Every kind of layer at this length, width and window."""
    refuse(min(length, width) < 1, f"a layer needs a length and a width of at least 1, not {length} and {width}")
    refuse(window < 2, f"a window of {window} connects no two positions: take at least 2")
    return [_measure(kind, length, width, window) for kind in KINDS]


def _measure(kind: Kind, length: int, width: int, window: int) -> LayerCost:
    with torch.device("meta"), torch.no_grad():
        layer = kind.build(width, window, 0)
        one = kind.counted(layer, length, width)
        stack = _stack(kind, length, window)
    path = stack.path(length)
    assert path is not None
    return LayerCost(
        kind.name, length, width, window, kind.order, _order(length, width, window)[kind.order],
        one.total("flops") // 2, sum(weight.numel() for weight in layer.parameters()),
        kind.steps, one.total("steps"), kind.path, path, len(stack.calls),
    )  # fmt: skip


def _stack(kind: Kind, length: int, window: int) -> Count:
    """The calls that connect positions, in as many layers as it takes from the first position to the last. How far a
    layer reaches does not depend on its width, so these have width 1."""

    def connections(depth: int) -> list[Call]:
        return [call for call in kind.counted(kind.build(1, window, depth), length, 1).calls if call.span]

    if not kind.grows:
        first = connections(0)
        reach = sum(call.span * call.hops for call in first)
        return Count(first * math.ceil((length - 1) / min(reach, length)))
    found = Count()
    while found.path(length) is None:
        found.calls += connections(len(found.calls))
    return found
