"""Adadelta (Zeiler 2012): steps as long as earlier steps were, so that no rate need be found.

    v ← ρv + (1 − ρ)g²,    Δ = √(u + ε)/√(v + ε) · g,    u ← ρu + (1 − ρ)Δ²,    w ← w − rate · Δ

Written out, since torch's own does not know the flag of a step that must change nothing (`found_inf`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor


class DeltaSteps(torch.optim.Optimizer):
    """v and u of each weight are in the optimiser's state (`square`, `delta`), saved and restored like any other."""

    found_inf: Tensor | None = None

    def __init__(self, groups: Iterable[Any], lr: Any, rho: float, epsilon: float) -> None:
        super().__init__(groups, {"lr": lr, "rho": rho, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        taken = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, group, taken)

    def _step(self, weight: Tensor, group: dict[str, Any], taken: float | Tensor) -> None:
        state, epsilon = self.state[weight], group["epsilon"]
        if not state:
            state["square"], state["delta"] = torch.zeros_like(weight), torch.zeros_like(weight)
        grad = torch.nan_to_num(weight.grad, 0.0, 0.0, 0.0) * taken  # type: ignore[arg-type]
        share = (1 - group["rho"]) * taken  # 0 in a step that changes nothing
        square, delta = state["square"], state["delta"]
        square.add_((grad.square() - square) * share)
        step = (delta + epsilon).sqrt() / (square + epsilon).sqrt() * grad
        delta.add_((step.square() - delta) * share)
        weight.sub_(step * group["lr"])


@dataclass(frozen=True)
class Adadelta:
    """Zeiler 2012, as Kim (2014) trained with it: the schedule's rate is 1, `optimiser.rho` 0.95."""

    name: ClassVar[str] = "adadelta"
    rho: float = 0.95
    epsilon: float = 1e-6

    def build(self, groups: list[dict[str, Any]], lr: Any, **how: Any) -> torch.optim.Optimizer:
        return DeltaSteps(groups, lr, self.rho, self.epsilon)
