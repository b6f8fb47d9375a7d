"""Recurrent decoders: without attention, with attention after the cell or before it, and with input feeding.

R rows, T target length, S source length, D width, G all gates side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.compiling import Uncompiled
from headway.nn import tap
from headway.nn.attention import CrossAttention, Score
from headway.nn.recurrent import Cell, Gates, LayerState, RecurrentLayer, RecurrentStack, where
from headway.nn.slots import Memory, Values
from headway.nn.state import State
from headway.nn.view import View


class SourceAttention(CrossAttention):
    """W_c Σ_s a_s h_s with a = softmax_s(score(W₁d, W₂h_s)). The values are h itself; W₂h is computed once for each
    source. Without `query` or `key` there is no such map."""

    query: Any  # W₁
    key_value: Any  # W₂

    def __init__(self, width: int, score: Score, query: bool = True, key: bool = True) -> None:
        super().__init__(width, 1, bias=False, score=score)
        self.query = self.query if query else nn.Identity()
        self.key_value = nn.Linear(width, width, bias=False) if key else nn.Identity()

    def remember(self, source_BSD: Tensor) -> Memory:
        return Memory(self.key_value(source_BSD)[:, None], source_BSD[:, None])


class AttentiveLayer(RecurrentLayer):
    """A recurrent layer with attention: d̃_t = tanh(W_c c_t + W_d d_t) (Luong et al. 2015, eq. 5)."""

    def __init__(self, cell: Cell, cross: SourceAttention) -> None:
        super().__init__(cell)
        self.cross, self.combine = cross, nn.Linear(cell.width, cell.width)

    def combined(self, mixed_RTD: Tensor, d_RTD: Tensor) -> Tensor:
        return tap.save(self, "attended", torch.tanh(self.cross.out(mixed_RTD) + self.combine(d_RTD)))


class PlainDecoder(RecurrentStack):
    """d_t = cell(E[y_t], d_{t−1}), and nothing of the source but the first state (Sutskever et al. 2014)."""

    def __init__(self, layers: Sequence[RecurrentLayer], dropout: nn.Module) -> None:
        super().__init__(layers, nn.Identity(), dropout, nn.Identity())

    def memories(self, source_BSD: Tensor) -> list[Memory]:
        return []

    def fed(self, like: Tensor) -> list[Values]:
        """What a step gives to the next one beside the layers' states."""
        return []

    def decode(self, x_RTD: Tensor, state: State, view: View, lengths_R: Tensor | None) -> tuple[Tensor, State]:
        """The vectors that the head reads, and the state behind each row's last token."""
        return self(x_RTD, state, lengths_R)


class AfterCell(PlainDecoder):
    """d̃_t = tanh(W_c c_t + W_d d_t), c_t by a query from d_t (Luong et al. 2015). No step needs the attention of the
    step before: with the true target given, all steps are one call of a fused kernel."""

    def memories(self, source_BSD: Tensor) -> list[Memory]:
        return [self.layers[-1].cross.remember(source_BSD)]

    def decode(self, x_RTD: Tensor, state: State, view: View, lengths_R: Tensor | None) -> tuple[Tensor, State]:
        d_RTD, behind = self(x_RTD, state, lengths_R)
        return self.attended(self.between(d_RTD), state, view), behind

    def attended(self, d_RTD: Tensor, state: State, view: View) -> Tensor:
        top, (memory,) = self.layers[-1], state["memories"]
        attended_RTD: Tensor = top.combined(top.cross.mixed(d_RTD, memory, view), d_RTD)
        return attended_RTD


class FedDecoder(AfterCell):
    """Abstract. d_t = cell([E[y_t]; f_t], d_{t−1}), f_t a vector that the attention gives: so each step waits for the
    one before. What does not depend on a state (the part of E[y_t] in the gates, W₂h) is computed for all steps at
    once."""

    def feed(self, d_RD: Tensor, fed_RD: Tensor | None, state: State, view: View) -> Tensor:
        """f_t, from the last layer's d_{t−1} and what the step before has found."""
        raise NotImplementedError

    def find(self, d_RD: Tensor, f_RD: Tensor, state: State, view: View) -> Tensor:
        """What a step finds, from d_t and f_t."""
        raise NotImplementedError

    def read_out(self, d_RTD: Tensor, found_RTD: Tensor) -> Tensor:
        """What the head reads, from d and from what all steps have found."""
        raise NotImplementedError

    def decode(self, x_RTD: Tensor, state: State, view: View, lengths_R: Tensor | None) -> tuple[Tensor, State]:
        d_RTD, found_RTD, parts = _walk(self, x_RTD, state, view, lengths_R)
        return self.read_out(d_RTD, found_RTD), state.of(parts)

    def through(self, x_RG: Tensor, states: list[LayerState]) -> tuple[list[LayerState], list[Gates]]:
        """One step of all layers, from the gates' inputs of the first."""
        new: list[LayerState] = []
        gates: list[Gates] = []
        for number, (layer, before) in enumerate(zip(self.layers, states, strict=True)):
            if number:
                x_RG = layer.cell.from_input(self.between(new[-1][0]))
            after, opened = layer.cell.step(x_RG, before, layer.cell.from_state.weight)
            new.append(after)
            gates.append(opened)
        return new, gates


