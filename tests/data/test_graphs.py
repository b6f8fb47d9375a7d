"""Graphs as they are written, and what is known of every pair of nodes, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.data.columns import Columns
from headway.data.graphs import (
    FARTHEST,
    GraphBatches,
    eigenvectors,
    graph_of,
    joined,
    paths,
    placed,
    read_graphs,
    shortest,
    walks,
)
from headway.data.labelled import LabelBatch
from headway.errors import InputError
from headway.models.graph import Facts

LINE = np.array([[0, 1], [1, 2], [2, 3]])


def near(edges: np.ndarray, count: int) -> np.ndarray:
    found = np.zeros((count, count), bool)
    for a, b in edges:
        found[a, b] = found[b, a] = True
    return found


def test_distances_are_those_of_a_search_from_every_node() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 7, 20):
        edges = rng.integers(0, count, (count, 2))
        found = shortest(near(edges, count) & ~np.eye(count, dtype=bool))
        for start in range(count):
            seen, wave, far = {start: 0}, [start], 0
            while wave:
                far += 1
                wave = [b for b in range(count) if b not in seen and any(near(edges, count)[a, b] for a in wave)]
                seen |= dict.fromkeys(wave, far)
            assert found[start].tolist() == [seen.get(node, FARTHEST) for node in range(count)]


def test_a_path_has_the_edges_between() -> None:
    both = np.concatenate([LINE, LINE[:, ::-1]])
    found = paths(shortest(near(LINE, 4)), both, 3)
    assert found[0, 3].tolist() == [1, 2, 3]  # 0 → 1 → 2 → 3, from 1 on
    assert found[3, 1].tolist() == [6, 5, 0] and found[2, 2].tolist() == [0, 0, 0]
    assert paths(shortest(near(LINE[:1], 4)), both[[0, 3]], 2)[0, 3].tolist() == [0, 0]  # no path joins them


def test_a_walk_comes_back_as_a_matrix_power_says() -> None:
    found = walks(near(LINE, 4), 4)
    step = near(LINE, 4) / near(LINE, 4).sum(1, keepdims=True)
    assert np.allclose(found[:, 3], np.linalg.matrix_power(step, 4).diagonal()) and not found[:, 0].any()


def test_eigenvectors_are_those_of_the_laplacian() -> None:
    found = eigenvectors(near(LINE, 4), 5).astype(float)
    degree = np.array([1, 2, 2, 1]) ** -0.5
    laplacian = np.eye(4) - degree[:, None] * near(LINE, 4) * degree
    for column in range(3):
        vector = found[:, column]
        assert np.allclose(laplacian @ vector, (vector @ laplacian @ vector) * vector, atol=1e-6)
    assert not found[:, 3:].any()  # there are no more


def test_what_is_written_as_json() -> None:
    graph = graph_of('{"nodes": ["C", "O"], "edges": [[0, 1, "double"]]}')
    assert graph.nodes == (("C",), ("O",)) and graph.edges == ((0, 1),) and graph.kinds == (("double",),)
    assert graph_of('{"nodes": [[1, 2], [3, 4]], "edges": []}').nodes == (("1", "2"), ("3", "4"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"nodes": [], "edges": []}', "no node"),
        ('{"nodes": [1, 2], "edges": [[0, 2]]}', "edge 0 has the node 2, of 2 from 0 on"),
        ('{"nodes": [1, 2], "edges": [[0, -1]]}', "the node -1"),
        ('{"nodes": [1, 2], "edges": [[0]]}', r"expected \[node, node, kind"),
        ('{"nodes": [1, [2, 3]], "edges": []}', "different numbers of kinds"),
        ('{"nodes": [1, {}], "edges": []}', "node 1 is {}"),
        ('{"nodes": 3}', "a list of nodes"),
        ('{"nodes": ', "no JSON"),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        graph_of(text)


def test_lines_of_json_with_labels(tmp_path: Path) -> None:
    rows = [{"nodes": [1, 2], "edges": [[0, 1]], "y": 0.5}, {"nodes": [1], "edges": [], "y": 2}]
    file = tmp_path / "graphs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = read_graphs([file], Columns((), "y"), (), print, "number")
    assert [one.label for one in found] == ["0.5", "2"] and graph_of(found[0].text).edges == ((0, 1),)
    file.write_text(json.dumps(rows[0]) + "\n" + json.dumps(rows[1] | {"edges": [[0, 7]]}))
    with pytest.raises(InputError, match="graphs.jsonl, line 2: edge 0 has the node 7"):
        read_graphs([file], Columns((), "y"), (), print, "number")


def test_a_batch_keeps_every_graph() -> None:
    facts = Facts(distances=True, path=2, walk=3, laplacian=2)
    small = placed(np.ones((1, 1), np.int64), np.zeros((0, 2), np.int64), np.zeros((0, 1), np.int64), facts)
    line = placed(np.ones((4, 1), np.int64), LINE, np.ones((3, 1), np.int64), facts)
    batch = joined([small, line])
    assert batch.lengths_B.tolist() == [1, 4] and (batch.kinds_BEF[1, :, 0] > 0).sum() == 6
    assert batch.distances_BNN[1, 0, 3] == 3 and not batch.kinds_BEF[0].any()


def test_an_epoch_has_every_graph_once_and_any_sizes_together() -> None:
    """Batch norm would divide by what is typical of a size."""
    draw, facts = np.random.default_rng(3), Facts()
    sizes = draw.integers(1, 60, 137)
    none = np.zeros((0, 2), np.int64), np.zeros((0, 1), np.int64)
    graphs = [placed(np.ones((size, 1), np.int64), *none, facts) for size in sizes]
    batches = GraphBatches(graphs, lambda inputs, examples: (inputs, examples), 8, seed=1)
    first, second = ([batch[1].tolist() for batch in batches.epoch(epoch)] for epoch in (0, 1))
    assert sorted(sum(first, [])) == list(range(137)) and first != second
    assert [batches.batch(step)[1].tolist() for step in range(18)] == first
    assert np.mean([np.ptp(sizes[some]) for some in first]) > 40
    labels = lambda inputs, examples: LabelBatch(inputs, torch.from_numpy(examples))  # noqa: E731
    full = GraphBatches(graphs, labels, 8, seed=1, full=True)
    for batch, numbers in zip(full.epoch(0), first, strict=True):  # a GPU learns from the same batches
        assert batch.labels_B[batch.labels_B >= 0].tolist() == numbers


def test_graphs_that_are_kept_filled_up_give_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(distances=True, path=2, walk=3, laplacian=2)
    graphs = [placed(np.ones((4, 1), np.int64), LINE, np.full((3, 1), kind), facts) for kind in range(1, 12)]

    def drawn() -> list[Any]:
        batches = GraphBatches(graphs, lambda inputs, examples: inputs, 4, seed=1, full=True, flips=True)
        return list(batches.epoch(1))

    kept = drawn()
    monkeypatch.setattr("headway.data.graphs.WHOLE", 0)
    for one, other in zip(kept, drawn(), strict=True):
        for (name, a), (_, b) in zip(one.tensors(), other.tensors(), strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b), name


def test_all_graphs_have_as_many_kinds(tmp_path: Path) -> None:
    rows = [{"nodes": [1, 2], "edges": [[0, 1]], "label": 1}, {"nodes": [[1, 5]], "edges": [], "label": 2}]
    file = tmp_path / "graphs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match="line 2: a node has 2 kinds, those before it 1"):
        read_graphs([file], Columns((), ""), (), print, "number")


def test_the_edges_of_a_path_in_a_large_graph_have_their_numbers() -> None:
    """More than sixteen bits hold."""
    count = 190
    a, b = np.triu_indices(count, 1)
    both = np.concatenate([np.stack([a, b], 1), np.stack([b, a], 1)])
    found = paths(shortest(~np.eye(count, dtype=bool)), both, 1)
    assert (found[both[:, 0], both[:, 1], 0] == np.arange(1, len(both) + 1)).all()
