"""Graphs: nodes and edges with kinds, what is known of every pair of nodes, and batches of them.

A graph is written as a SMILES string (`CCO`, read by RDKit) or as a JSON object:

    {"nodes": ["C", "C", "O"], "edges": [[0, 1], [1, 2, "double"]]}

A node is its kind, or a list of kinds: one for each field. Behind the two nodes of an edge come the kinds of the edge,
one for each field. Edges have no direction: both are kept.

N nodes, E edges (each in both directions), F fields, L edges of a path, K steps of a walk, B rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import Batch, column
from headway.data.augment import generator
from headway.data.batches import order_of, rung
from headway.data.columns import Columns, Places, with_header
from headway.data.labelled import Labelled, Say, is_table, label_in, read_labelled, read_texts
from headway.data.readers import bare_suffix
from headway.data.table import Table, read_table
from headway.errors import InputError, refuse
from headway.extras import wanted

Ints = NDArray[np.int64]
SMILES = ("smiles", "smi", "molecule")
FARTHEST = 255  # a distance; also of nodes that no path joins
MOST = 4096  # nodes of a graph
WHOLE = 2**31  # bytes up to which graphs of batches of one shape are kept filled up


class Graph(NamedTuple):
    """Kinds as they are written: of every node and of every edge a tuple, one for each field."""

    nodes: tuple[tuple[str, ...], ...]
    edges: tuple[tuple[int, int], ...]
    kinds: tuple[tuple[str, ...], ...]


def graph_of(text: str, where: str = "") -> Graph:
    """A graph as it is written. `where`: what a message begins with."""
    try:
        return _read(text.strip())
    except InputError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from None


@lru_cache(maxsize=1 << 16)
def _read(text: str) -> Graph:
    return _from_json(text) if text.startswith("{") else molecule(text)


def molecule(smiles: str) -> Graph:
    """Atoms: element, charge, hydrogens, whether it is aromatic, whether it is in a ring. Bonds: kind, ring."""
    chemistry, logs = wanted("rdkit.Chem", "molecules"), wanted("rdkit.RDLogger", "molecules")
    logs.DisableLog("rdApp.*")
    found: Any = chemistry.MolFromSmiles(smiles) if smiles else None
    refuse(found is None, f"'{smiles[:60]}' is no SMILES that RDKit can read")
    atoms = tuple(
        (atom.GetSymbol(), f"{atom.GetFormalCharge():+d}", f"H{atom.GetTotalNumHs()}",
         "aromatic" if atom.GetIsAromatic() else "plain", "ring" if atom.IsInRing() else "chain")
        for atom in found.GetAtoms()
    )  # fmt: skip
    refuse(not atoms, f"'{smiles[:60]}' has no atom")
    refuse(len(atoms) > MOST, f"'{smiles[:60]}' has more than {MOST:,} atoms")
    bonds = tuple(found.GetBonds())
    ends = tuple((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds)
    kinds = tuple((str(bond.GetBondType()).lower(), "ring" if bond.IsInRing() else "chain") for bond in bonds)
    return Graph(atoms, ends, kinds)


def flat(smiles: str) -> NDArray[np.float64]:
    """(N, 2): where the atoms of a molecule are drawn."""
    found = wanted("rdkit.Chem", "molecules").MolFromSmiles(smiles.strip())
    wanted("rdkit.Chem.AllChem", "molecules").Compute2DCoords(found)
    places_N3 = found.GetConformer().GetPositions()
    return np.asarray(places_N3[:, :2] * [1, -1], np.float64)  # a page's second number grows downward


def _from_json(text: str) -> Graph:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InputError(f"the graph is no JSON: {error}") from None
    nodes, edges = given.get("nodes"), given.get("edges", [])
    for name, value in (("nodes", nodes), ("edges", edges)):
        refuse(not isinstance(value, list), f"a graph needs a list of {name}")
    refuse(not nodes, "the graph has no node")
    refuse(len(nodes) > MOST, f"the graph has {len(nodes):,} nodes, at most {MOST:,} are read")
    kinds = tuple(_kinds(node, f"node {number}") for number, node in enumerate(nodes))
    refuse(len({len(one) for one in kinds}) > 1, "nodes have different numbers of kinds")
    ends: list[tuple[int, int]] = []
    for number, edge in enumerate(edges):
        fine = isinstance(edge, list) and len(edge) >= 2 and all(type(end) is int for end in edge[:2])
        refuse(not fine, f"edge {number} is {str(edge)[:60]}, expected [node, node, kind …]")
        for end in edge[:2]:
            refuse(not 0 <= end < len(nodes), f"edge {number} has the node {end}, of {len(nodes)} from 0 on")
        ends.append((edge[0], edge[1]))
    of_edges = tuple(_kinds(edge[2:] or [""], f"edge {number}") for number, edge in enumerate(edges))
    refuse(len({len(one) for one in of_edges}) > 1, "edges have different numbers of kinds")
    return Graph(kinds, tuple(ends), of_edges)


def _kinds(given: Any, where: str) -> tuple[str, ...]:
    values = given if isinstance(given, list) else [given]
    fine = values and all(isinstance(value, str | int) for value in values)
    refuse(not fine, f"{where} is {str(given)[:60]}, expected a kind: text or a whole number")
    return tuple(map(str, values))


def read_graphs(
    files: Sequence[str | Path], columns: Columns, known: Collection[str], say: Say, answer: Any
) -> list[Labelled]:
    """Graphs with their labels: tables with a column of SMILES, or lines of JSON with nodes and edges. All have as many
    kinds of nodes, and of edges."""
    found: list[tuple[Labelled, str]] = []
    for file in map(str, files):
        if _of_graphs(file, columns):
            found += _json_lines(file, columns.label or "label", answer)
        else:
            own = _with_smiles(file, columns)
            texts = read_labelled([file], own, known, say, answer=answer)
            found += zip(texts, _places(file, own, len(texts)), strict=True)
    fields: dict[str, int] = {}
    for one, where in found:
        graph = graph_of(str(one.text), where)
        for what, some in (("a node", graph.nodes), ("an edge", graph.kinds)):
            for kinds in some[:1]:
                wanted = fields.setdefault(what, len(kinds))
                refuse(len(kinds) != wanted, f"{where}: {what} has {len(kinds)} kinds, those before it {wanted}")
    return [one for one, _ in found]


def _places(file: str, columns: Columns, count: int) -> list[str]:
    """Where each row of a file stands, for messages."""
    if is_table(file):
        table = with_header(read_table(file), columns)
        return [table.where(row) for row in table.rows]
    return [f"{file}, text {number}" for number in range(1, count + 1)]


def _of_graphs(file: str, columns: Columns) -> bool:
    """Whether it is lines of JSON with nodes and edges."""
    return bare_suffix(Path(file)) == ".jsonl" and not columns.texts and "edges" in read_table(file).names


def _with_smiles(file: str, columns: Columns) -> Columns:
    """The column of SMILES by its name, where none is asked for."""
    if columns.texts or not is_table(file):
        return columns
    table = read_table(file)
    names = table.names or [str(cell).strip() for cell in (table.rows[0].cells if table.rows else ())]
    found = [name for name in names if name.lower() in SMILES]
    return Columns((found[0],), columns.label) if found else columns


def _json_lines(file: str, label: str, answer: Any) -> Iterator[tuple[Labelled, str]]:
    """Graphs with their labels, and where each stands."""
    table = read_table(file)
    names = table.names or ()
    refuse(label not in names, f"{file}: no line has the key '{label}': --label-column NAME names another")
    places = Places((), names.index(label))
    for row, text in zip(table.rows, graph_lines(table), strict=True):
        yield Labelled(text, label_in(table, row, places, answer)), table.where(row)


def graph_lines(table: Table) -> Iterator[str]:
    """The graphs of a table with nodes and edges, as they are written."""
    for row in table.rows:
        facts = dict(zip(table.names, row.cells, strict=True))
        yield json.dumps({name: facts[name] for name in ("nodes", "edges") if facts.get(name) is not None})


def graphs_in(file: str, columns: Columns) -> list[str]:
    """The graphs of a table, whether it has labels or not."""
    if _of_graphs(file, columns):
        return list(graph_lines(read_table(file)))
    return [str(text) for text in read_texts(file, _with_smiles(file, columns))]


@dataclass(frozen=True, eq=False)
class Placed:
    """A graph as numbers. edges_E2: each in both directions. kinds_EF: none of them 0. paths_NNL: edges of the shortest
    path from one node to another by their numbers in `edges_E2` from 1 on; 0 where there is none."""

    nodes_NF: Ints
    edges_E2: Ints
    kinds_EF: Ints
    distances_NN: NDArray[np.uint8] | None
    paths_NNL: NDArray[np.int32] | None
    walks_NK: NDArray[np.float32] | None
    vectors_NK: NDArray[np.float32] | None


def placed(nodes_NF: Ints, ends_E2: Ints, kinds_EF: Ints, facts: Any) -> Placed:
    """`facts`: what a model reads (`headway.models.graph`)."""
    count = len(nodes_NF)
    own = ends_E2[:, 0] != ends_E2[:, 1] if len(ends_E2) else np.zeros(0, bool)  # no node is its own neighbour
    ends_E2, kinds_EF = ends_E2[own], kinds_EF[own]
    edges_E2, kinds_EF = np.concatenate([ends_E2, ends_E2[:, ::-1]]), np.concatenate([kinds_EF, kinds_EF])
    near_NN = np.zeros((count, count), bool)
    near_NN[edges_E2[:, 0], edges_E2[:, 1]] = True
    distances_NN = shortest(near_NN) if facts.distances or facts.path else None
    return Placed(
        nodes_NF, edges_E2, kinds_EF, distances_NN,
        paths(distances_NN, edges_E2, facts.path) if facts.path and distances_NN is not None else None,
        walks(near_NN, facts.walk) if facts.walk else None,
        eigenvectors(near_NN, facts.laplacian) if facts.laplacian else None,
    )  # fmt: skip


def shortest(near_NN: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The number of edges between nodes; FARTHEST where no path joins them."""
    count = len(near_NN)
    found_NN = np.full((count, count), FARTHEST, np.uint8)
    reached_NN, wave_NN = np.eye(count, dtype=bool), np.eye(count, dtype=bool)
    found_NN[wave_NN] = 0
    for far in range(1, FARTHEST):
        wave_NN = (wave_NN.astype(np.float32) @ near_NN.astype(np.float32) > 0) & ~reached_NN
        if not wave_NN.any():
            break
        found_NN[wave_NN] = far
        reached_NN |= wave_NN
    return found_NN


