"""A small GPT that reads Shakespeare letter by letter: what the experiments on its parts share.

B rows, T length, V vocabulary.
"""

from __future__ import annotations

import gzip
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.capture import capture
from headway.data.catalog import find
from headway.models.language import NextTokenModel
from headway.train.optimiser import AdamW, Masters, Optimiser

HELD_OUT = 0.1  # of the text, its end


def sized(parser: ArgumentParser, **sizes: float) -> tuple[Namespace, dict[str, Any]]:
    """The options, with one for each size; and the sizes alone, which a record keeps."""
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = parser.parse_args()
    return options, {name: getattr(options, name) for name in sizes}


@dataclass(frozen=True)
class Letters:
    """Its letters as ids, what is learned from and what is held out."""

    train: Tensor
    valid: Tensor
    vocabulary: int

    @classmethod
    def read(cls, device: str) -> Letters:
        path = find("tinyshakespeare/input.txt")
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8")
        letters = sorted(set(text))
        number = {letter: at for at, letter in enumerate(letters)}
        ids = torch.tensor([number[letter] for letter in text], device=device)
        cut = int(len(ids) * (1 - HELD_OUT))
        return cls(ids[:cut], ids[cut:], len(letters))

    def batch(self, rows: int, length: int, dice: torch.Generator) -> Tensor:
        """Windows from anywhere, one letter longer than what is read."""
        starts_B = torch.randint(len(self.train) - length - 1, (rows,), generator=dice).to(self.train.device)
        return self.train[starts_B[:, None] + torch.arange(length + 1, device=self.train.device)]

    def windows(self, length: int, most: int) -> Tensor:
        """Windows of the held-out text side by side, at most so many letters together, each one letter longer."""
        count = max(1, min(most, len(self.valid) - 1) // length)
        return self.valid[: count * length + 1].unfold(0, length + 1, length)


def loss_of(model: NextTokenModel, ids_BT: Tensor) -> Tensor:
    logits_BTV, _ = model(ids_BT[:, :-1])
    return F.cross_entropy(logits_BTV.flatten(0, 1).float(), ids_BT[:, 1:].flatten())


class Captured:
    """Work on a batch of one shape: done plainly twice, then captured as a CUDA graph and replayed."""

    plainly = 2

    def __init__(self, work: Callable[[Tensor], Tensor]) -> None:
        self.work, self.seen = work, 0

    def __call__(self, ids_BT: Tensor) -> Tensor:
        self.seen += 1
        if self.seen <= self.plainly:
            return self.work(ids_BT)
        if self.seen == self.plainly + 1:
            self.room_BT, self.graph = ids_BT.clone(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with capture(self.graph):
                self.found = self.work(self.room_BT)
        self.room_BT.copy_(ids_BT)
        self.graph.replay()
        return self.found.clone()


@dataclass(frozen=True)
class Training:
    """What is the same for every model of an experiment. `rate`: of each step, counted from 1. `rates`, `decays`:
    what that of some weights, and their decay, is multiplied by."""

    steps: int
    rows: int
    length: int
    rate: Callable[[int], float]
    clip: float = 1.0
    seed: int = 1
    optimiser: Optimiser = AdamW(0.9, 0.99, 1e-8, 0.1)
    rates: Mapping[str, float] | None = None
    decays: Mapping[str, float] | None = None

    def run(self, model: NextTokenModel, letters: Letters) -> tuple[list[float], list[float]]:
        """Train it; the loss and, before clipping, the norm of the gradient of every step. Steps whose gradient is not
        finite change nothing."""
        masters = Masters(
            model.named_parameters(), self.optimiser, clip=self.clip, rates=self.rates, decays=self.decays
        )
        dice, found = torch.Generator().manual_seed(self.seed), []

        def work(ids_BT: Tensor) -> Tensor:
            masters.zero()
            loss = loss_of(model, ids_BT)
            loss.backward()
            return torch.stack([loss.detach(), masters.step(loss)[0]])

        model.train()
        step: Callable[[Tensor], Tensor] = Captured(work) if letters.train.is_cuda else work
        for number in range(1, self.steps + 1):
            masters.set_rate(self.rate(number))
            found.append(step(letters.batch(self.rows, self.length, dice)))
        losses, norms = torch.stack(found).T.tolist()
        return losses, norms


@torch.no_grad()
def held_out_loss(model: NextTokenModel, letters: Letters, length: int, most: int = 32_768, rows: int = 16) -> float:
    """Nats a letter, in windows of this length."""
    model.eval()
    windows = letters.windows(length, most)
    losses = [loss_of(model, part) * len(part) for part in windows.split(rows)]
    return float(torch.stack(losses).sum() / len(windows))


def digits(value: Any, count: int = 4) -> Any:
    """A number as a record keeps it; None for what is not finite, which JSON has not."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{count}g}")
