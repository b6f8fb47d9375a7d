"""Estimates of p(w | h) from counts: parts for one slot, all in the form of Katz (1987) that ARPA files have too.

    log p(w | h) = logp(hw)                       if hw was counted
                   backoff(h) + log p(w | h')     otherwise, h' being h without its first word; backoff of an
                                                  unknown h is 0

An interpolated estimate has this form as well: what was counted has the lower order's share in its logp already.

h history, w word, c count, C histories of one order, N n-grams of one order, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headway.errors import InputError, refuse
from headway.models.counts import Flags, Grams, Ints, continuations

Floats = npt.NDArray[np.float64]
# Of one order: natural logarithms of probabilities, and of back-off weights (none of the highest order).
Weights = tuple[Floats, Floats]

# Taken where a text is too small, or its alphabet, to estimate them (as KenLM does with its fallback discounts).
FALLBACK = (0.5, 1.0, 1.5)


def uniform(possible_V: Flags) -> Floats:
    return possible_V / possible_V.sum()


def _per_history(grams: Grams, values_N: npt.NDArray[np.generic], histories: int) -> Floats:
    return np.bincount(grams.contexts_N, weights=values_N, minlength=histories).astype(np.float64)


def _orders(grams: list[Grams]) -> Iterator[tuple[Grams, int]]:
    """The n-grams of each order, and how many histories they have: the rows of the order below."""
    return zip(grams, [1, *map(len, grams[:-1])], strict=True)


def _logs(found: list[Weights]) -> list[Weights]:
    """Of each order the probabilities, and the back-off weights of its histories. The first of these, that of the empty
    history, is inside of the probabilities of order 1."""
    backoffs = [*(backoff_C for _, backoff_C in found[1:]), np.ones(0)]
    with np.errstate(divide="ignore"):  # the log of nothing is −∞, as it should be
        return [(np.log(p), np.log(b)) for (p, _), b in zip(found, backoffs, strict=True)]


class Estimate:
    """Abstract. `note`: what a reader of its perplexity must know."""

    name: ClassVar[str]
    note: ClassVar[str] = ""

    def estimate(self, grams: list[Grams], possible_V: Flags) -> list[Weights]:
        raise NotImplementedError


@dataclass(frozen=True)
class ModifiedKneserNey(Estimate):
    """p(w | h) = (a(hw) − D(a(hw))) / a(h•) + γ(h) p(w | h'),  γ(h) = Σ_w D(a(hw)) / a(h•)  (Chen and Goodman 1998).

    a is the count in the highest order and the number of different words before hw below it; D is one of three
    discounts, for a = 1, 2 and more, estimated from how many n-grams have a = 1 … 4. Under order 1 lies 1/V.
    """

    name = "kneser-ney"

    def estimate(self, grams: list[Grams], possible_V: Flags) -> list[Weights]:
        lower_N: Floats = uniform(possible_V)
        found: list[Weights] = []
        for (mine, histories), longer in zip(_orders(grams), [*grams[1:], None], strict=True):
            a_N = mine.counts_N if longer is None else continuations(mine, longer)
            taken_N = np.array([0.0, *discounts(a_N)])[np.minimum(a_N, 3)]
            total_C = _per_history(mine, a_N, histories)
            # A history that nothing was counted behind leaves all to the lower order.
            gamma_C = np.where(total_C > 0, _per_history(mine, taken_N, histories) / np.maximum(total_C, 1), 1.0)
            own_N = (a_N - taken_N) / np.maximum(total_C, 1)[mine.contexts_N]
            lower_N = own_N + gamma_C[mine.contexts_N] * (lower_N[mine.shorter_N] if found else lower_N)
            found.append((lower_N, gamma_C))
        return _logs(found)


def discounts(a_N: Ints) -> tuple[float, float, float]:
    """D₁ = 1 − 2Y n₂/n₁, D₂ = 2 − 3Y n₃/n₂, D₃₊ = 3 − 4Y n₄/n₃, Y = n₁/(n₁ + 2n₂), n_k the n-grams with a = k."""
    _, n1, n2, n3, n4 = (int(n) for n in np.bincount(a_N, minlength=5)[:5])
    if not (n1 and n2 and n3 and n4):
        return FALLBACK
    y = n1 / (n1 + 2 * n2)
    found = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
    return found if all(0 < d < k for k, d in enumerate(found, 1)) else FALLBACK


@dataclass(frozen=True)
class AddK(Estimate):
    """p(w | h) = (c(hw) + k) / (c(h) + kV)  (Lidstone 1920; k = 1 is Laplace's).

    No lower order has a say: what was not counted behind h shares its part evenly. So all orders below are even, but
    for histories that open a text, which are as long as they can be.
    """

    name = "add-k"
    k: float = 1.0

    def __post_init__(self) -> None:
        refuse(not self.k > 0, f"model.smoothing.k must be above 0, not {self.k}")

    def estimate(self, grams: list[Grams], possible_V: Flags) -> list[Weights]:
        even_V = uniform(possible_V)
        mass = self.k * possible_V.sum()
        found = []
        for order, (mine, histories) in enumerate(_orders(grams), 1):
            total_C = _per_history(mine, mine.counts_N, histories)
            even_N = even_V[mine.words_N]
            counted_N = (mine.counts_N + mass * even_N) / (total_C + mass)[mine.contexts_N]
            rest_C = mass / (total_C + mass)
            if order < len(grams):
                opens_C = np.zeros(histories, bool)  # the histories that open a text, by what is counted behind them
                opens_C[mine.contexts_N[mine.opens_N]] = True
                rest_C = np.where(opens_C, rest_C, 1.0)
                counted_N = np.where(mine.opens_N, counted_N, even_N)
            found.append((counted_N, rest_C))
        return _logs(found)


@dataclass(frozen=True)
class StupidBackoff(Estimate):
    """S(w | h) = c(hw) / c(h), or α S(w | h') where hw was not counted (Brants et al. 2007).

    Scores, not probabilities: they do not sum to one. A history that was never seen costs no α, as in every ARPA
    file; that is the same for all words behind it.
    """

    name = "stupid-backoff"
    note = "scores of stupid back-off do not sum to one: its perplexity compares with no other"
    alpha: float = 0.4

    def __post_init__(self) -> None:
        refuse(not 0 < self.alpha <= 1, f"model.smoothing.alpha must be above 0 and at most 1, not {self.alpha}")

    def estimate(self, grams: list[Grams], possible_V: Flags) -> list[Weights]:
        return _relative(grams, self.alpha)


@dataclass(frozen=True)
class MaximumLikelihood(Estimate):
    """p(w | h) = c(hw) / c(h): a Markov chain as it was counted, nothing for what was not (deck D's tables)."""

    name = "maximum-likelihood"

    def estimate(self, grams: list[Grams], possible_V: Flags) -> list[Weights]:
        return _relative(grams, 0.0)


@dataclass(frozen=True)
class Given(Estimate):
    """Probabilities that came with a file: nothing is estimated."""

    name = "given"

    def estimate(self, grams: list[Grams], possible_V: Flags) -> list[Weights]:
        raise InputError("model.smoothing=given is for models that were read from a file: name one that counts")


def _relative(grams: list[Grams], weight: float) -> list[Weights]:
    """c(hw) / c(h), and this weight behind every history that something was counted behind."""
    found = []
    for mine, histories in _orders(grams):
        total_C = _per_history(mine, mine.counts_N, histories)
        found.append((mine.counts_N / np.maximum(total_C, 1)[mine.contexts_N], np.where(total_C > 0, weight, 1.0)))
    return _logs(found)


Smoothing = ModifiedKneserNey | AddK | StupidBackoff | MaximumLikelihood | Given
