"""FLOPs of anything that torch runs, counted by torch's own counter in one place.

`FlopCounter` is `torch.utils.flop_counter.FlopCounterMode` with formulas for the operators that it lacks. Given a
model, it also attributes the work to the calls of the model's parts; `count` does that for one forward pass. On the
`meta` device nothing is computed, so a model of any size can be counted.

B batch, T target length, S source length, H heads, D width, K head width.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

Shape = Sequence[int]


def recurrent_flops(x: Shape, weights: Sequence[Shape]) -> int:
    """[x_t, h_(t−1)]W for each gate: every step of every row with every matrix."""
    return 2 * math.prod(x[:-1]) * sum(math.prod(shape) for shape in weights if len(shape) == 2)


# Operators by name: a kernel of our own is known to torch only once its module is imported. Arguments are shapes.
FORMULAS: dict[str, Callable[..., int]] = {
    # Products in place or with a result wider than the factors.
    **dict.fromkeys(("aten.addmm", "aten.addmm_"), lambda total, a, b, *_, **__: 2 * a[0] * a[1] * b[1]),
    # Attention on a CPU.
    "aten._scaled_dot_product_flash_attention_for_cpu": lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": lambda grad, q, k, v, *_, **__: (
        sdpa_backward_flop_count(grad, q, k, v)
    ),
    "aten.mkldnn_rnn_layer": lambda x, w, u, *_, **__: recurrent_flops(x, [w, u]),
    "aten.mkldnn_rnn_layer_backward": lambda x, w, u, *_, **__: 2 * recurrent_flops(x, [w, u]),
    "aten._cudnn_rnn": lambda x, weights, *_, **__: recurrent_flops(x, weights),
    "aten._cudnn_rnn_backward": lambda x, weights, *_, **__: 2 * recurrent_flops(x, weights),
    "headway.product": lambda x_RD, weight_ND, *_, **__: 2 * math.prod(x_RD) * weight_ND[0],
    "headway.attend_prefix": lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    # One query a row against the whole cache (2, S, B, H, K); its shape does not show how full it is.
    "headway.attend_step": lambda qkv, kv, *_, **__: 2 * math.prod(kv),
    **dict.fromkeys(("headway.gelu", "headway.gelu_backward"), lambda *_, **__: 0),
}
# Products of two activations, between positions; with a weight as a factor they are a map of each position instead.
PAIRWISE = {"aten.bmm", "aten.baddbmm"}
# Every element of their result passes through a norm, a softmax, a non-linearity or a running sum.
ELEMENTWISE = {
    "aten.native_layer_norm", "aten.native_batch_norm", "aten._softmax", "aten._safe_softmax", "aten._log_softmax",
    "aten.relu", "aten.gelu", "aten.silu", "aten.tanh", "aten.sigmoid", "aten.log_sigmoid_forward", "aten.cumsum",
}  # fmt: skip
RECURRENT = ("rnn_tanh", "rnn_relu", "lstm", "gru")


def _operator(name: str) -> Any:
    namespace, _, operator = name.partition(".")
    return getattr(getattr(torch.ops, namespace), operator, None)


@dataclass
class Call:
    """One call of a part, without what the parts inside it did.

    flops: of matrix products, two for each multiply-add; `pairs` of them between two positions. elements: numbers that
    pass through a norm, a softmax or a non-linearity. steps: products that wait for one another. span: how many
    positions one hop carries information over (0: positions stay apart), a multiple of `grid`; `hops` of them can
    follow one another.
    """

    path: str
    flops: int = 0
    pairs: int = 0
    elements: int = 0
    steps: int = 0
    span: float = 0
    grid: int = 1
    hops: int = 1


@dataclass(frozen=True)
class Part:
    """Equal parts of all layers together, as one line of a table."""

    name: str
    calls: int
    products: int
    elements: int


@dataclass
class Count:
    """All calls of one pass. unknown: operators outside torch that have no formula; the figures are then too low."""

    calls: list[Call] = field(default_factory=list)
    unknown: tuple[str, ...] = ()

    def total(self, name: str) -> int:
        """The sum of one figure over all calls."""
        return sum(getattr(call, name) for call in self.calls)

    def path(self, length: int) -> int | None:
        """Hops on the shortest path between the two of so many positions that are farthest apart; None: no path."""
        left, hops = length - 1, 0
        for call in sorted((call for call in self.calls if call.span), key=lambda call: -call.span):
            if left == 0:
                break
            span = int(min(call.span, left))
            taken = min(call.hops, math.ceil(left / span))
            # Where a hop is a multiple of the grid, less than one cell of it may be left.
            hops, left = hops + taken, max(left - taken * span, call.grid - 1)
        return None if left else hops

    def parts(self) -> tuple[Part, ...]:
        """Those that did something."""
        found: dict[str, Count] = {}
        for call in self.calls:
            if call.flops or call.elements:
                name = re.sub(r"\.layers\.\d+(?=\.)|\.\d+(?=\.|$)", "", call.path)
                found.setdefault(name, Count()).calls.append(call)
        named = found.items()
        return tuple(Part(name, len(of.calls), of.total("flops") // 2, of.total("elements")) for name, of in named)


class _NoTracker(nullcontext[None]):
    """In place of torch's tracker of modules: `_enter` and `_leave` keep track of the part that is running."""

    parents = ("Global",)


