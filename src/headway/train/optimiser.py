"""Optimisers over float32 masters: the one mechanism of precision.

Where a model's weights are bfloat16, the optimiser works on float32 copies and writes them back; where they
are float32 already, the masters are the weights themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba 2015, with the settings of Vaswani et al. 2017, 5.3."""

    name: ClassVar[str] = "adam"
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9

    def build(self, groups: list[dict[str, Any]], **how: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(groups, betas=(self.beta1, self.beta2), eps=self.epsilon, **how)


@dataclass(frozen=True)
class AdamW:
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019); none on norms and biases."""

    name: ClassVar[str] = "adamw"
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    decay: float = 0.01

    def build(self, groups: list[dict[str, Any]], **how: Any) -> torch.optim.Optimizer:
        for group in groups:
            group["weight_decay"] = self.decay if group["decays"] else 0.0
        return torch.optim.AdamW(groups, betas=(self.beta1, self.beta2), eps=self.epsilon, **how)


Optimiser = Adam | AdamW


class Masters:
    """An optimiser with its masters. `step` clips, updates and writes back without a look from the host."""

    def __init__(self, parameters: Iterable[nn.Parameter], config: Optimiser, clip: float = 0.0) -> None:
        self.weights = [p for p in parameters if p.requires_grad]
        self.masters = [p if p.dtype in (torch.float32, torch.float64) else _float_copy(p) for p in self.weights]
        self.clip = clip
        groups: list[dict[str, Any]] = [
            {"params": [m for m in self.masters if (m.ndim >= 2) == decays], "decays": decays}
            for decays in (True, False)
        ]
        self.device = device = self.weights[0].device
        # A rate that lives on the device can be changed under a captured graph.
        rate: Any = torch.zeros((), device=device) if device.type == "cuda" else 0.0
        self.optimiser = config.build(
            [g for g in groups if g["params"]], lr=rate, fused=True, capturable=device.type == "cuda"
        )

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def step(self) -> Tensor:
        """One update from the weights' gradients; returns the gradient's norm, still on the device."""
        copies = [(w, m) for w, m in zip(self.weights, self.masters, strict=True) if m is not w]
        for weight, master in copies:
            if master.grad is None and weight.grad is not None:
                master.grad = torch.empty_like(master)
        if copies:
            torch._foreach_copy_([m.grad for _, m in copies], [w.grad for w, _ in copies])  # type: ignore[misc]
        grads = [m.grad for m in self.masters if m.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads, foreach=True)
        if self.clip > 0:
            torch.nn.utils.clip_grads_with_norm_(self.masters, self.clip, norm, foreach=True)
        self.optimiser.step()
        if copies:
            with torch.no_grad():
                torch._foreach_copy_([w for w, _ in copies], [m for _, m in copies])
        return norm

    def named(self, objective: nn.Module) -> dict[str, Tensor]:
        """The masters under their weights' names in the objective's model, on the CPU."""
        model: Any = objective.get_submodule("model")
        master_of = {id(weight): master for weight, master in zip(self.weights, self.masters, strict=True)}
        return {
            name: master_of.get(id(weight), weight).detach().to("cpu", torch.float32, copy=True).contiguous()
            for name, weight in model.named_parameters()
        }

    def zero(self) -> None:
        for weight in self.weights:
            weight.grad = None


def _float_copy(weight: nn.Parameter) -> Tensor:
    return weight.detach().float().clone().requires_grad_()
