"""Networks of graphs, one of which sums over neighbours (message passing), and one in which every node sees every other
(Ying et al. 2021, "Do Transformers really perform badly for graph representation?"; with sums over neighbours beside,
Rampášek et al. 2022, "GPS").

B batch, N nodes, E edges, F fields, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models import parts
from headway.models.protocols import Encoded, Encodes
from headway.nn import tap
from headway.nn.attention import SelfAttention
from headway.nn.block import draw_normal
from headway.nn.dropout import Dropout
from headway.nn.graphs import GatedLayer, GinLayer, GivenBias, Links, PairBias, links
from headway.nn.mask import Padding, Scene
from headway.nn.norm import BatchNorm

DEGREES = 64  # the most that are told apart
SIZED = ("{} kinds of edges", "data.train")
LAYERS: dict[str, Callable[[int], nn.Module]] = {"gin": GinLayer, "gated": GatedLayer}
Local = Literal["gin", "gated"]


@dataclass(frozen=True)
class Facts:
    """What a model reads of every pair of nodes, or of every node, beside kinds. distances: whether those of the
    shortest paths; path: how many edges of such a path; walk: steps of the random walk back to a node; laplacian: how
    many of the first eigenvectors."""

    distances: bool = False
    path: int = 0
    walk: int = 0
    laplacian: int = 0


class GraphShape:
    """Abstract. What the configs of graph networks have in common."""

    walk: int
    laplacian: int

    def check(self) -> None:
        for name in ("walk", "laplacian"):
            value = getattr(self, name)
            refuse(not 0 <= value <= 256, f"model.{name} must be from 0 to 256, not {value}")

    @property
    def facts(self) -> Facts:
        """What it reads beside kinds."""
        return Facts(walk=self.walk, laplacian=self.laplacian)


@dataclass(frozen=True)
class MessagePassingConfig(GraphShape):
    """layer: how nodes sum over their neighbours. walk: steps of a random walk, laplacian: eigenvectors, that say where
    a node is (0: nothing does)."""

    name: ClassVar[str] = "message-passing"
    layer: Local = "gated"
    layers: int = 4
    width: int = 128
    dropout: float = 0.0
    walk: int = 0
    laplacian: int = 0

    def __post_init__(self) -> None:
        self.check()


@dataclass(frozen=True)
class GraphTransformerConfig(GraphShape):
    """distance: the largest that the scores tell apart (0: none). path: edges of the shortest path that they know.
    degree: whether a node knows how many edges it has. local: sums over neighbours beside the attention ("": none).
    walk, laplacian: as in `message-passing`."""

    name: ClassVar[str] = "graph-transformer"
    layers: int = 6
    width: int = 96
    inner: int = 192
    heads: int = 8
    dropout: float = 0.0
    attention_dropout: float = 0.1
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    feed_forward: parts.Gelu | parts.Relu = field(default_factory=parts.Gelu)
    distance: int = 20
    path: int = 5
    degree: bool = True
    local: Literal["", "gin", "gated"] = ""
    walk: int = 0
    laplacian: int = 0

    def __post_init__(self) -> None:
        self.check()
        for name in ("distance", "path"):
            value = getattr(self, name)
            refuse(not 0 <= value <= 200, f"model.{name} must be from 0 to 200, not {value}")

    @property
    def facts(self) -> Facts:
        return Facts(self.distance > 0, self.path, self.walk, self.laplacian)


def blank(config: Any, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Graphs that are rings."""
    nodes, facts = max(2, lengths[0]), config.facts
    number_N = torch.arange(nodes)
    edges_E2 = torch.stack([number_N, (number_N + 1) % nodes], 1)
    edges_BE2 = torch.cat([edges_E2, edges_E2.flip(1)]).expand(batch, -1, -1)
    pairs = batch, nodes, nodes
    return (
        SimpleNamespace(
            nodes_BNF=torch.ones(batch, nodes, 1, dtype=torch.long), lengths_B=torch.full((batch,), nodes),
            edges_BE2=edges_BE2, kinds_BEF=torch.ones(batch, 2 * nodes, 1, dtype=torch.long),
            distances_BNN=torch.zeros(pairs, dtype=torch.uint8) if facts.distances or facts.path else None,
            paths_BNNL=torch.zeros(*pairs, facts.path, dtype=torch.int16) if facts.path else None,
            walks_BNK=torch.zeros(batch, nodes, facts.walk) if facts.walk else None,
            vectors_BNK=torch.zeros(batch, nodes, facts.laplacian) if facts.laplacian else None,
        ),
    )  # fmt: skip


