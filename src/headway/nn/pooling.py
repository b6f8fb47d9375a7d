"""One vector of many: of the first token, or of all of a text's own tokens.

B batch, T length, D width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.attention import attend, dot
from headway.nn.feed_forward import TanhLayer

Pooling = Literal["mean", "first", "last", "max", "mean-sqrt", "sum"]


class FirstToken(nn.Module):
    """tanh(h₁W + b): the first token's vector stands for the text (Devlin et al. 2019, 3.1).

    Other models have another `layer`, the mean of all tokens for the first (`how`), or a dropout `before` the layer.
    """

    def __init__(
        self, width: int, layer: nn.Module | None = None, how: Pooling = "first", before: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.layer, self.how, self.before = layer or TanhLayer(width, width), how, before or nn.Identity()

    def forward(self, hidden_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        one_BD: Tensor = self.layer(self.before(pool(hidden_BTD, lengths_B, self.how)))
        return one_BD


def own_tokens(x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """True at a row's own places, false at its padding: (B, T, 1)."""
    return (torch.arange(x_BTD.shape[1], device=x_BTD.device) < lengths_B[:, None])[..., None]


def pool(hidden_BTD: Tensor, lengths_B: Tensor | None, how: Pooling, unit: bool = False) -> Tensor:
    """One vector of each text: Σ_t h_t / T (`mean`), Σ_t h_t / √T, Σ_t h_t, the first, the last, or the largest of each
    feature, over its own tokens (Reimers and Gurevych 2019, 3); with `unit`, of length 1. Without lengths no row is
    padded."""
    if how == "first":
        pooled_BD = hidden_BTD[:, 0]
    elif how == "last":
        pooled_BD = hidden_BTD[:, -1] if lengths_B is None else hidden_BTD[_rows(hidden_BTD), lengths_B - 1]
    else:
        if lengths_B is None:
            lengths_B = torch.full((hidden_BTD.shape[0],), hidden_BTD.shape[1], device=hidden_BTD.device)
        own_BT1 = own_tokens(hidden_BTD, lengths_B)
        if how == "max":
            pooled_BD = hidden_BTD.masked_fill(~own_BT1, -torch.inf).amax(1)
        else:
            sum_BD = torch.where(own_BT1, hidden_BTD, 0).sum(1)
            count_B1 = lengths_B[:, None].to(sum_BD.dtype)
            by = {"mean": count_B1, "mean-sqrt": count_B1.sqrt(), "sum": torch.ones_like(count_B1)}
            pooled_BD = sum_BD / by[how]
    return F.normalize(pooled_BD, dim=-1) if unit else pooled_BD


def _rows(hidden_BTD: Tensor) -> Tensor:
    return torch.arange(hidden_BTD.shape[0], device=hidden_BTD.device)


class OverTime(nn.Module):
    """`pool` as a part: the largest of each feature over all places (Collobert et al. 2011), or another one."""

    def __init__(self, how: Pooling = "max") -> None:
        super().__init__()
        self.how: Pooling = how

    def forward(self, hidden_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        return pool(hidden_BTD, lengths_B, self.how)


class AttentionPooling(nn.Module):
    """Σ_t a_t h_t with a = softmax_t(u · tanh(W h_t + b)): a learned query asks every place (Yang et al. 2016).

    plain: the keys are the vectors themselves, a = softmax_t(u · h_t) (Hassani et al. 2021, eq. 4).
    """

    def __init__(self, width: int, plain: bool = False) -> None:
        super().__init__()
        self.keys = nn.Identity() if plain else TanhLayer(width, width)
        self.query_D = nn.Parameter(torch.empty(width).normal_(std=width**-0.5))

    def forward(self, hidden_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        seen = None if lengths_B is None else own_tokens(hidden_BTD, lengths_B).mT[:, None]
        query_B11D = self.query_D.expand(hidden_BTD.shape[0], 1, 1, -1)
        pooled_B11D, weights_B11T = attend(
            query_B11D, self.keys(hidden_BTD)[:, None], hidden_BTD[:, None], seen, score=dot
        )
        tap.save(self, "shares", weights_B11T[:, 0, 0, :, None])
        return pooled_B11D[:, 0, 0]


def k_max(x_BTD: Tensor, k: int, keep_B: Tensor | None = None, lengths_B: Tensor | None = None) -> Tensor:
    """The k largest numbers of each feature, in the order of the text (Kalchbrenner et al. 2014, 3.2): (B, k, D).

    keep_B: rows that keep fewer than k. A row that has fewer is filled up with zeros.
    """
    rows, length, width = x_BTD.shape
    own = None if lengths_B is None else own_tokens(x_BTD, lengths_B)
    found_BTD = x_BTD if own is None else x_BTD.masked_fill(~own, -torch.inf)
    at_BKD = found_BTD.topk(min(k, length), dim=1).indices
    kept_B = torch.full((rows,), k, device=x_BTD.device) if keep_B is None else keep_B
    kept_B = kept_B.clamp(max=length) if lengths_B is None else torch.minimum(kept_B, lengths_B)
    none_BK1 = (torch.arange(at_BKD.shape[1], device=x_BTD.device) >= kept_B[:, None])[..., None]
    at_BKD = at_BKD.masked_fill(none_BK1, length).sort(dim=1).values  # behind the last place: of the zeros there
    return F.pad(F.pad(x_BTD, (0, 0, 0, 1)).gather(1, at_BKD), (0, 0, 0, k - at_BKD.shape[1]))


def dynamic_k(length: Any, layer: int, layers: int, top: int) -> Any:
    """max(k_top, ⌈(L − l)/L · n⌉): what layer l of L keeps of a sentence of n words (Kalchbrenner et al. 2014, eq. 4);
    n a number or a tensor."""
    share = -(-(layers - layer) * length // layers)
    return share.clamp(min=top) if isinstance(share, Tensor) else max(top, share)
