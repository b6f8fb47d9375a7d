"""Networks of graphs: renumbered graphs get equal answers, biases and sums are those of a computation by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.data.graphs import Placed, joined, placed
from headway.models import build
from headway.models.graph import Facts, GraphTransformerConfig, MessagePassingConfig
from headway.models.heads import LinearClasses
from headway.nn.graphs import GatedLayer, GinLayer, Links, PairBias, links
from headway.nn.position import Scene

HEAD = LinearClasses(("number",), answer="number", pooling="sum")
SMALL: dict[str, Any] = {"layers": 3, "width": 16, "dropout": 0.0}
CONFIGS = {
    "distances": GraphTransformerConfig(heads=4, inner=24, attention_dropout=0.0, **SMALL),
    "walks and sums": GraphTransformerConfig(
        heads=2, inner=24, attention_dropout=0.0, distance=0, path=0, degree=False, local="gated", walk=5, **SMALL
    ),
    "gin beside": GraphTransformerConfig(heads=2, inner=24, attention_dropout=0.0, local="gin", **SMALL),
    "gin": MessagePassingConfig("gin", walk=3, **SMALL),
    "gated": MessagePassingConfig("gated", **SMALL),
}


def drawn(seed: int, count: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A tree, so that there is one shortest path, with an edge to spare."""
    draw = np.random.default_rng(seed)
    ends = np.array([[int(draw.integers(0, node)), node] for node in range(1, count)])
    return draw.integers(1, 7, (count, 2)), ends, draw.integers(1, 5, (len(ends), 1))


def renumbered(nodes: np.ndarray, ends: np.ndarray, kinds: np.ndarray, facts: Facts) -> Placed:
    draw = np.random.default_rng(5)
    order = draw.permutation(len(nodes))
    place = np.argsort(order)
    rows = draw.permutation(len(ends))
    return placed(nodes[order], place[ends][rows], kinds[rows], facts)


def model_of(name: str) -> Any:
    torch.manual_seed(2)
    config = CONFIGS[name]
    model = build(config.name, config, (8, 6), HEAD).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model.eval()


def answer(model: Any, graphs: list[Placed]) -> torch.Tensor:
    inputs = joined(graphs).map(lambda t: t.double() if t.is_floating_point() else t)
    with torch.no_grad():
        return model(inputs)


@pytest.mark.parametrize("name", CONFIGS)
def test_renumbered_graphs_get_equal_answers(name: str) -> None:
    model, facts = model_of(name), CONFIGS[name].facts
    for seed in range(4):
        graph = drawn(seed)
        found = answer(model, [placed(*graph, facts), renumbered(*graph, facts)])
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    other = answer(model, [placed(*drawn(0), facts), placed(*drawn(1), facts)])
    assert (other[0] - other[1]).abs() > 1e-3


@pytest.mark.parametrize("name", CONFIGS)
def test_what_stands_beside_a_graph_changes_nothing(name: str) -> None:
    """Nodes and edges of larger graphs are padding for it; a graph without edges is one too."""
    model, facts = model_of(name), CONFIGS[name].facts
    alone = placed(np.array([[1, 2]]), np.zeros((0, 2), np.int64), np.zeros((0, 1), np.int64), facts)
    small, large = placed(*drawn(1, 4), facts), placed(*drawn(2, 30), facts)
    found = answer(model, [small, alone, large])
    for row, graph in enumerate((small, alone, large)):
        torch.testing.assert_close(answer(model, [graph])[0], found[row], rtol=0, atol=1e-9)


def edges_of(graph: Placed) -> list[tuple[int, int, int]]:
    return [(int(a), int(b), number) for number, (a, b) in enumerate(graph.edges_E2)]


def all_links(edges: torch.Tensor) -> Links:
    """Of nine nodes, none of them padding."""
    there, own = torch.ones(edges.shape[:2], dtype=torch.bool), torch.ones(1, 9, dtype=torch.bool)
    return links(edges, there, own, torch.float64)


