"""Heads of an encoder: words, a label of the text, a label of each token, a vector of the text.

B batch, T length, D width, E width of the embedding, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.dropout import Dropout
from headway.nn.embedding import Head
from headway.nn.feed_forward import TanhLayer

Pooling = Literal["mean", "first", "max", "mean-sqrt"]


class WordHead(nn.Module):
    """Logits norm(f(hW))Eᵀ + b: the word at this position (Devlin et al. 2019, 3.1); E is the embedding's own table."""

    def __init__(
        self, width: int, table: nn.Embedding, activation: Callable[[Tensor], Tensor], epsilon: float, tied: bool = True
    ) -> None:
        super().__init__()
        narrow = table.embedding_dim
        self.map, self.activation, self.norm = nn.Linear(width, narrow), activation, nn.LayerNorm(narrow, epsilon)
        self.output = Head(narrow, table.num_embeddings, table if tied else None)
        self.bias_V = nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        logits_BTV: Tensor = self.output(self.norm(self.activation(self.map(hidden_BTD))))
        return logits_BTV + self.bias_V


class FirstToken(nn.Module):
    """tanh(h₁W + b): the first token represents the text (Devlin et al. 2019, 3.1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = TanhLayer(width, width)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        first_BD: Tensor = self.layer(hidden_BTD[:, 0])
        return first_BD


class TextLabels(nn.Module):
    """tanh(h₁W + b)C + c: a logit for each label of the text.

    `twice`: dropout before the first map too, as in RoBERTa.
    """

    def __init__(self, width: int, labels: int, dropout: float, twice: bool = False) -> None:
        super().__init__()
        self.first, self.labels = FirstToken(width), nn.Linear(width, labels)
        self.before, self.dropout = Dropout(dropout if twice else 0.0), Dropout(dropout)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        logits_BL: Tensor = self.labels(self.dropout(self.first(self.before(hidden_BTD[:, :1]))))
        return logits_BL


class TokenLabels(nn.Module):
    """hC + c: a logit for each label of each token."""

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.labels = Dropout(dropout), nn.Linear(width, labels)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        logits_BTL: Tensor = self.labels(self.dropout(hidden_BTD))
        return logits_BTL


class WordsAndPair(nn.Module):
    """Both of BERT's tasks: the words, and two logits for the order of the texts of a pair (Devlin et al. 2019, 3.1;
    Lan et al. 2020, 3.1)."""

    def __init__(self, words: WordHead, width: int) -> None:
        super().__init__()
        self.words, self.first, self.pair = words, FirstToken(width), nn.Linear(width, 2)

    def forward(self, hidden_BTD: Tensor) -> tuple[Tensor, Tensor]:
        return self.words(hidden_BTD), self.pair(self.first(hidden_BTD))


class HiddenAndFirst(nn.Module):
    """The last layer, and the first token's vector for the whole text."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = FirstToken(width)

    def forward(self, hidden_BTD: Tensor) -> tuple[Tensor, Tensor]:
        return hidden_BTD, self.first(hidden_BTD)


def pool(hidden_BTD: Tensor, lengths_B: Tensor, how: Pooling, unit: bool = False) -> Tensor:
    """One vector of each text: Σ_t h_t / T (`mean`), Σ_t h_t / √T, the first, or the largest of each feature, over its
    own tokens (Reimers and Gurevych 2019, 3); with `unit`, of length 1."""
    if how == "first":
        pooled_BD = hidden_BTD[:, 0]
    else:
        own_BT1 = (torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device) < lengths_B[:, None])[..., None]
        if how == "max":
            pooled_BD = hidden_BTD.masked_fill(~own_BT1, -torch.inf).amax(1)
        else:
            sum_BD = torch.where(own_BT1, hidden_BTD, 0).sum(1)
            count_B1 = lengths_B[:, None].to(sum_BD.dtype)
            pooled_BD = sum_BD / (count_B1 if how == "mean" else count_B1.sqrt())
    return F.normalize(pooled_BD, dim=-1) if unit else pooled_BD