def paths(distances_NN: NDArray[np.uint8], edges_E2: Ints, longest: int) -> NDArray[np.int32]:
    """(N, N, L): of one shortest path from each node to each other the first `longest` edges, from 1 on. Of several
    paths the one whose next node has the lowest number."""
    count = len(distances_NN)
    number_NN = np.zeros((count, count), np.int32)
    number_NN[edges_E2[:, 0], edges_E2[:, 1]] = np.arange(1, len(edges_E2) + 1)
    found_NNL = np.zeros((count, count, longest), np.int32)
    # The next node from `at` towards `to`: a neighbour that is nearer to it.
    step_NN, far_NN = np.full((count, count), -1), distances_NN.astype(np.int16)
    for node in range(count):
        nearer_NN = (number_NN[:, node] > 0)[:, None] & (far_NN[node] + 1 == far_NN) & (step_NN < 0)
        step_NN[nearer_NN] = node
    at_NN = np.broadcast_to(np.arange(count)[:, None], (count, count)).copy()
    to_NN = np.broadcast_to(np.arange(count), (count, count))
    joined_NN = (distances_NN > 0) & (distances_NN < FARTHEST)
    for place in range(longest):
        next_NN = np.where(joined_NN & (at_NN != to_NN), step_NN[at_NN, to_NN], at_NN)
        moved_NN = next_NN != at_NN
        found_NNL[..., place][moved_NN] = number_NN[at_NN[moved_NN], next_NN[moved_NN]]
        at_NN = next_NN
    return found_NNL


