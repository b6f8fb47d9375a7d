"""From ids to vectors: the front end of a text model. B batch, T length, D width, V vocabulary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.fast import step as step_kernels
from headway.nn import tap
from headway.nn.dropout import Dropout, WordDropout
from headway.nn.position import Learned, Position, within
from headway.nn.product import product


def padded(vocabulary: int) -> int:
    """The rows of a table of so many tokens, rounded up to a multiple of 64 for the hardware."""
    return -(-vocabulary // 64) * 64


def token_table(vocabulary: int, width: int, std: float | None = None) -> nn.Embedding:
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=std or width**-0.5)
    return table


@dataclass(frozen=True, eq=False)
class Embedded:
    """What enters the first layer, whatever it was made of: vectors, and what is known of the rows.

    lengths_R: rows are padded on the right. segments_RT: tells packed texts apart. positions: where they are not those
    behind what the state has read. relations: what a batch says of pairs of places.
    """

    x_RTD: Tensor
    lengths_R: Tensor | None = None
    segments_RT: Tensor | None = None
    positions: Any = None
    relations: Any = None


class TokenEmbedding(nn.Module):
    """dropout(√D · E[ids] + positions) (Vaswani et al. 2017, 3.4 and 5.4); other models have another scale, or a norm
    around the sum."""

    def __init__(
        self, table: nn.Embedding, position: Position, dropout: float, scale: float | None = None,
        word_dropout: float = 0.0, norm: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.table, self.position, self.norm = table, position, norm or nn.Identity()
        self.scale = math.sqrt(table.embedding_dim) if scale is None else scale
        self.words, self.dropout = WordDropout(word_dropout, table.num_embeddings), Dropout(dropout)

    def forward(self, ids_BT: Tensor, start: int | Tensor = 0) -> Tensor:
        if isinstance(start, Tensor) and self._is_step(ids_BT):
            table_VD, positions_PD = self.table.weight, _rows(self.position)
            return self.norm(step_kernels.embed(ids_BT[:, 0], start, table_VD, positions_PD, self.scale)[:, None])
        tokens_BTD = self.words(self.table(ids_BT) * self.scale, ids_BT)
        x_BTD: Tensor = self.dropout(self.norm(self.position.add(tokens_BTD, start)))
        if tap.recording():
            _tapped(self, tokens_BTD, self.position, start, x_BTD)
        return x_BTD

    def _is_step(self, ids_BT: Tensor) -> bool:
        """Whether the kernel computes this: one token, no trace and no gradient, learned positions or none."""
        supported = type(self.position) is Learned or type(self.position).add is Position.add
        if not (supported and step_kernels.takes(self.table.weight, _rows(self.position))):
            return False
        return ids_BT.shape[1] == 1 and not (torch.is_grad_enabled() or self.training or tap.recording())


class StepEmbedding(TokenEmbedding):
    """The same for the tokens behind those that a state has read."""

    def forward(  # type: ignore[override]
        self, ids_RT: Tensor, state: Any, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        start = state.clock.start if segments_RT is None else within(segments_RT)
        return Embedded(super().forward(ids_RT, start), lengths_R, segments_RT)


class WidenedEmbedding(StepEmbedding):
    """norm(dropout(c · E[ids]M + positions)) for the tokens behind those that a state has read: M widens a narrow table
    (Baevski and Auli 2019), the norm is that of a model that needs one here (Le Scao et al. 2022, 3.2)."""

    def __init__(
        self, table: nn.Embedding, position: Position, dropout: float, scale: float = 1.0,
        widen: nn.Module | None = None, norm: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(table, position, dropout, scale)
        self.widen, self.norm = widen or nn.Identity(), norm or nn.Identity()

    def forward(  # type: ignore[override]
        self, ids_RT: Tensor, state: Any, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        tokens_RTD = self.widen(self.table(ids_RT) * self.scale)
        start = state.clock.start if segments_RT is None else within(segments_RT)
        x_RTD: Tensor = self.norm(self.dropout(self.position.add(tokens_RTD, start)))
        if tap.recording():
            _tapped(self, tokens_RTD, self.position, start, x_RTD)
        return Embedded(x_RTD, lengths_R, segments_RT)


def _rows(position: Position) -> Tensor | None:
    """The learned table of positions, if there is one."""
    return position.rows_PD if isinstance(position, Learned) else None


class TypedEmbedding(nn.Module):
    """dropout(norm(E[ids] + positions + S[types]))M (Devlin et al. 2019, fig. 2).

    A token's type is the text of a pair that it belongs to. M, where there is one, widens a narrow table (Lan et al.
    2020, 3.1). `first` is the position of the first token; with `positions_BT` each token has a position of its own.
    """

    def __init__(
        self, table: nn.Embedding, position: Position, types: int, norm: nn.Module, dropout: float,
        widen: nn.Module | None = None, first: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.table, self.position, self.norm, self.first = table, position, norm, first
        self.types = token_table(types, table.embedding_dim, 0.02) if types else None
        self.dropout, self.widen = Dropout(dropout), widen or nn.Identity()

    def forward(self, ids_BT: Tensor, types_BT: Tensor | None = None, positions_BT: Tensor | None = None) -> Tensor:
        tokens_BTE = self.table(ids_BT)
        first = self.first if positions_BT is None else self.first + positions_BT
        x_BTE = self.position.add(tokens_BTE, first)
        if self.types is not None:
            x_BTE = x_BTE + (self.types.weight[0] if types_BT is None else self.types(types_BT))
        widened: Tensor = self.widen(self.dropout(self.norm(x_BTE)))
        if tap.recording():
            _tapped(self, tokens_BTE, self.position, first, widened)
        return widened


def _tapped(part: nn.Module, tokens_BTD: Tensor, position: Position, start: int | Tensor, x_BTD: Tensor) -> None:
    """The token vectors, what their positions add to them, and the result."""
    tap.save(part, "tokens", tokens_BTD)
    if type(position).add is not Position.add and tap.wants(part, "position"):
        tap.save(part, "position", position.add(torch.zeros_like(tokens_BTD), start))
    tap.save(part, "hidden", x_BTD)


class JoinedHead(nn.Module):
    """Logits h[E R]ᵀ: the first columns are the embedding's own table, the others the head's."""

    def __init__(self, table: nn.Embedding, columns: int) -> None:
        super().__init__()
        self.table = table
        self.rest_VC = nn.Parameter(torch.zeros(table.num_embeddings, columns))

    @property
    def weight(self) -> Tensor:
        return torch.cat([self.table.weight, self.rest_VC], 1)

    def forward(self, hidden_BTD: Tensor, state: Any = None) -> Tensor:
        # Two products, so that a step does not copy the table.
        known_BTD, rest_BTC = hidden_BTD.split([self.table.embedding_dim, self.rest_VC.shape[1]], dim=-1)
        return F.linear(known_BTD, self.table.weight) + F.linear(rest_BTC, self.rest_VC)


class AppendOne(nn.Module):
    """[x 1]: a bias is then one more column of the weight that follows."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.pad(x_BTD, (0, 1), value=1.0)


