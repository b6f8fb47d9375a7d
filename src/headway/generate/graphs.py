"""Models of graphs: molecules and other graphs in; their labels or numbers, or a trace over their nodes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

import numpy as np
import torch
from numpy.typing import NDArray

from headway.card import Loaded
from headway.data.graphs import FARTHEST, MOST, Graph, GraphInputs, Placed, flat, graph_of, joined, placed, shortest
from headway.errors import InputError
from headway.generate.encoder import Guess, HeadedModel
from headway.generate.one_or_many import is_text, one_or_many
from headway.generate.tracing import Answering, check_one, checked, trace_of
from headway.nn import tap
from headway.nn.tap import chosen
from headway.traces import Trace, Track

PAIRS = {"cpu": 1 << 16, "cuda": 1 << 20}  # of nodes, that are answered at a time


def layout(text: str, graph: Graph) -> NDArray[np.float64]:
    """(N, 2): where a drawing has the nodes: a molecule's as chemists draw them, of other graphs so that distances are
    kept as well as a plane can (Torgerson 1952)."""
    if not text.lstrip().startswith("{"):
        return flat(text)
    near_NN = np.zeros((len(graph.nodes),) * 2, bool)
    for a, b in graph.edges:
        near_NN[a, b] = near_NN[b, a] = a != b
    far_NN = shortest(near_NN).astype(float)
    apart = far_NN[far_NN < FARTHEST].max() + 2
    squares_NN = np.minimum(far_NN, apart) ** 2
    middle_NN = np.eye(len(far_NN)) - 1 / len(far_NN)
    values_N, vectors_NN = np.linalg.eigh(-middle_NN @ squares_NN @ middle_NN / 2)
    found_N2 = vectors_NN[:, ::-1][:, :2] * np.sqrt(values_N[::-1][:2].clip(min=0))
    return np.pad(found_N2, ((0, 0), (0, 2 - found_N2.shape[1])))


class GraphReader:
    """Graphs as they are written, into what a model reads. facts: what it reads beside kinds."""

    def __init__(self, nodes: Any, edges: Any, facts: Any) -> None:
        self.nodes, self.edges, self.facts = nodes, edges, facts

    def placed(self, graph: Graph, where: str = "") -> Placed:
        before = f"{where}: " if where else ""
        nodes_NF = self.nodes.encode(graph.nodes, f"{before}a node")
        kinds_EF = self.edges.encode(graph.kinds, f"{before}an edge")
        ends_E2 = torch.tensor(graph.edges, dtype=torch.long).reshape(-1, 2).numpy()
        return placed(nodes_NF, ends_E2, kinds_EF, self.facts)


class GraphModel(HeadedModel, Answering):
    """`headway.load(folder)` gives one: `model.classify("CCO")`, or a list of graphs: SMILES, or JSON objects with
    nodes and edges, as text."""

    vocabulary = 0  # it writes no tokens

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        """`limit`: the most nodes of a graph."""
        super().__init__(loaded, device, dtype)
        self.limit = MOST
        self.reader = GraphReader(loaded.processors["nodes"], loaded.processors["edges"], loaded.card.config.facts)

    @property
    def tokenizers(self) -> Never:  # type: ignore[override]
        raise InputError("this model reads graphs: it has no tokens")

    def places(self, text: str) -> int:
        return len(graph_of(text).nodes)

    @one_or_many(is_text)
    @torch.inference_mode()
    def classify(self, graphs: Sequence[str]) -> list[list[Guess]]:
        """The labels of each graph, the most probable first; of a model that gives numbers, those."""
        named = [(text, f"graph {number}") for number, text in enumerate(graphs, 1)]
        read = [self.reader.placed(graph_of(*one), one[1]) for one in named]
        waiting = sorted(range(len(read)), key=lambda at: -len(read[at].nodes_NF))
        found: dict[int, list[Guess]] = {}
        while waiting:  # the largest first: what is known of pairs grows with the square
            rows = max(1, PAIRS[self.device.type] // len(read[waiting[0]].nodes_NF) ** 2)
            some, waiting = waiting[:rows], waiting[rows:]
            found |= dict(zip(some, self.guesses(self._sent(joined([read[at] for at in some]))), strict=True))
        return [found[at] for at in range(len(read))]

    @torch.inference_mode()
    def trace(
        self, value: str, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What the model computes while this graph is read, along its nodes; its edges in `about["edges"]`, and where a
        drawing has its nodes in `about["places"]`."""
        check_one(value)
        graph = graph_of(value)
        choice = checked(self.model, chosen(layers, heads, tensors))
        read = self.reader.placed(graph)
        inputs = self._sent(joined([read], len(read.nodes_NF), max(1, len(read.edges_E2))))
        with tap.record(self.model, choice) as recorder:
            self.model(inputs)
        [guesses] = self.guesses(inputs)
        track = Track("nodes", "nodes", tuple(node[0] for node in graph.nodes), text=value)
        edges = [[*ends, kinds[0]] for ends, kinds in zip(graph.edges, graph.kinds, strict=True)]
        about = {
            "labels": [[guess.text, round(guess.probability, 5)] for guess in guesses[:top]],
            "edges": edges, "places": layout(value, graph).round(3).tolist(),
        }  # fmt: skip
        return trace_of(self.model, recorder, [track], name=self.name, about=about)

    def _sent(self, inputs: GraphInputs) -> GraphInputs:
        return inputs.map(lambda t: t.to(self.device, self.dtype if t.is_floating_point() else None))