def walks(near_NN: NDArray[np.bool_], steps: int) -> NDArray[np.float32]:
    """(N, K): the probability that a random walk of 1 … K steps from a node ends there (Dwivedi et al. 2022, 3.2)."""
    share_NN = near_NN / near_NN.sum(1, keepdims=True).clip(min=1)
    power_NN, found = np.eye(len(near_NN)), []
    for _ in range(steps):
        power_NN = power_NN @ share_NN
        found.append(power_NN.diagonal())
    return np.stack(found, 1).astype(np.float32)


def eigenvectors(near_NN: NDArray[np.bool_], count: int) -> NDArray[np.float32]:
    """(N, K): those of I − D^(−½) A D^(−½) with the smallest eigenvalues, without the first (Dwivedi and Bresson 2021,
    2); 0 where there are fewer. Their signs mean nothing."""
    degree_N = near_NN.sum(1).clip(min=1) ** -0.5
    laplacian_NN = np.eye(len(near_NN)) - degree_N[:, None] * near_NN * degree_N
    vectors_NN = np.linalg.eigh(laplacian_NN)[1][:, 1 : 1 + count]
    return np.pad(vectors_NN, ((0, 0), (0, count - vectors_NN.shape[1]))).astype(np.float32)


@dataclass(frozen=True)
class GraphInputs(Batch):
    """nodes_BNF: kinds, 0 at padding. edges_BE2: the two nodes of each edge; kinds_BEF: its kinds, 0 at padding, which
    tells it apart. The rest as in `Placed`."""

    nodes_BNF: Tensor = column()
    lengths_B: Tensor = column(empty=1)
    edges_BE2: Tensor = column()
    kinds_BEF: Tensor = column()
    distances_BNN: Tensor | None = column(default=None)
    paths_BNNL: Tensor | None = column(default=None)
    walks_BNK: Tensor | None = column(default=None)
    vectors_BNK: Tensor | None = column(default=None)


