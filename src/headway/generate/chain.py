"""The sampling chain: small pure functions from logits to logits, one after the other in a plain list.

A link is a frozen dataclass, called with the logits of the next token and the past of each row; what it forbids
gets −∞. `Sampling` holds the usual settings and builds their chain; any other list of links does as well.

R rows, V vocabulary, L room for ids, S sequences, Q length of the longest of them, W windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import torch
from torch import Tensor

Ids = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Past:
    """The ids so far of each row, the prompt's first; behind a row's length stands anything."""

    ids_RL: Tensor
    lengths_R: Tensor
    prompts_R: Tensor  # how many of them are the prompt's

    def rows(self, rows_G: Tensor) -> Past:
        return Past(*(getattr(self, f.name)[rows_G] for f in fields(self)))

    def tail(self, count: int) -> Tensor:
        """The last ids of each row; where a row is shorter, its first one stands in."""
        steps = torch.arange(-count, 0, device=self.ids_RL.device)
        return self.ids_RL.gather(1, (self.lengths_R[:, None] + steps).clamp(min=0))

    def counts(self, vocabulary: int, new: bool = False) -> Tensor:
        """How often each row has each token, in all or only after its prompt."""
        at_L = torch.arange(self.ids_RL.shape[1], device=self.ids_RL.device)
        there_RL = at_L < self.lengths_R[:, None]
        if new:
            there_RL = there_RL & (at_L >= self.prompts_R[:, None])
        return _tally(self.ids_RL, there_RL, vocabulary)


Link = Callable[[Tensor, Past], Tensor]


def apply(chain: Sequence[Link], logits_RV: Tensor, past: Past) -> Tensor:
    for link in chain:
        logits_RV = link(logits_RV, past)
    return logits_RV


def _tally(ids_RW: Tensor, counted_RW: Tensor, vocabulary: int) -> Tensor:
    """For each row and token the number of places that hold it and are counted. Ids elsewhere may be anything."""
    counts_RV = torch.zeros(len(ids_RW), vocabulary, dtype=torch.int32, device=ids_RW.device)
    return counts_RV.scatter_add_(1, ids_RW.where(counted_RW, 0), counted_RW.int())


@dataclass(frozen=True)
class LogitBias:
    """z(v) + b for each sequence (…, v) whose ids before v are the row's last ones; a sequence may be one id."""

    biases: tuple[tuple[Ids, float], ...]

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        prefix_SQ, there_SQ, last_S, amount_S = _bias_table(self.biases, logits_RV.device)
        same_RSQ = (past.tail(prefix_SQ.shape[1])[:, None] == prefix_SQ) | ~there_SQ
        match_RS = same_RSQ.all(-1) & (past.lengths_R[:, None] >= there_SQ.sum(-1))
        amount_RS = amount_S.to(logits_RV.dtype).where(match_RS, 0.0)
        return logits_RV.scatter_add(1, last_S.expand(len(logits_RV), -1), amount_RS)


@dataclass(frozen=True)
class Repetition:
    """z/θ where z > 0, else z·θ, for every token that the row already has, prompt or new (Keskar et al. 2019, 4.1;
    the paper divides negative logits too, which would favour them)."""

    penalty: float

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        seen_RV = past.counts(logits_RV.shape[1]) > 0
        less_RV = torch.where(logits_RV < 0, logits_RV * self.penalty, logits_RV / self.penalty)
        return torch.where(seen_RV, less_RV, logits_RV)


@dataclass(frozen=True)
class Presence:
    """z − α for every token that was written at least once (OpenAI's definition): the prompt does not count."""

    penalty: float

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        return logits_RV - self.penalty * (past.counts(logits_RV.shape[1], new=True) > 0)


@dataclass(frozen=True)
class Frequency:
    """z − α · times written (OpenAI's definition): the prompt does not count."""

    penalty: float

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        return logits_RV - self.penalty * past.counts(logits_RV.shape[1], new=True)


@dataclass(frozen=True)
class NoRepeat:
    """Forbids every token that would end an n-gram which the row already has, prompt or new (Paulus et al. 2018)."""

    size: int

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        if past.ids_RL.shape[1] < self.size:
            return logits_RV
        window_RWn = past.ids_RL.unfold(1, self.size, 1)
        end_W = torch.arange(self.size, self.size + window_RWn.shape[1], device=logits_RV.device)
        same_RW = (window_RWn[..., :-1] == past.tail(self.size - 1)[:, None]).all(-1)
        whole_RW = end_W <= past.lengths_R[:, None]
        banned_RV = _tally(window_RWn[..., -1], same_RW & whole_RW, logits_RV.shape[1]) > 0
        return logits_RV.masked_fill(banned_RV, -math.inf)


