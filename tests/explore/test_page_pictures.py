"""The page of a picture in a real browser: what glows, from where, and the numbers behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from browsing import Visit, need_browser
from headway.card import Card, Loaded
from headway.explore.payload import payload
from headway.generate.pictures import PictureModel
from headway.models import build
from headway.models.heads import LinearClasses
from headway.models.vit import ViTConfig
from headway.processors.image import ImageConfig
from headway.traces import Trace
from made_pages import written

need_browser()
HEAD = LinearClasses(("cat", "dog", "cow"))
CONFIG = ViTConfig(24, 6, 3, 16, 32, 2, 0.0)


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(5)
    model = build("vit", CONFIG, (3,), HEAD).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.25)
    reads = ImageConfig(3, 24, 24)
    card = Card("vit", CONFIG, "image-classification", {"image": reads}, HEAD)
    made = PictureModel(Loaded(model, card, {"image": reads.open(Path())}), torch.device("cpu"))
    return made.trace(np.random.default_rng(2).integers(0, 256, (40, 30, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def page(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("page") / "picture.html", payload(trace))


def rollout(trace: Trace, layers: int) -> np.ndarray:
    found = np.eye(17)
    for layer in range(layers):
        weights = trace[f"encoder.{layer}.attention.weights"].mean(0)
        found = (weights + np.eye(17)) / 2 @ found
    return found


def test_a_trace_has_the_picture_as_the_model_got_it(trace: Trace) -> None:
    assert trace.tensors["pixels"].shape == (24, 24, 3) and trace.tensors["pixels"].dtype == np.uint8
    assert trace.about["grid"] == [4, 4, 1] and {name for name, _ in trace.about["labels"]} == {"cat", "cow", "dog"}


def number(visit: Visit) -> float:
    return float(visit.page.inner_text("[data-testid=seen]").replace("−", "-"))


def at(visit: Visit, row: int, column: int) -> tuple[float, float]:
    box = visit.page.locator("[data-view=picture] figure canvas").bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / 4, box["y"] + (row + 0.5) * box["height"] / 4


def test_numbers_are_those_of_the_trace(browser, page: Path, trace: Trace) -> None:
    with Visit(browser, page) as visit:
        assert visit.views[0] == "picture" and visit.page.get_attribute("#view", "data-view") == "picture"
        layer = int(visit.page.locator("select[aria-label=' layer']").input_value())
        visit.page.mouse.move(*at(visit, 2, 1))
        wanted = rollout(trace, layer + 1)[0, 1 + 2 * 4 + 1]
        assert number(visit) == pytest.approx(wanted, rel=5e-3)
        visit.page.mouse.click(*at(visit, 3, 2))  # now from that patch
        visit.page.mouse.move(*at(visit, 0, 0))
        assert number(visit) == pytest.approx(rollout(trace, layer + 1)[15, 1], rel=5e-3)
        visit.page.click("button[title='layer 1, head 1']")
        visit.page.mouse.move(*at(visit, 0, 3))
        one = trace["encoder.1.attention.weights"][1, 15, 4]
        assert number(visit) == pytest.approx(one, rel=5e-3)
        assert "from=15" in visit.link() and "mode=head" in visit.link()
        assert visit.errors == [] and visit.elsewhere() == []
        assert visit.page.locator("[data-view=picture] .grid canvas").count() == 3 * (2 + 2)
        assert visit.colours("[data-view=picture] figure canvas") > 200


def test_keys_reach_every_patch_and_a_link_shows_the_same(browser, page: Path, trace: Trace) -> None:
    with Visit(browser, page, "#view=picture&mode=mean&heads=2.0&from=-1") as visit:
        visit.page.focus("[role=application]")
        for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowRight"):
            visit.page.keyboard.press(key)
        wanted = trace["encoder.2.attention.weights"].mean((0, 1))[1 + 4 + 2]
        assert number(visit) == pytest.approx(wanted, rel=5e-3)
        visit.page.keyboard.press("Enter")
        assert "from=7" in visit.link()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(browser, page: Path, scheme: str) -> None:
    with Visit(browser, page, color_scheme=scheme) as visit:
        assert visit.faults() == []


def test_the_picture_is_saved_as_it_is_shown(browser, page: Path, tmp_path: Path) -> None:
    with Visit(browser, page, viewport={"width": 400, "height": 900}) as visit:
        box = visit.page.locator("[data-view=picture] figure canvas").bounding_box()
        assert box["x"] + box["width"] <= 400
        with visit.page.expect_download() as saved:
            visit.page.click("[data-view=picture] button:has-text('SVG')")
        saved.value.save_as(tmp_path / "a.svg")
        assert (tmp_path / "a.svg").read_text(encoding="utf-8").count("<image") == 2
