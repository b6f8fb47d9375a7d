"""From ids to vectors: the front end of a text model. B batch, T length, D width, V vocabulary."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.dropout import Dropout
from headway.nn.position import Position


def token_table(vocabulary: int, width: int, std: float | None = None) -> nn.Embedding:
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=std or width**-0.5)
    return table


class TokenEmbedding(nn.Module):
    """dropout(√D · E[ids] + positions) (Vaswani et al. 2017, 3.4 and 5.4); other models have another scale."""

    def __init__(self, table: nn.Embedding, position: Position, dropout: float, scale: float | None = None) -> None:
        super().__init__()
        self.table, self.position = table, position
        self.scale = math.sqrt(table.embedding_dim) if scale is None else scale
        self.dropout = Dropout(dropout)

    def forward(self, ids_BT: Tensor, start: int | Tensor = 0) -> Tensor:
        return self.dropout(self.position.add(self.table(ids_BT) * self.scale, start))


class JoinedHead(nn.Module):
    """Logits h[E R]ᵀ: the first columns are the embedding's own table, the others the head's."""

    def __init__(self, table: nn.Embedding, columns: int) -> None:
        super().__init__()
        self.table = table
        self.rest_VC = nn.Parameter(torch.empty(table.num_embeddings, columns))

    @property
    def weight(self) -> Tensor:
        return torch.cat([self.table.weight, self.rest_VC], 1)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        return F.linear(hidden_BTD, self.weight)


class Head(nn.Linear):
    """Logits hWᵀ; tied, W is the embedding's own table."""

    def __init__(self, width: int, vocabulary: int, tied: nn.Embedding | None = None) -> None:
        super().__init__(width, vocabulary, bias=False)
        if tied is not None:
            self.weight = tied.weight
        else:
            nn.init.normal_(self.weight, std=width**-0.5)
