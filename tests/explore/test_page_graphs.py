"""The page of a graph in a real browser: where a node looks, and the numbers behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from browsing import Visit, need_browser
from headway.card import Card, Loaded
from headway.explore.payload import payload
from headway.generate.graphs import GraphModel
from headway.models import build
from headway.models.graph import GraphTransformerConfig
from headway.models.heads import LinearClasses
from headway.processors.kinds import kinds_in
from headway.traces import Trace
from made_pages import written

need_browser()
HEAD = LinearClasses(("logS",), answer="number", pooling="mean")
CONFIG = GraphTransformerConfig(3, 16, 24, 2, attention_dropout=0.0)
GRAPH = '{"nodes": ["a", "b", "a", "c", "b"], "edges": [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]]}'


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(5)
    kinds = {"nodes": kinds_in([("a",), ("b",), ("c",)]), "edges": kinds_in([("",)])}
    sizes = tuple(config.size for config in kinds.values())
    model = build("graph-transformer", CONFIG, sizes, HEAD).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.25)
    card = Card("graph-transformer", CONFIG, "graph-labelling", kinds, HEAD)
    opened = {name: config.open(Path()) for name, config in kinds.items()}
    return GraphModel(Loaded(model, card, opened), torch.device("cpu")).trace(GRAPH)


@pytest.fixture(scope="module")
def page(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("page") / "graph.html", payload(trace))


def number(visit: Visit) -> float:
    return float(visit.page.inner_text("[data-testid=seen]").replace("−", "-"))


def weights(trace: Trace, layer: int) -> np.ndarray:
    return trace[next(name for name in trace.tensors if name.endswith(f"{layer}.attention.weights"))]


def test_numbers_are_those_of_the_trace(browser, page: Path, trace: Trace) -> None:
    with Visit(browser, page, "#mode=head&heads=1.1&from=2") as visit:
        assert visit.views[0] == "graph" and visit.page.get_attribute("#view", "data-view") == "graph"
        visit.page.focus("[role=application]")
        for node in range(5):
            visit.page.keyboard.press("ArrowRight")
            assert number(visit) == pytest.approx(weights(trace, 1)[1, 2, node], rel=5e-3)
        visit.page.keyboard.press("Enter")  # now from the last node
        visit.page.click("button[title='mean of layer 2']")
        visit.page.focus("[role=application]")
        visit.page.keyboard.press("ArrowLeft")
        assert number(visit) == pytest.approx(weights(trace, 2).mean(0)[4, 3], rel=5e-3)
        assert "from=4" in visit.link() and visit.errors == [] and visit.elsewhere() == []
        assert visit.page.locator("[data-view=graph] .grid canvas").count() == 3 * (2 + 2)


def test_places_keep_distances(trace: Trace) -> None:
    places = np.array(trace.about["places"])
    near, far = np.linalg.norm(places[0] - places[1]), np.linalg.norm(places[0] - places[4])
    assert near < far and trace.about["edges"][3] == [2, 3, ""]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(browser, page: Path, scheme: str) -> None:
    with Visit(browser, page, color_scheme=scheme) as visit:
        assert visit.faults() == []
