"""What steps add up to between two lines of the log."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from headway.train.parallel.ranks import ALONE, Ranks
from headway.train.step import Sums

ALIKE = ("steps", "norm")  # the same in every process; the other terms are sums of their shares


class Meter:
    """Sums that stay on the device until somebody reads them. Steps that were skipped count nowhere."""

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
        terms = torch.stack([bad + 1, *(value.detach() for name, value in sums.items() if name != "bad")])
        terms = torch.where(bad > 0, torch.zeros_like(terms), terms)
        counted = (1 - bad) * tokens
        if self.sums:
            torch._foreach_add_([self.sums["terms"], self.sums["tokens"]], [terms, counted])
        else:
            self.sums = {"terms": terms, "tokens": counted}
        self.names = ["steps", *(name for name in sums if name != "bad")]
        self.tokens += tokens

    def go_on(self, names: list[str], parts: list[dict[str, Tensor]], device: torch.device) -> None:
        """Take over what every process had added. Of another number of processes the first takes all shares."""
        mine = parts[0] if len(parts) != self.ranks.count else parts[self.ranks.rank]
        self.names, self.sums = names, {name: tensor.to(device) for name, tensor in mine.items()}
        if len(parts) != self.ranks.count and self.sums:
            every = torch.stack([part["terms"] for part in parts]).sum(0).to(device)
            alike = torch.tensor([name in ALIKE for name in names], device=device)
            shares = every if self.ranks.first else torch.zeros_like(every)
            self.sums["terms"] = torch.where(alike, self.sums["terms"], shares)

    def read(self) -> dict[str, float]:
        """Means over what was added since the last reading: terms per token, the gradient's norm per step."""
        mine = dict(zip(self.names, self.sums["terms"].tolist(), strict=True))
        every = dict(zip(self.names, self.ranks.total(self.sums["terms"]).tolist(), strict=True))
        tokens, rate = float(self.sums["tokens"]), self.tokens / (time.perf_counter() - self.started)
        self.reset()
        steps, norm = mine["steps"] or float("nan"), mine["norm"]
        per_token = {n: value / (tokens or float("nan")) for n, value in every.items() if n not in ALIKE}
        return per_token | {"gradient": norm / steps, "tokens_per_second": rate}
