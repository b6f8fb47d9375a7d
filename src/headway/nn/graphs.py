"""Parts of graph networks: sums over neighbours, and what is added to the scores of a pair of nodes.

Rows are padded: sums over edges are products with a matrix that has a 1 for the node of each edge, which takes the same
operations for every graph and gives the same bits each time.

B batch, N nodes, E edges (each in both directions), L edges of a path, F fields, H heads, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.norm import BatchNorm
from headway.nn.position import Position, RelationBias, Scene


@dataclass(frozen=True, eq=False)
class Links:
    """The edges of a batch: from_BEN and to_BEN have a 1 at the node that an edge comes from, and leads to; padding has
    none. there_BE1: 1 for an edge, 0 for padding. counts_B: nodes of each row; an empty row has none."""

    from_BEN: Tensor
    to_BEN: Tensor
    there_BE1: Tensor
    counts_B: Tensor

    def sent(self, x_BND: Tensor) -> Tensor:
        """(B, E, D): of every edge the vector of the node that it comes from."""
        return self.from_BEN @ x_BND

    def summed(self, m_BED: Tensor) -> Tensor:
        """(B, N, D): of every node the sum over the edges that lead to it."""
        return self.to_BEN.mT @ m_BED


def links(edges_BE2: Tensor, there_BE: Tensor, own_BN: Tensor, dtype: torch.dtype) -> Links:
    """`own_BN`: which places of a row are nodes."""
    numbers_N = torch.arange(own_BN.shape[1], device=edges_BE2.device)
    both = (edges_BE2[..., None] == numbers_N) & there_BE[..., None, None]
    from_BEN, to_BEN = both.to(dtype).unbind(2)
    return Links(from_BEN, to_BEN, there_BE[..., None].to(dtype), own_BN.sum(1))


class GinLayer(nn.Module):
    """mlp((1 + ε)·x_i + Σ_j relu(x_j + e_ij)) (Xu et al. 2019, eq. 4.1; edges as Hu et al. 2020). Edges stay as they
    are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = BatchNorm(2 * width)

    def forward(self, x_BND: Tensor, e_BED: Tensor, graph: Links) -> tuple[Tensor, Tensor]:
        come_BED = graph.sent(x_BND)
        sum_BND = graph.summed(F.relu(come_BED + e_BED) * graph.there_BE1)
        hidden = self.norm(self.first((1 + self.epsilon) * x_BND + sum_BND), graph.counts_B)
        return self.second(F.relu(hidden)), e_BED


class GatedLayer(nn.Module):
    """x_i U + Σ_j η_ij ⊙ (x_j V), η = σ(e′)/(Σ σ(e′) + ε), e′ = x_i A + x_j B + e C (Bresson and Laurent 2017; Dwivedi
    et al. 2023, A.3). What it gives the nodes, and e′."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.nodes, self.edges = nn.Linear(width, 4 * width), nn.Linear(width, width)

    def forward(self, x_BND: Tensor, e_BED: Tensor, graph: Links) -> tuple[Tensor, Tensor]:
        own_BND, sent_BND, to_BND, from_BND = self.nodes(x_BND).chunk(4, -1)
        sent_BED, from_BED = graph.sent(torch.cat([sent_BND, from_BND], -1)).chunk(2, -1)
        next_BED = self.edges(e_BED) + from_BED + graph.to_BEN @ to_BND
        gate_BED = next_BED.sigmoid() * graph.there_BE1
        both_BND = graph.summed(torch.cat([gate_BED * sent_BED, gate_BED], -1))
        sum_BND, gates_BND = both_BND.chunk(2, -1)
        return own_BND + sum_BND / (gates_BND + 1e-6), next_BED


class PathBias(Position):
    """1/L Σ_l w_l[kinds of edge l] along the shortest path, a number for each head (Ying et al. 2021, eq. 7)."""

    def __init__(self, heads: int, kinds: int, longest: int) -> None:
        super().__init__()
        self.heads, self.longest = heads, longest
        self.table = nn.Embedding(longest * kinds, heads)
        nn.init.zeros_(self.table.weight)

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor | None:
        paths_BNNL, kinds_BEF = scene.relation("paths").long(), scene.relation("kinds")
        rows, nodes = paths_BNNL.shape[:2]
        padded_BEF = F.pad(kinds_BEF, (0, 0, 1, 0))  # the number 0 is no edge, and kind 0 is none
        flat_BX = paths_BNNL.flatten(1)
        row_B1 = torch.arange(rows, device=flat_BX.device)[:, None]
        kinds_BNNLF = padded_BEF[row_B1, flat_BX].view(rows, nodes, nodes, self.longest, -1)
        place_L1 = torch.arange(self.longest, device=flat_BX.device)[:, None]
        size = self.table.num_embeddings // self.longest
        each = self.table(kinds_BNNLF + place_L1 * size) * (kinds_BNNLF > 0)[..., None]
        count = (paths_BNNL > 0).sum(-1).clamp(min=1)[..., None]
        return (each.sum((3, 4)) / count).movedim(-1, 1).to(q_BHTK.dtype)


class GivenBias(Position):
    """What is added to the scores of every layer, computed once."""

    def __init__(self, bias_BHNN: Tensor | None) -> None:
        super().__init__()
        self.bias_BHNN = bias_BHNN

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor | None:
        return self.bias_BHNN


class PairBias(Position):
    """b_h[distance] + the edges along the path (Ying et al. 2021, 3.1)."""

    def __init__(self, heads: int, distances: int, kinds: int, longest: int) -> None:
        super().__init__()
        self.distances = RelationBias(heads, "distances", distances) if distances else None
        self.path = PathBias(heads, kinds, longest) if longest else None

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor | None:
        parts = [part.bias(q_BHTK, scene) for part in (self.distances, self.path) if part is not None]
        found: Any = sum(part for part in parts if part is not None) if parts else None
        return found
