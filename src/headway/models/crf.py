"""A conditional random field: the labels of a text's words are chosen together (Lafferty et al. 2001).

    p(y | x) = exp(a(y₁) + Σ_t e_t(y_t) + Σ_t A(y_{t−1}, y_t) + b(y_N)) / Z(x)

over the N words of a text, e_t = hC + c at the first token of word t, as on top of a network in Collobert et al. (2011)
and Lample et al. (2016, eq. 1 and 2).

Where labels mark chunks, B- and I- (BIO) or B-, I-, E- and S- (BIOES), some sequences mark none: `valid_steps`.

B batch, T length, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

OUTSIDE = "O", ""
UNLIKELY = -1e30  # a logarithm of nothing whose gradients are finite


def _parted(label: str) -> tuple[str, str]:
    mark, dash, kind = label.partition("-")
    return (mark, kind) if dash and mark in ("B", "I", "E", "S") else OUTSIDE


def valid_steps(labels: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Which labels may be the first, which may follow which (before, after), and which may be the last.

    I- and E- continue a chunk of their type that is open. With E- and S- among the labels a chunk is open until its
    E-; without them it may end anywhere.
    """
    marks = [_parted(label) for label in labels]
    closes = any(mark in ("E", "S") for mark, _ in marks)

    def fits(before: tuple[str, str], after: tuple[str, str]) -> bool:
        is_open, continues = before[0] in ("B", "I"), after[0] in ("I", "E")
        same = is_open and before[1] == after[1]
        return same if continues else not (closes and is_open)

    step_LL = torch.tensor([[fits(before, after) for after in marks] for before in marks])
    first_L = torch.tensor([fits(OUTSIDE, after) for after in marks])
    return first_L, step_LL, torch.tensor([fits(before, OUTSIDE) for before in marks])


@dataclass(frozen=True, eq=False)
class Chain:
    """The scores of a chain of words: a_L of the first label, e_BTL of each, A_LL of two neighbours (before, after),
    b_L of the last. there_BT: which words there are, the first ones of each row."""

    a_L: Tensor
    e_BTL: Tensor
    A_LL: Tensor
    b_L: Tensor
    there_BT: Tensor

    def score(self, labels_BT: Tensor) -> Tensor:
        """The exponent of p(y | x) for each row; the labels of words that are not there may be any."""
        there_BT = self.there_BT.to(self.e_BTL.dtype)
        words_BT = self.e_BTL.gather(2, labels_BT[..., None])[..., 0]
        steps_BU = self.A_LL[labels_BT[:, :-1], labels_BT[:, 1:]]
        last_B1 = (self.there_BT.sum(1, keepdim=True) - 1).clamp(min=0)
        ends_B = self.a_L[labels_BT[:, 0]] + self.b_L[labels_BT.gather(1, last_B1)[:, 0]]
        return ends_B + (words_BT * there_BT).sum(1) + (steps_BU * there_BT[:, 1:]).sum(1)

    def forward(self) -> list[Tensor]:
        """log α_t(j) = log Σ_i exp(log α_{t−1}(i) + A(i, j)) + e_t(j): all beginnings that end in j at word t. After
        the last word of a row its values are repeated."""
        found = [self.a_L + self.e_BTL[:, 0]]
        for t in range(1, self.e_BTL.shape[1]):
            next_BL = (found[-1][:, :, None] + self.A_LL).logsumexp(1) + self.e_BTL[:, t]
            found.append(torch.where(self.there_BT[:, t, None], next_BL, found[-1]))
        return found

    def backward(self) -> list[Tensor]:
        """log β_t(i) = log Σ_j exp(A(i, j) + e_{t+1}(j) + log β_{t+1}(j)): all continuations of i at word t."""
        found = [self.b_L.expand(len(self.e_BTL), -1)]
        for t in range(self.e_BTL.shape[1] - 1, 0, -1):
            before_BL = (self.A_LL + (self.e_BTL[:, t] + found[-1])[:, None]).logsumexp(2)
            found.append(torch.where(self.there_BT[:, t, None], before_BL, found[-1]))
        return found[::-1]

    def log_partition(self) -> Tensor:
        """log Z of each row. A GPU takes the words in pairs: fewer and larger kernels, and no loop over words for a
        compiler to write out."""
        return self.in_pairs() if self.e_BTL.is_cuda else (self.forward()[-1] + self.b_L).logsumexp(1)

    def in_pairs(self) -> Tensor:
        """log Z as a product of matrices, log Σ exp for sums: M_t(i, j) = A(i, j) + e_t(j), the identity for a word
        that is not there. Neighbours are multiplied until one is left: log₂ T times."""
        off_LL = UNLIKELY * (1 - torch.eye(len(self.a_L), dtype=self.a_L.dtype, device=self.a_L.device))
        M_BTLL = torch.where(self.there_BT[:, 1:, None, None], self.A_LL + self.e_BTL[:, 1:, None], off_LL)
        while (count := M_BTLL.shape[1]) > 1:
            pairs_BTLL = (M_BTLL[:, 0 : count - 1 : 2, :, :, None] + M_BTLL[:, 1::2, None]).logsumexp(3)
            M_BTLL = torch.cat((pairs_BTLL, M_BTLL[:, count - count % 2 :]), 1)
        first_BL = self.a_L + self.e_BTL[:, 0]
        last_BL = (first_BL[:, :, None] + M_BTLL[:, 0]).logsumexp(1) if count else first_BL
        return (last_BL + self.b_L).logsumexp(1)

    def marginals(self) -> Tensor:
        """p(y_t = l | x) for each word and label."""
        alpha_BTL, beta_BTL = torch.stack(self.forward(), 1), torch.stack(self.backward(), 1)
        return (alpha_BTL + beta_BTL).softmax(2)

    def best(self) -> Tensor:
        """The labels of the highest p(y | x) (Viterbi 1967)."""
        best_BL, stay_L = self.a_L + self.e_BTL[:, 0], torch.arange(len(self.a_L), device=self.a_L.device)
        pointers: list[Tensor] = []
        for t in range(1, self.e_BTL.shape[1]):
            there_B1 = self.there_BT[:, t, None]
            next_BL, from_BL = (best_BL[:, :, None] + self.A_LL).max(1)
            best_BL = torch.where(there_B1, next_BL + self.e_BTL[:, t], best_BL)
            pointers.append(torch.where(there_B1, from_BL, stay_L))
        path = [(best_BL + self.b_L).argmax(1, keepdim=True)]
        for from_BL in reversed(pointers):
            path.append(from_BL.gather(1, path[-1]))
        return torch.cat(path[::-1], 1)
