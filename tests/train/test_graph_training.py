"""Graphs from files to answers: numbers and labels, resumed to the bit, by the command line too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway
from headway.errors import InputError
from headway.plain import change
from headway.recipes import RECIPES
from small_runs import check_resumed, told, train_quietly

SMALL = (
    "engine.device=cpu", "engine.batch=16", "engine.log=100", "schedule.warmup=10", "schedule.peak=0.003",
    "model.width=16", "model.layers=2", "engine.workers=1",
)  # fmt: skip
HEADS = ("model.heads=2", "model.inner=32", "model.walk=4")
RING = '{"nodes": ["a", "b", "a", "b", "a"], "edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]}'


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees: how many of the nodes are an `a` that has a `b` beside it, and whether there are several."""
    draw, rows = np.random.default_rng(0), []
    for _ in range(240):
        count = int(draw.integers(3, 9))
        nodes = ["ab"[int(draw.integers(2))] for _ in range(count)]
        edges = [[int(draw.integers(node)), node] for node in range(1, count)]
        beside = {a for a, b in edges + [edge[::-1] for edge in edges] if nodes[a] == "a" and nodes[b] == "b"}
        rows.append({"nodes": nodes, "edges": edges, "met": len(beside), "some": "yes" if len(beside) > 1 else "no"})
    path = tmp_path_factory.mktemp("graphs") / "all.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def run_of(recipe: str, file: Path, label: str, *settings: str) -> Any:
    own = HEADS if RECIPES[recipe].make().model.name == "graph-transformer" else ()
    given = [f"data.train={file}", f"data.label_column={label}", *SMALL, *own, *settings]
    return change(RECIPES[recipe].make(), given)


@pytest.mark.parametrize("recipe", ["graph", "graph-gin"])
def test_a_number_is_learned(recipe: str, file: Path, tmp_path: Path) -> None:
    times = ("engine.steps=150", "validation.every=75", "validation.score_every=75", "head.pooling=sum")
    scores = train_quietly(run_of(recipe, file, "met", *times), tmp_path).scores
    assert scores["validation mae"] < 0.6  # 1.0 by the mean of the training graphs
    model = headway.load(tmp_path)
    [guess] = model.classify(RING)
    alone = model.classify([RING, '{"nodes": ["a"], "edges": []}'])
    assert guess.probability == pytest.approx(alone[0][0].probability, abs=1e-5)


def test_a_label_is_learned_and_evaluated(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = ("engine.steps=100", "validation.every=50", "validation.score_every=50")
    train_quietly(run_of("graph-classes", file, "some", *times), tmp_path)
    answer = told("predict", tmp_path, RING, "--json", "--device", "cpu", capsys=capsys)
    assert json.loads(answer)["labels"][0][0] in ("yes", "no")
    long = json.dumps({"nodes": ["a"] * 90, "edges": [[at, at + 1] for at in range(89)]})  # longer than a file's name
    assert json.loads(told("predict", tmp_path, long, "--json", "--device", "cpu", capsys=capsys))["labels"]
    lines = told("predict", tmp_path, file, "--device", "cpu", capsys=capsys)  # as it was learned from
    assert len(lines.splitlines()) == 240
    report = told("evaluate", tmp_path, file, "--json", "--device", "cpu", capsys=capsys)
    assert json.loads(report)["accuracy"] > 0.7


@pytest.mark.parametrize("recipe", ["graph", "graph-attention", "graph-gated"])
def test_a_stopped_run_that_is_resumed_gives_the_same_bits(
    recipe: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("engine.steps=8", "engine.checkpoint=3", "validation.every=4", "validation.score_every=4")
    run = run_of(recipe, file, "met", *settings, "model.dropout=0.1", "model.laplacian=2")
    train_quietly(run, tmp_path / "whole")
    check_resumed(
        monkeypatch, tmp_path / "whole", tmp_path / "parts", 6,
        lambda out, resume=False: train_quietly(run, out, resume),
    )  # fmt: skip


def test_a_trace_has_what_each_node_looks_at(file: Path, tmp_path: Path) -> None:
    train_quietly(run_of("graph-attention", file, "met", "engine.steps=2"), tmp_path)
    trace = headway.load(tmp_path).trace(RING)
    weights = trace[next(name for name in trace.tensors if name.endswith("0.attention.weights"))]
    assert weights.shape[-2:] == (5, 5) and np.allclose(weights.sum(-1), 1, atol=1e-3)
    assert trace.about["edges"][0] == [0, 1, ""]


def test_what_makes_no_sense_is_refused(file: Path, tmp_path: Path) -> None:
    train_quietly(run_of("graph-gin", file, "met", "engine.steps=2"), tmp_path)
    model = headway.load(tmp_path)
    for graph, said in (
        ('{"nodes": ["a"], "edges": [[0, 5]]}', "graph 1: edge 0 has the node 5"),
        ('{"nodes": [["a", "b"]], "edges": []}', "graph 1: a node has 2 kinds, the model reads 1"),
        ("{", "no JSON"),
    ):
        with pytest.raises(InputError, match=said):
            model.classify(graph)
    with pytest.raises(InputError, match="no line has the key 'nothing'"):
        train_quietly(run_of("graph-gin", file, "nothing"), tmp_path / "other")


def test_molecules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rdkit")
    table = tmp_path / "table.csv"
    names = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "CCCC", "C#N", "O=C=O", "CS", "CCl", "C1CC1"] * 4
    table.write_text("name,smiles,logS\n" + "".join(f"m{n},{one},{len(one) / 2}\n" for n, one in enumerate(names)))
    run = run_of("graph", table, "logS", "engine.steps=4", "validation.every=4", "validation.score_every=4")
    train_quietly(run, tmp_path / "run")
    assert [guess.text for guess in headway.load(tmp_path / "run").classify("CCO")] == ["logS"]
    assert len(told("predict", tmp_path / "run", table, "--device", "cpu", capsys=capsys).splitlines()) == 40
    table.write_text(table.read_text().replace("m7,CS,", "m7,C(S,"))
    with pytest.raises(InputError, match=r"table.csv, line 9: 'C\(S' is no SMILES"):
        train_quietly(run, tmp_path / "other")
