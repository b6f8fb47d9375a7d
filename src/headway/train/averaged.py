"""Averaged gradient descent: the mean of the weights over steps is better than the weights of any step.

    w ← w − rate · g,    mean ← mean + (w − mean)/n    (Polyak and Juditsky 1992)

n counts the steps since `begin`; until then the mean is the weights themselves. The count lives on the device, so that
a captured step continues to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class AveragedSGD(torch.optim.SGD):
    """torch's SGD, with `mean` and `count` of each weight in its state, saved and restored like any other."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        with torch.no_grad():
            self._average()

    def _average(self) -> None:
        weights, means, counts = self._parts()
        bad: Any = getattr(self, "found_inf", None)
        taken = 1.0 if bad is None else 1.0 - bad
        count = counts[0] + (counts[0] > 0) * taken
        shift = torch._foreach_sub(weights, means)
        torch._foreach_mul_(shift, taken / count.clamp(min=1))
        torch._foreach_add_(means, shift)
        for place in counts:
            place.copy_(count)

    def _parts(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Weights, their means, and how many steps each is the mean of (0: it has not begun)."""
        weights = [weight for group in self.param_groups for weight in group["params"]]
        for weight in weights:
            if "mean" not in self.state[weight]:
                self.state[weight]["mean"] = weight.detach().clone()
                self.state[weight]["count"] = torch.zeros((), device=weight.device)
        states = [self.state[weight] for weight in weights]
        return weights, [state["mean"] for state in states], [state["count"] for state in states]

    @property
    def begun(self) -> bool:
        return bool(self._parts()[2][0] > 0)

    def begin(self) -> None:
        """Start the mean, with the present weights as its first term."""
        weights, means, counts = self._parts()
        with torch.no_grad():
            torch._foreach_copy_(means, weights)
        for count in counts:
            count.fill_(1.0)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside the context the weights are their means; afterwards they are restored."""
        weights, means, _ = self._parts()
        kept = [weight.detach().clone() for weight in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, means)
            try:
                yield
            finally:
                torch._foreach_copy_(weights, kept)
