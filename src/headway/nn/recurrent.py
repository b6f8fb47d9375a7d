"""Recurrent layers: readable cells, and torch's fused kernels as their twins.

A cell computes the next state from a state and an input. While a trace records, cells run step by step and their gates
are saved; otherwise torch's kernels (cuDNN on a GPU) use the same weights. Gates are in torch's order.

B batch, T length, D width of the input, H width of the state, G all gates side by side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from headway.compiling import Uncompiled
from headway.nn import tap
from headway.nn.dropout import dropout
from headway.nn.slots import Values
from headway.nn.state import State

# cuDNN copies the weights into one block of memory at each call, which takes little time beside a layer's steps.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")

ALIGNED = 16  # bytes: for rows that are no multiple of it cuDNN takes slower kernels (in tf32 1.6 times the time)

SHUT = 1e4  # added to a gate: σ is then exactly 0 or 1

Gates = dict[str, Tensor]
LayerState = tuple[Tensor, ...]  # (B, H) each: the hidden vector, and where there is one the cell
Anew = tuple[Tensor, LayerState]  # (B, T), true where a row restarts, and the state that it restarts from


class Cell(nn.Module):
    """Abstract. Maps of the input and of the state for all gates."""

    gates: ClassVar[tuple[str, ...]]
    kernel: ClassVar[Callable[..., tuple[Tensor, ...]]]  # torch's, of all steps
    parts: ClassVar[tuple[str, ...]] = ("hidden",)  # of a state; the first is the layer's output
    own_bias: ClassVar[bool] = False  # whether the map of the state needs a bias beside the input's
    held: ClassVar[dict[str, float]] = {}  # gates that, pushed so, leave the last part of a state as it was

    def __init__(self, inputs: int, width: int, spread: float = 0.0) -> None:
        """Weights are drawn uniformly from ± `spread` (0: 1/√H)."""
        super().__init__()
        self.width, spread = width, spread or width**-0.5
        self.from_input = nn.Linear(inputs, len(self.gates) * width)
        self.from_state = nn.Linear(width, len(self.gates) * width, bias=self.own_bias)
        for weight in self.parameters():
            nn.init.uniform_(weight, -spread, spread)

    def step(self, x_BG: Tensor, state: LayerState, u_GH: Tensor) -> tuple[LayerState, Gates]:
        """The next state, and the gates that made it, from the input's map Wx + b, the state and U."""
        raise NotImplementedError

    def fused(
        self, x: Tensor, sizes: Tensor | None, state: LayerState, u_GH: Tensor, held_BT: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """All steps in one call: of rows `x_BTD`, or of packed rows with their batch `sizes`. `held_BT`: steps that
        leave the last part of the state as it was, where the cell has gates for that."""
        weights = self.weights(u_GH)
        if held_BT is not None and self.held:  # one more input, 1 at these steps, pushes the gates
            push = [weights[0].new_full((self.width, 1), self.held.get(gate, 0.0)) for gate in self.gates]
            weights[0] = torch.cat([weights[0], torch.cat(push)], 1)
            x = torch.cat([x, held_BT[..., None].to(x.dtype)], -1)
        y, *last = _call(self.kernel, x, sizes, [part_BH[None] for part_BH in state], weights)
        return y, tuple(part_1BH[0] for part_1BH in last)

    def weights(self, u_GH: Tensor) -> list[Tensor]:
        """In the order of torch's kernels: W, U and a bias of each."""
        bias_G = self.from_input.bias
        second_G = self.from_state.bias if self.own_bias else torch.zeros_like(bias_G)
        return [self.from_input.weight, u_GH, bias_G, second_G]


@final
class RNNCell(Cell):
    """h' = tanh(Wx + Uh + b) (Elman 1990)."""

    gates = ("candidate",)
    kernel = staticmethod(torch.rnn_tanh)

    def step(self, x_BG: Tensor, state: LayerState, u_GH: Tensor) -> tuple[LayerState, Gates]:
        (h_BH,) = state
        h_BH = torch.tanh(x_BG + h_BH @ u_GH.T)
        return (h_BH,), {}


@final
class LSTMCell(Cell):
    """c' = f ⊙ c + i ⊙ g and h' = o ⊙ tanh(c'), where i, f, o = σ(Wx + Uh + b) and g = tanh(Wx + Uh + b), each with
    weights of its own (Hochreiter and Schmidhuber 1997; the forget gate f: Gers et al. 2000).

    From step to step c is only multiplied by f: where f is 1, its gradient is not diminished.
    """

    gates = ("input", "forget", "candidate", "output")
    parts = ("hidden", "cell")
    kernel = staticmethod(torch.lstm)
    held = {"input": -SHUT, "forget": SHUT}

    def __init__(self, inputs: int, width: int, spread: float = 0.0, forget: float = 0.0) -> None:
        """`forget` is added to that gate's bias, so that a new cell remembers (Jozefowicz et al. 2015)."""
        super().__init__(inputs, width, spread)
        with torch.no_grad():
            self.from_input.bias[width : 2 * width] += forget

    def step(self, x_BG: Tensor, state: LayerState, u_GH: Tensor) -> tuple[LayerState, Gates]:
        h_BH, c_BH = state
        i_BH, f_BH, g_BH, o_BH = (x_BG + h_BH @ u_GH.T).chunk(4, dim=-1)
        i_BH, f_BH, g_BH, o_BH = i_BH.sigmoid(), f_BH.sigmoid(), g_BH.tanh(), o_BH.sigmoid()
        c_BH = f_BH * c_BH + i_BH * g_BH
        return (o_BH * c_BH.tanh(), c_BH), {"input": i_BH, "forget": f_BH, "candidate": g_BH, "output": o_BH}


@final
class GRUCell(Cell):
    """h' = (1 − z) ⊙ n + z ⊙ h, where r, z = σ(Wx + Uh + b) and n = tanh(Wx + b + r ⊙ (Uh + d)) (Cho et al. 2014; the
    reset gate r after the product, as in fused kernels)."""

    gates = ("reset", "update", "candidate")
    kernel = staticmethod(torch.gru)
    own_bias = True
    held = {"update": SHUT}

    def step(self, x_BG: Tensor, state: LayerState, u_GH: Tensor) -> tuple[LayerState, Gates]:
        (h_BH,) = state
        xr_BH, xz_BH, xn_BH = x_BG.chunk(3, dim=-1)
        hr_BH, hz_BH, hn_BH = torch.addmm(self.from_state.bias, h_BH, u_GH.T).chunk(3, dim=-1)
        r_BH, z_BH = (xr_BH + hr_BH).sigmoid(), (xz_BH + hz_BH).sigmoid()
        n_BH = torch.tanh(xn_BH + r_BH * hn_BH)
        return ((1 - z_BH) * n_BH + z_BH * h_BH,), {"reset": r_BH, "update": z_BH, "candidate": n_BH}


# Not compiled: a compiler would unroll the steps, and these kernels are already fused.
@Uncompiled
def _call(
    kernel: Callable[..., tuple[Tensor, ...]], x: Tensor, sizes: Tensor | None, first: list[Tensor],
    weights: list[Tensor],
) -> tuple[Tensor, ...]:  # fmt: skip
    """One layer, one direction, without the kernel's own dropout."""
    learning = torch.is_grad_enabled()  # cuDNN keeps what a gradient needs only on request
    width = weights[1].shape[1]
    x, first, weights = _padded(x, first, weights, alignment(x))
    state = first if len(first) > 1 else first[0]
    if sizes is not None:
        found = kernel(x, sizes, state, weights, True, 1, 0.0, learning, False)
    else:
        found = kernel(x, state, weights, True, 1, 0.0, learning, False, True)
    return tuple(part[..., :width] for part in found)


def alignment(x: Tensor) -> int:
    """The number of elements that a row's length should be a multiple of."""
    return ALIGNED // x.element_size() if x.is_cuda else 1


def _padded(
    x: Tensor, first: list[Tensor], weights: list[Tensor], multiple: int
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The same layer with the numbers of inputs and units rounded up to a multiple. The added units stay 0 in each of
    the cells: they have no weights and start at 0."""
    w_GD, u_GH, *biases = weights
    width = u_GH.shape[1]
    inputs, units = -x.shape[-1] % multiple, -width % multiple
    if not inputs and not units:
        return x, first, weights
    states = [F.pad(part_1BH, (0, units)) for part_1BH in first]
    matrices = [
        F.pad(matrix.unflatten(0, (-1, width)), (0, columns, 0, units)).flatten(0, 1)
        for matrix, columns in ((w_GD, inputs), (u_GH, units))
    ]
    vectors = [F.pad(bias_G.unflatten(0, (-1, width)), (0, units)).flatten() for bias_G in biases]
    return F.pad(x, (0, inputs)), states, matrices + vectors


class RecurrentLayer(nn.Module):
    """h₁ … h_T from x₁ … x_T and h₀, by one cell.

    weight_dropout: share of U that is left out, the same for all steps of a call (DropConnect: Merity et al. 2018).
    holds: padding is read too, with gates that hold the state. It takes more steps than packed rows, but no length is
    read back from the device: a step can be captured.
    """

    def __init__(self, cell: Cell, weight_dropout: float = 0.0, holds: bool = False) -> None:
        super().__init__()
        self.cell, self.weight_dropout, self.holds = cell, weight_dropout, holds

    def forward(
        self, x_BTD: Tensor, state: LayerState | None = None, lengths_B: Tensor | None = None, anew: Anew | None = None
    ) -> tuple[Tensor, LayerState]:
        """The outputs and the state after each row's last step. `state`: 0 without one. `lengths_B`: rows are padded on
        the right; outputs are 0 there. `anew`: where a row restarts, and from which state."""
        if state is None:
            state = tuple(x_BTD.new_zeros(len(x_BTD), self.cell.width) for _ in self.cell.parts)
        u_GH = self.cell.from_state.weight
        if self.training and self.weight_dropout:  # not a module: counters of operations fail at one without parts
            u_GH = dropout(u_GH, self.weight_dropout)
        if tap.recording() or anew is not None:
            return self._readable(x_BTD, state, u_GH, lengths_B, anew)
        state = tuple(part_BH.to(x_BTD.dtype).contiguous() for part_BH in state)
        if lengths_B is None:
            return self.cell.fused(x_BTD, None, state, u_GH)
        return (self._held if self.holds else self._packed)(x_BTD, state, u_GH, lengths_B)

    def _packed(self, x_BTD: Tensor, state: LayerState, u_GH: Tensor, lengths_B: Tensor) -> tuple[Tensor, LayerState]:
        # A packed row has at least one step; an empty row keeps its state.
        given = lengths_B.clamp(min=1).cpu()
        packed = pack_padded_sequence(x_BTD, given, batch_first=True, enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        y, new = self.cell.fused(packed.data, packed.batch_sizes, tuple(part[order] for part in state), u_GH)
        y_BTH, _ = pad_packed_sequence(
            PackedSequence(y, packed.batch_sizes, order, back), batch_first=True, total_length=x_BTD.shape[1]
        )
        there_B = lengths_B > 0
        return y_BTH * there_B[:, None, None], where(there_B, tuple(part[back] for part in new), state)

    def _held(self, x_BTD: Tensor, state: LayerState, u_GH: Tensor, lengths_B: Tensor) -> tuple[Tensor, LayerState]:
        padding_BT = torch.arange(x_BTD.shape[1], device=x_BTD.device) >= lengths_B[:, None]
        y_BTH, new = self.cell.fused(x_BTD, None, state, u_GH, padding_BT)
        y_BTH = y_BTH.masked_fill(padding_BT[..., None], 0.0)
        last_B1H = (lengths_B - 1).clamp(min=0)[:, None, None].expand(-1, 1, y_BTH.shape[-1])
        hidden_BH = y_BTH.gather(1, last_B1H)[:, 0]  # its gates were not held: they give the output
        return y_BTH, where(lengths_B > 0, (hidden_BH, *new[1:]), state)

    def _readable(
        self, x_BTD: Tensor, state: LayerState, u_GH: Tensor, lengths_B: Tensor | None, anew: Anew | None
    ) -> tuple[Tensor, LayerState]:
        x_BTG = self.cell.from_input(x_BTD)
        steps: list[LayerState] = []
        gates: list[Gates] = []
        for t in range(x_BTD.shape[1]):
            if anew is not None:
                state = where(anew[0][:, t], anew[1], state)
            new, opened = self.cell.step(x_BTG[:, t], state, u_GH)
            state = new if lengths_B is None else where(t < lengths_B, new, state)
            steps.append(new)
            gates.append(opened)
        self.save(steps, gates)
        y_BTH = torch.stack([hidden_BH for hidden_BH, *_ in steps], 1)
        if lengths_B is not None:
            y_BTH = y_BTH * (torch.arange(y_BTH.shape[1], device=y_BTH.device) < lengths_B[:, None])[..., None]
        return y_BTH, state

    def save(self, steps: list[LayerState], gates: list[Gates]) -> None:
        """What a trace keeps of the steps: states and gates."""
        seen = {name: [opened[name] for opened in gates] for name in gates[0]}
        seen |= dict(zip(self.cell.parts, map(list, zip(*steps, strict=True)), strict=True))
        for name, values in seen.items():
            if tap.wants(self, name):
                tap.save(self, name, torch.stack(values, 1))


def where(chosen_B: Tensor, yes: LayerState, no: LayerState) -> LayerState:
    return tuple(torch.where(chosen_B[:, None], a_BH, b_BH) for a_BH, b_BH in zip(yes, no, strict=True))


class RecurrentStack(nn.Module):
    """Layers in sequence: each reads the outputs of the one below.

    `inputs`, `between` and `outputs` are slots for dropout, drawn for each step (Zaremba et al. 2014) or once for all
    steps (Gal and Ghahramani 2016). The first state is zero, or `learned`.
    """

    def __init__(
        self, layers: Sequence[RecurrentLayer], inputs: nn.Module, between: nn.Module, outputs: nn.Module,
        learned: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers: Any = nn.ModuleList(layers)
        self.inputs, self.between, self.outputs = inputs, between, outputs
        # Parameters of the stack, not of its layers: they are needed before the layers are called.
        parts = [torch.zeros(layer.cell.width) for layer in layers for _ in layer.cell.parts]
        self.first = nn.ParameterList(parts if learned else [])

    def start(self, rows: int, like: Tensor) -> State:
        """The state before the first token, with the dtype and device of `like`."""
        cells = [layer.cell for layer in self.layers]
        zero = State({"layers": [Values(*(like.new_zeros(rows, cell.width) for _ in cell.parts)) for cell in cells]})
        return zero.of([part_H.expand(rows, -1) for part_H in self.first]) if self.first else zero

    def forward(
        self, x_BTD: Tensor, state: State, lengths_B: Tensor | None = None, anew_BT: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Where `anew_BT` is true a row restarts from the first state."""
        x_BTD = self.inputs(x_BTD)
        parts: list[Tensor] = []
        first = None if anew_BT is None else self.start(len(x_BTD), x_BTD)
        for number, (layer, of_layer) in enumerate(zip(self.layers, state["layers"], strict=True)):
            anew = None if first is None else (anew_BT, first["layers"][number].tensors)
            x_BTD, new = layer(self.between(x_BTD) if number else x_BTD, of_layer.tensors, lengths_B, anew)
            parts += new
        return self.outputs(x_BTD), state.of(parts)
