"""Scaling laws: how the loss of a model falls with its weights N and with the tokens D that it learns from.

    L(N, D) = E + A/N^α + B/D^β    (Hoffmann et al. 2022, eq. 2)

fitted as they do (approach 3): the sum of Huber losses of log L is minimised over (log E, log A, log B, α, β). Descents
begin where, on a grid of α and β, the other three, which L is linear in, fit best. With C = 6ND operations for a
training, the best share of weights and tokens follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.errors import InputError, refuse

OPERATIONS = 6  # of a weight and a token, forwards and backwards
DELTA = 1e-3  # of the Huber loss
EXPONENTS = torch.linspace(0.05, 1.2, 24, dtype=torch.float64)  # where a descent may begin
SMALLEST = 1e-3  # share of the loss that each term must have somewhere
STEEPEST = 2.0  # exponents: beyond it a term is only there for the smallest run
LEAST = 5  # runs, as many as there are unknowns
STEPS = 300


@dataclass(frozen=True)
class Trained:
    """A run: its weights, the tokens that it learned from, and the loss that it reached."""

    weights: float
    tokens: float
    loss: float

    @property
    def operations(self) -> float:
        return OPERATIONS * self.weights * self.tokens


@dataclass(frozen=True)
class Law:
    """L = E + A/N^α + B/D^β."""

    e: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, weights: float, tokens: float) -> float:
        return self.e + self.a / weights**self.alpha + self.b / tokens**self.beta

    def best(self, operations: float) -> tuple[float, float]:
        """The weights and tokens of least loss for so many operations (eq. 4)."""
        share = self.beta / (self.alpha + self.beta)
        gain = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        weights = gain * (operations / OPERATIONS) ** share
        return weights, operations / OPERATIONS / weights

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def fitted(runs: Sequence[Trained], descents: int = 4) -> Law:
    """The law of these runs, the best of so many descents."""
    refuse(len(runs) < LEAST, f"{len(runs)} runs are too few for five unknowns: give at least {LEAST}")
    sizes = {(run.weights, run.tokens) for run in runs}
    differ = len({weights for weights, _ in sizes}) > 1 and len({tokens for _, tokens in sizes}) > 1
    refuse(not differ, "the runs must differ in their weights and in their tokens")
    refuse(not all(math.isfinite(run.loss) and run.loss > 0 for run in runs), "a run has no finite loss above 0")
    logs = torch.tensor([(run.weights, run.tokens, run.loss) for run in runs], dtype=torch.float64).log().unbind(1)
    found = [_descended(start, *logs) for start in _beginnings(*logs)[:descents]]
    error, unknowns = min(found, key=lambda pair: pair[0])
    wrong = "these runs show no law: the loss must fall with the weights and with the tokens"
    refuse(error == math.inf, f"{wrong}. Longer runs may show one")
    e, a, b, alpha, beta = unknowns.tolist()
    return Law(math.exp(e), math.exp(a), math.exp(b), alpha, beta)


def _beginnings(log_n: Tensor, log_d: Tensor, log_l: Tensor) -> Tensor:
    """(G, 5): for each α and β of the grid the best E, A and B by relative error, the best of them first."""
    alpha_G, beta_G = torch.cartesian_prod(EXPONENTS, EXPONENTS).unbind(1)
    terms_GR3 = torch.stack(torch.broadcast_tensors(
        torch.zeros(1, 1, dtype=torch.float64), -alpha_G[:, None] * log_n, -beta_G[:, None] * log_d
    ), -1)  # fmt: skip
    scale_G13 = terms_GR3.amax(1, keepdim=True)  # numbers near 1, for the solver
    parts_GR3 = (terms_GR3 - scale_G13 - log_l[:, None]).exp()
    solved_G3 = torch.linalg.lstsq(parts_GR3, torch.ones_like(parts_GR3[..., :1])).solution[..., 0]
    logs_G3 = solved_G3.clamp(min=1e-9).log() - scale_G13[:, 0]
    found_G5 = torch.cat([logs_G3, alpha_G[:, None], beta_G[:, None]], 1)
    return found_G5[_error(found_G5, log_n, log_d, log_l).argsort()]


def _error(unknowns: Tensor, log_n: Tensor, log_d: Tensor, log_l: Tensor) -> Tensor:
    e, a, b, alpha, beta = (unknown[..., None] for unknown in unknowns.unbind(-1))
    terms = torch.stack(torch.broadcast_tensors(e, a - alpha * log_n, b - beta * log_d))
    apart = terms.logsumexp(0) - log_l
    return (
        torch.nn.functional.huber_loss(apart, torch.zeros_like(apart), delta=DELTA, reduction="none").sum(-1) / DELTA**2
    )


def _descended(start: Tensor, log_n: Tensor, log_d: Tensor, log_l: Tensor) -> tuple[float, Tensor]:
    """The error and the unknowns at the end of a descent."""
    unknowns = start.clone().requires_grad_()
    exact: dict[str, Any] = {"tolerance_grad": 1e-9, "tolerance_change": 1e-14}
    optimiser = torch.optim.LBFGS([unknowns], max_iter=STEPS, line_search_fn="strong_wolfe", **exact)

    def closure() -> Tensor:
        optimiser.zero_grad()
        found = _error(unknowns, log_n, log_d, log_l)
        found.backward()
        return found

    optimiser.step(closure)
    with torch.no_grad():
        last = float(_error(unknowns, log_n, log_d, log_l))
        _, a, b, alpha, beta = unknowns.tolist()
        least = min(a - alpha * float(log_n.min()), b - beta * float(log_d.min()))  # of the two terms, at most
    falls = 0 < alpha < STEEPEST and 0 < beta < STEEPEST and least > math.log(SMALLEST) + float(log_l.min())
    sound = math.isfinite(last) and falls
    return (last if sound else math.inf), unknowns.detach()


def bootstrapped(runs: Sequence[Trained], wanted: Any, samples: int = 100, seed: int = 0) -> tuple[float, float]:
    """The 90 % interval of what `wanted` says of a law, over laws of runs that are drawn with repetition."""
    draw, found = np.random.default_rng(seed), list[float]()
    for _ in range(samples):
        some = [runs[at] for at in draw.integers(len(runs), size=len(runs))]
        if len({(run.weights, run.tokens) for run in some}) >= LEAST:
            try:
                found.append(float(wanted(fitted(some, descents=1))))
            except (InputError, OverflowError):  # these runs alone show no law
                continue
    low, high = np.nanpercentile(found, [5, 95]) if found else (math.nan, math.nan)
    return float(low), float(high)