def joined(graphs: Sequence[Placed], nodes: int = 0, edges: int = 0) -> GraphInputs:
    """Side by side, filled up to so many nodes and edges; 0: as many as the largest has, and a few more, so that there
    are few shapes."""
    nodes = nodes or rung(max(len(graph.nodes_NF) for graph in graphs))
    edges = edges or rung(max(1, *(len(graph.edges_E2) for graph in graphs)))

    def filled(name: str, *shape: int) -> Tensor | None:
        parts = [getattr(graph, name) for graph in graphs]
        if parts[0] is None:
            return None
        found = np.zeros((len(parts), *shape, *parts[0].shape[len(shape) :]), parts[0].dtype)
        for row, part in zip(found, parts, strict=True):
            row[tuple(slice(0, size) for size in part.shape)] = part
        return torch.from_numpy(found)

    given: dict[str, Any] = {
        "nodes_BNF": filled("nodes_NF", nodes), "edges_BE2": filled("edges_E2", edges),
        "kinds_BEF": filled("kinds_EF", edges), "distances_BNN": filled("distances_NN", nodes, nodes),
        "paths_BNNL": filled("paths_NNL", nodes, nodes), "walks_BNK": filled("walks_NK", nodes),
        "vectors_BNK": filled("vectors_NK", nodes),
    }  # fmt: skip
    return GraphInputs(**given, lengths_B=torch.tensor([len(graph.nodes_NF) for graph in graphs]))


class GraphBatches:
    """Endless batches of `rows` graphs, epoch after epoch, each in a new order: a function of the seed and the step.

    Graphs of any size share a batch. With those of like size together there would be less padding, but batch norm would
    divide by what is typical of a size, and a model would learn far less of solubility, which goes with size.

    answers: makes a batch of inputs and the numbers of their graphs. full: every batch has the same shape, and graphs
    are filled up once, where memory allows it: a step of a small model is shorter than filling them up again. flips:
    the signs of eigenvectors are drawn anew for every graph and step."""

    def __init__(
        self, graphs: Sequence[Placed], answers: Any, rows: int, seed: int, shuffle: bool = True, full: bool = False,
        flips: bool = False,
    ) -> None:  # fmt: skip
        self.graphs, self.answers, self.rows, self.seed = graphs, answers, rows, seed
        self.shuffle, self.full, self.flips = shuffle, full, flips
        self.per_epoch = -(-len(graphs) // rows)
        self.most = (
            rung(max(len(graph.nodes_NF) for graph in graphs)),
            rung(max(1, *(len(graph.edges_E2) for graph in graphs))),
        ) if full else (0, 0)  # fmt: skip
        self.whole = joined(graphs, *self.most) if full and self._room() <= WHOLE else None

    def _room(self) -> int:
        """Bytes of all graphs, filled up."""
        one = joined(self.graphs[:1], *self.most)
        return len(self.graphs) * sum(tensor.nbytes for _, tensor in one.tensors())

    def _inputs(self, examples: Ints) -> GraphInputs:
        if self.whole is None:
            return joined([self.graphs[example] for example in examples.tolist()], *self.most)
        rows = torch.tensor(examples)
        return self.whole.map(lambda tensor: tensor[rows])

    def batch(self, step: int) -> Any:
        epoch, at = divmod(step, self.per_epoch)
        order = order_of(len(self.graphs), self.seed, epoch, self.shuffle)
        examples = order[at * self.rows : (at + 1) * self.rows]
        inputs = self._inputs(examples)
        if self.flips and inputs.vectors_BNK is not None:
            signs = generator(self.seed, step, 11).integers(0, 2, (len(examples), 1, inputs.vectors_BNK.shape[2]))
            inputs.vectors_BNK.mul_(torch.from_numpy(2.0 * signs - 1.0))
        batch = self.answers(inputs, examples)
        return batch.pad(self.rows) if self.full else batch

    def epoch(self, epoch: int = 0) -> Iterator[Any]:
        return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))