class Scale(nn.Module):
    """c·x."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD * self.factor


class Head(nn.Linear):
    """Logits hWᵀ; tied, W is the embedding's own table."""

    def __init__(self, width: int, vocabulary: int, tied: nn.Embedding | None = None) -> None:
        super().__init__(width, vocabulary, bias=False)
        if tied is not None:
            self.weight = tied.weight
        else:
            nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, hidden_BTD: Tensor, state: Any = None) -> Tensor:
        """Of `state` a plain head reads nothing."""
        if hidden_BTD.dim() == 3 and hidden_BTD.shape[1] == 1 and not torch.is_grad_enabled():
            return product(hidden_BTD[:, 0], self)[:, None]  # a step
        return super().forward(hidden_BTD)


class ForcedFirst(nn.Module):
    """A head's logits, but for the first token of a text: the logit of `first` is then 0, that of all others −∞."""

    def __init__(self, head: nn.Module, first: int) -> None:
        super().__init__()
        self.head, self.first = head, first

    @property
    def weight(self) -> Tensor:
        return self.head.weight  # type: ignore[return-value]

    def forward(self, hidden_RTD: Tensor, state: Any) -> Tensor:
        """`state`: behind these tokens."""
        logits_RTV: Tensor = self.head(hidden_RTD, state)
        steps = hidden_RTD.shape[1]
        read_RT = state.time.lengths_R[:, None] - steps + torch.arange(steps, device=hidden_RTD.device)
        only_V = torch.full_like(logits_RTV[0, 0], -math.inf)
        only_V[self.first] = 0.0
        return torch.where((read_RT == 0)[..., None], only_V, logits_RTV)


def biased_head(
    width: int, vocabulary: int, tied: nn.Embedding | None = None, columns: int = 1, drawn: bool = False
) -> Head | JoinedHead:
    """A head for vectors that have `columns` more than `width`, whose last is 1 (`AppendOne`): its weight is the bias,
    0 at first. Tied, the first columns are the table. `drawn`: the head's own columns are normal at first."""
    head = Head(width + columns, vocabulary) if tied is None else JoinedHead(tied, columns)
    own_VC = head.rest_VC if isinstance(head, JoinedHead) else head.weight
    if drawn:
        nn.init.normal_(own_VC, std=own_VC.shape[1] ** -0.5)
    nn.init.zeros_(own_VC[:, -1])
    return head