def test_gin_is_its_formula() -> None:
    layer = GinLayer(6).double().eval()
    graph = placed(*drawn(3), Facts())
    x, e = torch.randn(1, 9, 6, dtype=torch.float64), torch.randn(1, len(graph.edges_E2), 6, dtype=torch.float64)
    edges = torch.from_numpy(graph.edges_E2.copy())[None]
    found, _ = layer(
        x, e, links(edges, torch.ones(edges.shape[:2], dtype=torch.bool), torch.ones(1, 9, dtype=torch.bool), x.dtype)
    )
    for node in range(9):
        total = (1 + layer.epsilon) * x[0, node]
        for source, target, number in edges_of(graph):
            total = total + (F.relu(x[0, source] + e[0, number]) if target == node else 0)
        wanted = layer.second(F.relu(layer.norm(layer.first(total)[None, None])))[0, 0]
        torch.testing.assert_close(found[0, node], wanted, rtol=0, atol=1e-12)


def test_gated_sums_are_their_formula() -> None:
    layer = GatedLayer(4).double()
    graph = placed(*drawn(3), Facts())
    x, e = torch.randn(1, 9, 4, dtype=torch.float64), torch.randn(1, len(graph.edges_E2), 4, dtype=torch.float64)
    edges = torch.from_numpy(graph.edges_E2.copy())[None]
    graph_links = links(
        edges, torch.ones(edges.shape[:2], dtype=torch.bool), torch.ones(1, 9, dtype=torch.bool), x.dtype
    )
    found, changed = layer(x, e, graph_links)
    own, sent, to, come = layer.nodes(x[0]).chunk(4, -1)
    for node in range(9):
        gates, total = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
        for source, target, number in edges_of(graph):
            if target == node:
                next_e = layer.edges(e[0, number]) + come[source] + to[node]
                torch.testing.assert_close(changed[0, number], next_e, rtol=0, atol=1e-12)
                gates, total = gates + next_e.sigmoid(), total + next_e.sigmoid() * sent[source]
        torch.testing.assert_close(found[0, node], own[node] + total / (gates + 1e-6), rtol=0, atol=1e-12)


def test_biases_are_those_of_a_computation_by_hand() -> None:
    facts = Facts(distances=True, path=3)
    graph = placed(*drawn(7), facts)
    part = PairBias(2, 12, 6, 3).double()
    torch.nn.init.normal_(part.distances.table.weight)
    torch.nn.init.normal_(part.path.table.weight)
    inputs = joined([graph], 9, len(graph.edges_E2))
    relations = {"distances": inputs.distances_BNN.long(), "paths": inputs.paths_BNNL, "kinds": inputs.kinds_BEF}
    found = part.bias(
        torch.zeros(1, 2, 9, 4, dtype=torch.float64), Scene(9, 9, torch.device("cpu"), relations=relations)
    )
    number_of = {(a, b): number for a, b, number in edges_of(graph)}
    neighbours = {node: [b for a, b in number_of if a == node] for node in range(9)}

    def route(at: int, to: int, seen: tuple[int, ...] = ()) -> list[int] | None:
        if at == to:
            return []
        for other in neighbours[at]:
            if other not in seen and (rest := route(other, to, (*seen, at))) is not None:
                return [number_of[at, other], *rest]
        return None

    for a in range(9):
        for b in range(9):
            edges = route(a, b)
            assert edges is not None
            wanted = part.distances.table.weight[len(edges)].clone()
            for place, edge in enumerate(edges[:3]):
                wanted += part.path.table.weight[place * 6 + int(graph.kinds_EF[edge, 0])] / min(len(edges), 3)
            torch.testing.assert_close(found[0, :, a, b], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["gin", "gated", "gin beside"])
def test_empty_rows_count_for_no_norm(name: str) -> None:
    """Where batches have one shape, the last of an epoch is filled up with them."""
    graphs = [placed(*drawn(seed), CONFIGS[name].facts) for seed in range(3)]
    inputs = joined(graphs).map(lambda t: t.double() if t.is_floating_point() else t)
    plain, filled = model_of(name).train(), model_of(name).train()
    found, wanted = filled.encode(inputs.pad(8)).x_BTD[:3], plain.encode(inputs).x_BTD
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    for one, other in zip(plain.buffers(), filled.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
