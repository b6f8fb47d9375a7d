"""Attention with content and distance apart (He et al. 2021, "DeBERTa").

B batch, T queries, S keys, H heads, D width, K head width, P vectors of distances.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.attention import SelfAttention
from headway.nn.dropout import Dropout
from headway.nn.position import Position, Scene, distances
from headway.nn.view import View

TERMS = 3  # of a score: content with content, content with distance, distance with content


class DistanceVectors(Position):
    """A learned vector for every distance from −span to span − 1, those beyond share the outermost. `farthest`: from
    half of the span on, distances up to so many share vectors by their logarithm (He et al. 2023, as released); None:
    each has its own."""

    def __init__(self, width: int, span: int, farthest: int | None, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.span, self.farthest, self.norm = span, farthest, norm or nn.Identity()
        self.table = nn.Embedding(2 * span, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def vectors(self) -> Tensor:
        normed_PD: Tensor = self.norm(self.table.weight)
        return normed_PD

    def rows(self, scene: Scene) -> Tensor:
        """The row of each query and key, (T, S)."""
        far = distances(scene)
        if self.farthest is not None:
            half = self.span // 2
            # In float32 whatever the model's precision: a rounded logarithm decides for a row.
            steps = torch.log(far.abs().clamp(min=half).float() / half)
            steps = steps / torch.log(torch.tensor((self.farthest - 1) / half)) * (half - 1)
            far = torch.where(far.abs() <= half, far, far.sign() * (steps.ceil().long() + half))
        return (far + self.span).clamp(0, 2 * self.span - 1)


class DisentangledAttention(SelfAttention):
    """softmax((qᵢ·kⱼ + qᵢ·Wᴷr(i−j) + kⱼ·W^Q r(i−j)) / √(3K))V, r the vector of a distance (He et al. 2021, eq. 4).

    The vectors come with the view's position (`DistanceVectors`). `own_maps`: distances have maps of their own; else
    those of the content are theirs too.
    """

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, own_maps: bool = False, distance_dropout: float = 0.0
    ) -> None:
        super().__init__(width, heads, dropout)
        self.distance_key_query = nn.Linear(width, 2 * width) if own_maps else None
        self.distance_dropout = Dropout(distance_dropout)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, view: View) -> Tensor:
        return super().mix(q / math.sqrt(TERMS), k, v, view)

    def bias(self, q_BHTK: Tensor, k_BHSK: Tensor, view: View) -> Tensor:
        assert isinstance(view.position, DistanceVectors) and view.scene is not None
        vectors_PD = self.distance_dropout(view.position.vectors())
        key_HPK, query_HPK = self._mapped(vectors_PD)
        rows_TS = view.position.rows(view.scene)
        content_BHTP, distance_BHSP = q_BHTK @ key_HPK.mT, k_BHSK @ query_HPK.mT / math.sqrt(TERMS)
        shape = (*q_BHTK.shape[:3], k_BHSK.shape[2])
        bias_BHTS = content_BHTP.gather(-1, rows_TS.expand(shape))
        bias_BHTS = bias_BHTS + distance_BHSP.gather(-1, rows_TS.mT.expand(*shape[:2], shape[3], shape[2])).mT
        return bias_BHTS / math.sqrt(self.head_width)

    def _mapped(self, vectors_PD: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors as keys and as queries."""
        if self.distance_key_query is not None:
            key_PD, query_PD = self.distance_key_query(vectors_PD).chunk(2, dim=-1)
        else:
            two = sum(self.sizes[:2])
            query_PD, key_PD = F.linear(vectors_PD, self.qkv.weight[:two], self.qkv.bias[:two]).chunk(2, dim=-1)
        key_HPK, query_HPK = (x_PD.unflatten(-1, (self.heads, -1)).transpose(0, 1) for x_PD in (key_PD, query_PD))
        return key_HPK, query_HPK
