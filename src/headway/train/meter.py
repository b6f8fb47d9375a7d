"""Sums over the steps between two lines of the log."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from headway.train.parallel.ranks import ALONE, Ranks
from headway.train.step import Sums

ALIKE = ("steps", "norm")  # the same in every process; the other terms are sums of their shares


class Meter:
    """Sums that stay on the device until `read`. Skipped steps are not counted."""

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self.reset()

    def reset(self) -> None:
        self.names: list[str] = []
        self.sums: dict[str, Tensor] = {}  # `terms`, in the order of the names, and `tokens`
        self.started, self.tokens = time.perf_counter(), 0

    def add(self, sums: Sums, tokens: int) -> None:
        # Few and small operations: a captured step of a small model takes less time than launching twenty.
        bad = sums["bad"]
        values = [value.detach().to(bad.device) for name, value in sums.items() if name != "bad"]
        terms = torch.stack([bad + 1, *values])
        terms = torch.where(bad > 0, torch.zeros_like(terms), terms)
        self.sums = {"terms": self.sums["terms"].add_(terms) if self.sums else terms}
        self.names = ["steps", *(name for name in sums if name != "bad")]
        self.tokens += tokens

    def resume(self, names: list[str], parts: list[dict[str, Tensor]], device: torch.device) -> None:
        """Restore the sums of every process. With another number of processes the first one takes all shares."""
        if not any(name.startswith("count.") for name in names):  # of a version that counted tokens only
            return
        mine = parts[0] if len(parts) != self.ranks.count else parts[self.ranks.rank]
        self.names, self.sums = names, {name: tensor.to(device) for name, tensor in mine.items()}
        if len(parts) != self.ranks.count and self.sums:
            every = torch.stack([part["terms"] for part in parts]).sum(0).to(device)
            alike = torch.tensor([name in ALIKE for name in names], device=device)
            shares = every if self.ranks.first else torch.zeros_like(every)
            self.sums["terms"] = torch.where(alike, self.sums["terms"], shares)

    def read(self) -> dict[str, float]:
        """Means over what was added since the last reading: each term by its own count, the gradient's norm by step."""
        mine = dict(zip(self.names, self.sums["terms"].tolist(), strict=True))
        every = dict(zip(self.names, self.ranks.reduce(self.sums["terms"]).tolist(), strict=True))
        rate = self.tokens / (time.perf_counter() - self.started)
        self.reset()
        steps, norm = mine["steps"] or float("nan"), mine["norm"]
        terms = [name.removeprefix("count.") for name in every if name.startswith("count.")]
        means = {name: every[name] / (every[f"count.{name}"] or float("nan")) for name in terms}
        return means | {"gradient": norm / steps, "tokens_per_second": rate}