@dataclass(frozen=True)
class Choice:
    """Only what continues one of the given sequences: what was written so far is a path from the root of their
    trie, and its branches are allowed. Each sequence should end with the token that ends a row: after the last one
    nothing is left."""

    sequences: tuple[Ids, ...]

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        ids_SQ, sizes_S = _choice_table(self.sequences, logits_RV.device)
        at_Q = torch.arange(ids_SQ.shape[1], device=logits_RV.device)
        written_R = past.lengths_R - past.prompts_R
        from_RQ = (past.prompts_R[:, None] + at_Q).clamp(max=past.ids_RL.shape[1] - 1)
        same_RSQ = past.ids_RL.gather(1, from_RQ)[:, None] == ids_SQ
        on_path_RS = (same_RSQ | (at_Q >= written_R[:, None])[:, None]).all(-1) & (written_R[:, None] < sizes_S)
        next_RS = ids_SQ[:, written_R.clamp(max=len(at_Q) - 1)].T
        allowed_RV = _tally(next_RS, on_path_RS, logits_RV.shape[1]) > 0
        return logits_RV.masked_fill(~allowed_RV, -math.inf)


@dataclass(frozen=True, eq=False)
class Allowed:
    """Only these ids: what a constraint leaves to a row at one step."""

    ids_A: Tensor

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        return torch.full_like(logits_RV, -math.inf).index_copy(1, self.ids_A, logits_RV[:, self.ids_A])


@dataclass(frozen=True)
class Temperature:
    """z/τ (Ackley et al. 1985)."""

    value: float

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        return logits_RV / self.value


@dataclass(frozen=True)
class Greedy:
    """Only the largest logit, the first of equal ones: the limit of a temperature that goes to 0."""

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        at_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
        return logits_RV.masked_fill(at_V != logits_RV.argmax(-1, keepdim=True), -math.inf)


@dataclass(frozen=True)
class TopK:
    """The k largest, and what equals the least of them (Fan et al. 2018)."""

    count: int

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        least_R1 = logits_RV.topk(min(self.count, logits_RV.shape[1])).values[:, -1:]
        return logits_RV.masked_fill(logits_RV < least_R1, -math.inf)


@dataclass(frozen=True)
class TopP:
    """The fewest most likely tokens whose probabilities sum to p or more (Holtzman et al. 2020)."""

    mass: float

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        sorted_RV, ids_RV = logits_RV.sort(descending=True, stable=True)
        p_RV = sorted_RV.softmax(-1)
        out_RV = p_RV.cumsum(-1) - p_RV >= self.mass  # those before it have the mass already
        return logits_RV.masked_fill(out_RV.scatter(1, ids_RV, out_RV), -math.inf)


@dataclass(frozen=True)
class MinP:
    """p(v) ≥ m · max p, which is z(v) ≥ max z + log m (Nguyen et al. 2024)."""

    share: float

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        least_R1 = logits_RV.amax(-1, keepdim=True) + math.log(self.share)
        return logits_RV.masked_fill(logits_RV < least_R1, -math.inf)


@dataclass(frozen=True)
class Typical:
    """Those whose surprise −log p is nearest to the entropy, until they have this mass (Meister et al. 2023)."""

    mass: float

    def __call__(self, logits_RV: Tensor, past: Past) -> Tensor:
        logp_RV = logits_RV.log_softmax(-1)
        p_RV = logp_RV.exp()
        far_RV = (-logp_RV - torch.special.entr(p_RV).sum(-1, keepdim=True)).abs()
        sorted_RV, ids_RV = far_RV.sort(stable=True)
        last_R1 = (p_RV.gather(1, ids_RV).cumsum(-1) < self.mass).sum(-1, keepdim=True)
        farthest_R1 = sorted_RV.gather(1, last_R1.clamp(max=logits_RV.shape[1] - 1))
        return logits_RV.masked_fill(far_RV > farthest_R1, -math.inf)


# Tables of sequences are made once and stay on the device: a copy at each step would make the host wait.
@lru_cache(maxsize=256)
def _choice_table(sequences: tuple[Ids, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(map(len, sequences))
    ids = [[*ids, *[0] * (longest - len(ids))] for ids in sequences]
    return torch.tensor(ids, device=device), torch.tensor([len(ids) for ids in sequences], device=device)


@lru_cache(maxsize=256)
def _bias_table(biases: tuple[tuple[Ids, float], ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prefixes, aligned at their ends; where they are; the token that each is about; and its bias."""
    longest = max(len(ids) for ids, _ in biases) - 1
    prefix = [[*[0] * (longest + 1 - len(ids)), *ids[:-1]] for ids, _ in biases]
    there = [[at >= longest + 1 - len(ids) for at in range(longest)] for ids, _ in biases]
    return (
        torch.tensor(prefix, dtype=torch.long, device=device),
        torch.tensor(there, dtype=torch.bool, device=device),
        torch.tensor([ids[-1] for ids, _ in biases], device=device),
        torch.tensor([amount for _, amount in biases], dtype=torch.float64, device=device),
    )
