"""A conditional random field as a head: the labels of a text's words are chosen together (Lafferty et al. 2001).

    p(y | x) = exp(a(y₁) + Σ_t e_t(y_t) + Σ_t A(y_{t−1}, y_t) + b(y_N)) / Z(x)

over the N words of a text, e_t = hC + c at the first token of word t, as on top of a network in Collobert et al. (2011)
and Lample et al. (2016, eq. 1 and 2).

B batch, T length, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from headway.batch import IGNORED
from headway.errors import InputError
from headway.models.head import Head
from headway.models.protocols import Encoded, Terms
from headway.nn.dropout import Dropout


@dataclass(frozen=True)
class Crf:
    """A label of every word, chosen together with those of its neighbours. `dropout`: None for that of the encoder."""

    name: ClassVar[str] = "crf"
    task: ClassVar[str] = "tagging"
    labels: tuple[str, ...] = ("0", "1")
    dropout: float | None = None

    def build(self, encoder: Any) -> Head:
        dropout = encoder.dropout if self.dropout is None else self.dropout
        return CrfHead(encoder.width, len(self.labels), dropout)


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
        """log Z of each row."""
        return (self.forward()[-1] + self.b_L).logsumexp(1)

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


@final
class CrfHead(Head):
    """−log p(y | x) over the words of each text; padding and the further tokens of a word are passed over."""

    axes = ("row", "target", "label")
    does = "labels words (headway predict)"

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.labels = Dropout(dropout), nn.Linear(width, labels)
        self.before_L, self.behind_L = nn.Parameter(torch.zeros(labels)), nn.Parameter(torch.zeros(labels))
        self.between_LL = nn.Parameter(torch.zeros(labels, labels))

    def forward(self, encoded: Encoded) -> Tensor:
        """e of every token."""
        logits_BTL: Tensor = self.labels(self.dropout(encoded.x_BTD))
        return logits_BTL

    def chain(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Chain, Tensor]:
        """The chain of the words that begin at `starts_BT`, and the token of each."""
        e_BTL = self(encoded)
        wide = torch.promote_types(e_BTL.dtype, torch.float32)
        token_BT = (~starts_BT).long().argsort(dim=1, stable=True)  # first tokens of words to the left, in their order
        e_BTL = e_BTL.gather(1, token_BT[..., None].expand_as(e_BTL)).to(wide)
        a_L, A_LL, b_L = (weight.to(wide) for weight in (self.before_L, self.between_LL, self.behind_L))
        return Chain(a_L, e_BTL, A_LL, b_L, starts_BT.gather(1, token_BT)), token_BT

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        if smoothing:
            raise InputError("a conditional random field has no label smoothing: set objective.smoothing=0")
        starts_BT = batch.labels_BT != IGNORED
        chain, token_BT = self.chain(encoded, starts_BT)
        labels_BT = batch.labels_BT.gather(1, token_BT).clamp(min=0)
        nll_B = chain.log_partition() - chain.score(labels_BT)
        nll = torch.where(starts_BT.any(1), nll_B, 0.0).sum()
        return {"loss": (nll, 1.0), "nll": (nll.detach(), 0.0)}

    def tags(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The labels of the best sequence, and the probability of each over all sequences."""
        chain, token_BT = self.chain(encoded, starts_BT)
        best_BT = chain.best()
        share_BT = chain.marginals().gather(2, best_BT[..., None])[..., 0]
        return torch.zeros_like(best_BT).scatter(1, token_BT, best_BT), share_BT.scatter(1, token_BT, share_BT)