class GraphEmbedding(nn.Module):
    """Σ_f E[kind_f], and what is known of where a node is."""

    def __init__(self, kinds: int, width: int, config: Any, degree: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(kinds, width)
        self.degree = nn.Embedding(DEGREES, width) if degree else None
        self.norm = BatchNorm(config.walk) if config.walk else None
        self.walk = nn.Linear(config.walk, width) if config.walk else None
        self.vectors = nn.Linear(config.laplacian, width) if config.laplacian else None

    def forward(self, inputs: Any, graph: Links) -> Tensor:
        x_BND: Tensor = self.table(inputs.nodes_BNF).sum(2)
        if self.degree is not None:
            counts_BN = graph.to_BEN.sum(1).long()
            x_BND = x_BND + self.degree(counts_BN.clamp(max=DEGREES - 1))
        if self.walk is not None and self.norm is not None:
            x_BND = x_BND + self.walk(self.norm(inputs.walks_BNK.to(x_BND.dtype), graph.counts_B))
        if self.vectors is not None:
            x_BND = x_BND + self.vectors(inputs.vectors_BNK.to(x_BND.dtype))
        return x_BND


class GraphNetwork(Encodes):
    """Abstract. A vector of every node."""

    tracks = {"": ("nodes", "nodes")}

    def __init__(self, config: Any, nodes: int, edges: int, degree: bool = False) -> None:
        super().__init__()
        self.config, self.width, self.dropout = config, config.width, config.dropout
        self.embed, self.edges = GraphEmbedding(nodes, config.width, config, degree), nn.Embedding(edges, config.width)

    def read(self, inputs: Any) -> tuple[Tensor, Tensor, Links]:
        """Nodes, edges, and how they hang together."""
        dtype = self.edges.weight.dtype
        there_BE = inputs.kinds_BEF[..., 0] > 0
        graph = links(inputs.edges_BE2, there_BE, inputs.nodes_BNF[..., 0] > 0, dtype)
        return self.embed(inputs, graph), self.edges(inputs.kinds_BEF).sum(2), graph


class MessageLayer(nn.Module):
    """relu(norm(layer(x))), what is added to nodes; and edges with the same added, where the layer changes them."""

    def __init__(self, kind: str, width: int, dropout: float) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = LAYERS[kind](width), BatchNorm(width), Dropout(dropout)
        self.edge_norm = nn.LayerNorm(width) if kind == "gated" else None

    def forward(self, x_BND: Tensor, e_BED: Tensor, graph: Links) -> tuple[Tensor, Tensor]:
        y_BND, next_BED = self.layer(x_BND, e_BED, graph)
        if self.edge_norm is not None:
            e_BED = e_BED + F.relu(self.edge_norm(next_BED))
        return self.dropout(F.relu(self.norm(y_BND, graph.counts_B))), e_BED


@final
class MessagePassing(GraphNetwork):
    """Each layer sums over the neighbours of a node: what it knows after L layers is at most L edges away."""

    def __init__(self, config: MessagePassingConfig, nodes: int, edges: int) -> None:
        super().__init__(config, nodes, edges)
        self.layers = nn.ModuleList(
            MessageLayer(config.layer, config.width, config.dropout) for _ in range(config.layers)
        )

    def encode(self, inputs: Any) -> Encoded:
        x_BND, e_BED, graph = self.read(inputs)
        for number, layer in enumerate(self.layers):
            tap.at_layer(number)
            more_BND, e_BED = layer(x_BND, e_BED, graph)
            x_BND = tap.save(layer, "hidden", x_BND + more_BND)
        tap.at_layer(None)
        return Encoded(x_BND, inputs.lengths_B)


class GraphBlock(nn.Module):
    """x + attention(norm(x)) + relu(norm(local(x))), then x + feed_forward(norm(x))."""

    def __init__(
        self, attention: SelfAttention, feed_forward: nn.Module, residual: Callable[[], Any],
        local: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention, self.feed_forward, self.local = attention, feed_forward, local
        self.around_attention, self.around_feed_forward = residual(), residual()

    def forward(self, x_BND: Tensor, e_BED: Tensor, view: Any, graph: Links) -> tuple[Tensor, Tensor]:
        seen_BND = self.around_attention(x_BND, lambda x: self.attention(x, view))
        if self.local is not None:
            more_BND, e_BED = self.local(x_BND, e_BED, graph)
            seen_BND = seen_BND + more_BND
        return self.around_feed_forward(seen_BND, self.feed_forward), e_BED


@final
class GraphTransformer(GraphNetwork):
    """Every node sees every other; how far and over which edges is added to the scores."""

    def __init__(self, config: GraphTransformerConfig, nodes: int, edges: int) -> None:
        super().__init__(config, nodes, edges, config.degree)
        width, norm = config.width, config.norm
        self.pairs = PairBias(config.heads, config.distance + 2 if config.distance else 0, edges, config.path)
        self.layers = nn.ModuleList(
            GraphBlock(
                SelfAttention(width, config.heads, config.attention_dropout),
                config.feed_forward.build(width, config.inner), norm.residual(width, config.dropout),
                MessageLayer(config.local, width, config.dropout) if config.local else None,
            )
            for _ in range(config.layers)
        )  # fmt: skip
        self.final = norm.final(width)
        for part in (self.embed, self.edges):
            draw_normal(part, 0.1)

    def encode(self, inputs: Any) -> Encoded:
        x_BND, e_BED, graph = self.read(inputs)
        far = self.config.distance
        relations = {"kinds": inputs.kinds_BEF}
        if inputs.distances_BNN is not None:
            relations["distances"] = inputs.distances_BNN.long().clamp(max=far + 1)
        if inputs.paths_BNNL is not None:
            relations["paths"] = inputs.paths_BNNL
        nodes = x_BND.shape[1]
        scene = Scene(nodes, nodes, x_BND.device, key_lengths_B=inputs.lengths_B, relations=relations)
        bias_BHNN = self.pairs.bias(x_BND[:, None], scene)  # of all layers
        view = Padding().view(scene).placed(GivenBias(bias_BHNN))
        for number, block in enumerate(self.layers):
            tap.at_layer(number)
            x_BND, e_BED = block(x_BND, e_BED, view, graph)
            x_BND = tap.save(block, "hidden", x_BND)
        tap.at_layer(None)
        return Encoded(tap.save(self, "hidden", self.final(x_BND)), inputs.lengths_B)