# Not compiled: a compiler would unroll the steps.
@Uncompiled
def _walk(
    decoder: FedDecoder, x_RTD: Tensor, state: State, view: View, lengths_R: Tensor | None
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """d and what was found at each step, and the parts of the state behind the last."""
    first, width = decoder.layers[0].cell.from_input, x_RTD.shape[-1]
    x_GD, f_GD = first.weight[:, :width], first.weight[:, width:]
    x_TRG = F.linear(x_RTD, x_GD, first.bias).transpose(0, 1)
    states: list[LayerState] = [slot.tensors for slot in state["layers"]]
    fed_RD = next((slot.tensors[0] for slot in state["fed"]), None)
    steps: list[list[LayerState]] = []
    gates: list[list[Gates]] = []
    found: list[Tensor] = []
    taps = StepTaps(decoder.layers[-1])
    for t, x_RG in enumerate(x_TRG.unbind()):
        with taps.step():
            f_RD = decoder.feed(states[-1][0], fed_RD, state, view)
            new, opened = decoder.through(torch.addmm(x_RG, f_RD, f_GD.T), states)
            found_RD = decoder.find(new[-1][0], f_RD, state, view)
        if lengths_R is None:
            states = new
        else:
            states = [where(t < lengths_R, *pair) for pair in zip(new, states, strict=True)]
        if fed_RD is not None:
            fed_RD = found_RD if lengths_R is None else where(t < lengths_R, (found_RD,), (fed_RD,))[0]
        steps.append(new)
        gates.append(opened)
        found.append(found_RD)
    if tap.recording():
        for number, layer in enumerate(decoder.layers):
            layer.save([new[number] for new in steps], [opened[number] for opened in gates])
        taps.save()
    parts = [part for of_layer in states for part in of_layer]
    d_RTD = torch.stack([new[-1][0] for new in steps], 1)
    return d_RTD, torch.stack(found, 1), parts + ([] if fed_RD is None else [fed_RD])


class StepTaps:
    """The taps of a part that is called step by step: `save` gives those of all steps as if they were one call."""

    def __init__(self, part: nn.Module) -> None:
        self.part, self.seen = part, list[tap.Recorder]()

    @contextmanager
    def step(self) -> Iterator[None]:
        if not tap.recording():
            yield
            return
        with tap.record(self.part) as seen:
            self.seen.append(seen)
            yield

    def save(self) -> None:
        for name, axes in self.seen[-1].axes.items():
            tensors = [one.tensors[name] for one in self.seen]
            whole = torch.cat(tensors, axes.index("target")) if "target" in axes else tensors[-1]
            path, _, what = name.rpartition(".")
            tap.save(self.part.get_submodule(path), what, whole, axes)


class BeforeCell(FedDecoder):
    """f_t = c_t, by a query from d_{t−1} (Bahdanau et al. 2015, A.1.2). The read-out is tanh(W_c c_t + W_d d_t), where
    the paper has a maxout layer of d_{t−1}, E[y_t] and c_t."""

    def feed(self, d_RD: Tensor, fed_RD: Tensor | None, state: State, view: View) -> Tensor:
        (memory,) = state["memories"]
        mixed_R1D: Tensor = self.layers[-1].cross.mixed(d_RD[:, None], memory, view)
        return mixed_R1D[:, 0]

    def find(self, d_RD: Tensor, f_RD: Tensor, state: State, view: View) -> Tensor:
        return f_RD

    def read_out(self, d_RTD: Tensor, found_RTD: Tensor) -> Tensor:
        read_RTD: Tensor = self.layers[-1].combined(found_RTD, self.between(d_RTD))
        return read_RTD


class InputFeeding(FedDecoder):
    """f_t = d̃_{t−1}, so that the decoder knows where it has looked (Luong et al. 2015, 3.3); 0 at the first step."""

    def fed(self, like: Tensor) -> list[Values]:
        return [Values(torch.zeros_like(like))]

    def feed(self, d_RD: Tensor, fed_RD: Tensor | None, state: State, view: View) -> Tensor:
        assert fed_RD is not None
        return fed_RD

    def find(self, d_RD: Tensor, f_RD: Tensor, state: State, view: View) -> Tensor:
        return self.attended(self.between(d_RD)[:, None], state, view)[:, 0]

    def read_out(self, d_RTD: Tensor, found_RTD: Tensor) -> Tensor:
        return found_RTD
