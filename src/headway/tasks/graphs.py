"""Labels and numbers of graphs: molecules, or any nodes with edges between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch

from headway.card import Card
from headway.data.columns import Columns
from headway.data.graphs import GraphBatches, GraphInputs, graph_of, graphs_in, joined, placed, read_graphs
from headway.data.label_sets import TargetBatch, balanced_sets
from headway.data.labelled import LabelBatch, Labelled, balanced_weights, is_table
from headway.generate.graphs import GraphModel, GraphReader
from headway.models.heads import Classes, LinearClasses
from headway.plain import to_plain
from headway.processors.kinds import kinds_in
from headway.tasks.classification import Classification, LabelledTables
from headway.tasks.encoding import answered
from headway.tasks.label_kinds import Number, OneLabel
from headway.tasks.labelling import Labelling, numbers
from headway.tasks.objective import Labels
from headway.tasks.start import RunContext, earlier_model, first_model
from headway.text.codec import hashed

SUFFIXES = (".csv", ".tsv", ".jsonl", ".txt", ".smi", ".gz", ".xz", ".zst")
KINDS, OF_EDGES, NODES = 64, 16, 24  # of an estimate: kinds of nodes and of edges, and nodes of a graph


@dataclass(frozen=True)
class LabelledGraphs(LabelledTables):
    """Graphs with a label or a number each: tables with a column of SMILES, or JSON lines with nodes, edges and a
    label. A batch of a run counts graphs. The rest as in `LabelledTables`."""

    name: ClassVar[str] = "labelled-graphs"
    wanted: ClassVar[str] = "FILE (.csv with a column smiles, or .jsonl with nodes and edges)"


class GraphLabelling(Classification):
    """Judged by the labels, or numbers, that it gives to held-out graphs."""

    name = "graph-labelling"
    data: ClassVar[Any] = LabelledGraphs
    objectives: ClassVar[tuple[Any, ...]] = (Labels,)
    takes = ("nodes", "edges")
    heads = (Classes, LinearClasses)
    opens = GraphModel
    what = unit = "graphs"
    verbs = ()
    options = ("all",)

    def __init__(self, run: Any, context: RunContext) -> None:
        Labelling.__init__(self, run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.parts = self.open_parts()
        graphs = {part: [graph_of(str(one.text)) for one in examples] for part, examples in self.parts.items()}
        if earlier is None:
            train = graphs["train"]
            kinds = {
                "nodes": kinds_in(node for graph in train for node in graph.nodes),
                "edges": kinds_in(kind for graph in train for kind in graph.kinds),
            }
        else:
            kinds = {name: earlier.card.processors[name] for name in self.takes}
        self.processors = {name: config.open(context.out) for name, config in kinds.items()}
        reader = GraphReader(self.processors["nodes"], self.processors["edges"], run.model.facts)
        head = self.head()
        self.model = first_model(run, context, tuple(config.size for config in kinds.values()), (), head, earlier)
        self.card = Card(run.model.name, run.model, self.name, kinds, head, run=to_plain(run))
        self.stores = {part: self._store(part) for part in self.parts}
        read = {part: [reader.placed(graph) for graph in some] for part, some in graphs.items()}
        for part, examples in self.parts.items():
            nodes = sum(len(one.nodes_NF) for one in read[part])
            self.log.say(f"{part}: {len(examples):,} graphs, {nodes:,} nodes")
            self.log.event("data", part=part, graphs=len(examples))
            self.data_names[part] = hashed(repr([examples, to_plain(kinds["nodes"]), to_plain(kinds["edges"])]))

        def batches(part: str, seed: int, **how: Any) -> GraphBatches:
            return GraphBatches(read[part], self.stores[part].answers, run.engine.batch, seed, **how)

        full = context.device.type == "cuda"
        self.batches = batches("train", run.engine.seed, full=full, flips=True)
        self.held = {part: batches(part, 0, shuffle=False) for part in self.parts if part != "train"}
        self.valid = self.held["valid"]

    @classmethod
    def examples(
        cls, data: dict[str, Any], files: Sequence[Any], columns: Columns, known: Collection[str],
        say: Callable[[str], None], answer: Any,
    ) -> list[Labelled]:  # fmt: skip
        return read_graphs(files, columns, known, say, answer)

    def called(self, labels: tuple[str, ...], least: int = 2) -> tuple[str, ...]:
        """A number is called as its column, where that is named."""
        data = self.run.data
        if self.kind is Number and data.label_column and not data.names:
            return (data.label_column,)
        return super().called(labels, least)

    def _store(self, part: str) -> Any:
        """The answers of a part, and what makes a batch of them."""
        labels = [example.label for example in self.parts[part]]
        balanced = part == "train" and self.run.data.class_weights == "balanced"
        if self.kind is OneLabel:
            names = [f"{part}: graph {number}" for number in range(1, len(labels) + 1)]
            found = np.array(numbers(names, labels, self.written), np.int64)
            of_label = balanced_weights(found, len(self.written)) if balanced else None
            weights_N = None if of_label is None else of_label[found]
            return SimpleNamespace(labels=found, answers=partial(_labelled, found, weights_N))
        targets_NL = self.kind.targets(labels, self.written, part)  # type: ignore[attr-defined]
        weights_NL = balanced_sets(targets_NL) if balanced else np.ones_like(targets_NL)
        return SimpleNamespace(targets_NL=targets_NL, answers=partial(_targeted, targets_NL, weights_NL))

    def shown(self, example: int, part: str = "train") -> str:
        return str(self.parts[part][example].text)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data if data.test or data.hold_out_test else replace(data, hold_out_test=data.hold_out)

    @classmethod
    def remarks(cls, data: dict[str, Any], runs: dict[str, Any], figures: dict[str, float]) -> list[str]:
        return []

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return KINDS, OF_EDGES  # the data decide

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> Any:
        """Rings."""
        ends_E2 = np.stack([np.arange(NODES), (np.arange(NODES) + 1) % NODES], 1)
        ring = placed(np.ones((NODES, 5), np.int64), ends_E2, np.ones((NODES, 2), np.int64), run.model.facts)
        given = joined([ring] * run.engine.batch), np.arange(run.engine.batch)
        targets_NL = np.zeros((run.engine.batch, len(run.head.labels)), np.float32)
        if run.head.answer == "one":
            batch: Any = _labelled(np.zeros(run.engine.batch, np.int64), None, *given)
        else:
            batch = _targeted(targets_NL, np.ones_like(targets_NL), *given)
        return batch.map(lambda tensor: tensor.to(device))

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """Files, and graphs themselves, as `headway predict MODEL CCO` gives them: what is no file is a graph."""
        files = [value for value in inputs if not value.lstrip().startswith("{") and _is_file(value)]
        texts = [*texts, *(value for value in inputs if value not in files)]
        if len(files) == 1 and not texts and is_table(files[0]):
            return list(graphs_in(files[0], Columns(tuple(columns))))
        return super().read(files, texts, lines, columns)

    @classmethod
    def guesses(cls, model: Any, values: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        return answered(values, model.classify)

    @classmethod
    def _classified(cls, model: Any, texts: Sequence[Labelled]) -> list[Any]:
        found: list[Any] = model.classify([text.text for text in texts])
        return found


def _is_file(value: str) -> bool:
    return value == "-" or os.path.exists(value) or Path(value).suffix in SUFFIXES


def _labelled(labels_N: Any, weights_N: Any, inputs: GraphInputs, examples: Any) -> LabelBatch:
    weights_B = None if weights_N is None else torch.from_numpy(weights_N[examples])
    return LabelBatch(inputs, torch.from_numpy(labels_N[examples]), weights_B, examples=tuple(examples.tolist()))


def _targeted(targets_NL: Any, weights_NL: Any, inputs: GraphInputs, examples: Any) -> TargetBatch:
    both = (torch.from_numpy(part[examples]) for part in (targets_NL, weights_NL))
    return TargetBatch(inputs, *both, examples=tuple(examples.tolist()))
