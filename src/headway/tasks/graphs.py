"""Labels and numbers of graphs: molecules, or any nodes with edges between them."""

from __future__ import annotations

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
from headway.data.graphs import GraphBatches, GraphInputs, graph_of, joined, placed, read_graphs
from headway.data.label_sets import TargetBatch
from headway.data.labelled import LabelBatch, Labelled
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
        if self.kind is OneLabel:
            names = [f"{part}: graph {number}" for number in range(1, len(labels) + 1)]
            found = np.array(numbers(names, labels, self.written), np.int64)
            return SimpleNamespace(labels=found, answers=partial(_labelled, found))
        targets_NL = self.kind.targets(labels, self.written, part)  # type: ignore[attr-defined]
        return SimpleNamespace(targets_NL=targets_NL, answers=partial(_targeted, targets_NL))

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
        inputs = joined([ring] * run.engine.batch).map(lambda tensor: tensor.to(device))
        zeros_B = np.zeros(run.engine.batch)
        if run.head.answer == "one":
            return _labelled(zeros_B.astype(np.int64), inputs, np.arange(len(zeros_B))).map(lambda t: t.to(device))
        targets_NL = np.zeros((len(zeros_B), len(run.head.labels)), np.float32)
        return _targeted(targets_NL, inputs, np.arange(len(zeros_B))).map(lambda t: t.to(device))

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """Files, and graphs themselves, as `headway predict MODEL CCO` gives them."""
        return super().read(*cls._sorted(inputs, texts), lines, columns)

    @staticmethod
    def _sorted(inputs: list[str], texts: list[str]) -> tuple[list[str], list[str]]:
        """What is no file is a graph."""
        files = [value for value in inputs if value == "-" or Path(value).exists() or Path(value).suffix in SUFFIXES]
        return files, [*texts, *(value for value in inputs if value not in files)]

    @classmethod
    def guesses(cls, model: Any, values: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        return answered(values, model.classify)

    @classmethod
    def _classified(cls, model: Any, texts: Sequence[Labelled]) -> list[Any]:
        found: list[Any] = model.classify([text.text for text in texts])
        return found


def _labelled(labels_N: Any, inputs: GraphInputs, examples: Any) -> LabelBatch:
    return LabelBatch(inputs, torch.from_numpy(labels_N[examples]), examples=tuple(examples.tolist()))


def _targeted(targets_NL: Any, inputs: GraphInputs, examples: Any) -> TargetBatch:
    targets_BL = torch.from_numpy(targets_NL[examples])
    return TargetBatch(inputs, targets_BL, torch.ones_like(targets_BL), examples=tuple(examples.tolist()))