class FlopCounter(FlopCounterMode):
    """Counts inside `with`: `get_total_flops()`; where a model is given, `count` has its parts' calls too."""

    def __init__(self, model: nn.Module | None = None) -> None:
        lacking = {_operator(name): formula for name, formula in FORMULAS.items() if _operator(name) is not None}
        super().__init__(display=False, custom_mapping=lacking)
        self.mod_tracker = _NoTracker()  # type: ignore[assignment]  # torch's fails at weights given to a part
        self.count, self._running, self._hooks = Count(), [Call("")], ExitStack()
        self._paths = {part: path for path, part in model.named_modules()} if model else {}
        self._weights = {weight.untyped_storage()._cdata for weight in model.parameters()} if model else set()

    def __enter__(self) -> FlopCounter:
        for part in self._paths:
            self._hooks.enter_context(part.register_forward_pre_hook(self._enter))
            self._hooks.enter_context(part.register_forward_hook(self._leave))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        self._hooks.close()
        return super().__exit__(*error)

    def _enter(self, part: nn.Module, given: Any) -> None:
        # `reach`: how far a part carries information between positions, as attention does.
        self._running.append(Call(self._paths[part], span=getattr(part, "reach", 0)))
        self.count.calls.append(self._running[-1])

    def _leave(self, *_: Any) -> None:
        self._running.pop()

    def _count_flops(self, operator: Any, result: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """torch calls this for every operator that is not composed of others."""
        call, name = self._running[-1], str(operator)
        if operator in self.flop_registry:
            flops = self.flop_registry[operator](*given, **named, out_val=result)
            weights = (one.untyped_storage()._cdata in self._weights for one in given if isinstance(one, Tensor))
            call.flops, call.steps = call.flops + flops, call.steps + (flops > 0)
            call.pairs += flops if name in PAIRWISE and not any(weights) else 0
            if name == "aten.convolution":
                window, padding, dilation = given[1].shape[-1] - 1, given[4][-1], given[5][-1]
                call.grid, window = dilation, window * dilation
                # Without padding of its own it is taken to be padded on the left alone (a causal convolution).
                call.span = min(window, padding) if padding else window
        elif name in ELEMENTWISE:
            call.elements += (result if isinstance(result, Tensor) else result[0]).numel()
        elif not name.startswith(("aten.", "prim.", "profiler.")):
            self.count.unknown = tuple(dict.fromkeys((*self.count.unknown, name)))
        return super()._count_flops(operator, result, given, named)


class ShapesOnly(TorchFunctionMode):
    """Recurrent kernels give results of the right shape without their steps, of which there may be thousands."""

    def __init__(self, counter: FlopCounter | None = None) -> None:
        super().__init__()
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in RECURRENT:
            return self._recurrent(*args)
        result = func(*args, **(kwargs or {}))
        if name == "rms_norm" and self.counter is not None:  # which torch makes of smaller operators
            self.counter._running[-1].elements += result.numel()
        return result

    def _recurrent(self, x: Tensor, *given: Any) -> tuple[Tensor, ...]:
        """(x, states, weights, …) of rows, or (x, batch sizes, states, weights, …) of packed rows."""
        packed = not isinstance(given[2], bool)
        states, weights, _, layers, _, _, both = given[packed : 7 + packed]
        length = len(given[0]) if packed else x.shape[1 if given[7] else 0]
        states = [states] if isinstance(states, Tensor) else states
        if self.counter is not None:
            call, gates = self.counter._running[-1], len(states[0]) * len(weights[0])
            call.flops += recurrent_flops(x.shape, [weight.shape for weight in weights])
            call.elements += math.prod(x.shape[:-1]) * gates
            # Directions run side by side, layers and steps one after the other.
            call.steps, call.span, call.hops = length * layers, 1, length
        y = x.new_empty(*x.shape[:-1], states[0].shape[-1] * (2 if both else 1))
        return y, *(torch.empty_like(state) for state in states)


def count(model: nn.Module, *inputs: Any) -> Count:
    """One forward pass of the model, by its parts."""
    with FlopCounter(model) as counter, ShapesOnly(counter):
        model(*inputs)
    return counter.count
