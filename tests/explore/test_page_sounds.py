"""The page of a recording in a real browser: its spectrogram, pitch rising, and what glows in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from browsing import Visit, need_browser
from headway.card import Card, Loaded
from headway.explore.payload import payload
from headway.generate.sounds import SoundModel
from headway.models import build
from headway.models.ast import ASTConfig, Frames
from headway.models.heads import LinearClasses
from headway.models.vit import Patches
from headway.processors.sound import SoundConfig
from headway.traces import Trace
from made_pages import written

need_browser()
HEAD = LinearClasses(("one", "two"))
READS = SoundConfig(1, 8000, 24, 48, 256, 80)
TONE = np.sin(2 * np.pi * 200 * np.arange(4000) / 8000).astype(np.float32)  # low, and silence behind it
BRIGHTNESS = """([name, x, y]) => {
    const canvas = document.querySelector(name);
    const [at, down] = [Math.floor(x * canvas.width), Math.floor(y * canvas.height)];
    return canvas.getContext('2d').getImageData(at, down, 1, 1).data[0];
}"""
CANVAS = "[data-view=picture] figure canvas"


def traced(config: ASTConfig) -> Trace:
    torch.manual_seed(5)
    model = build("ast", config, (1,), HEAD).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    card = Card("ast", config, "sound-classification", {"sound": READS}, HEAD)
    made = SoundModel(Loaded(model, card, {"sound": READS.open(Path())}), torch.device("cpu"))
    return made.trace(TONE)


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    sizes = (24, 6, 2, 16, 32, 2, 0.0)
    return {
        "patches": traced(ASTConfig(*sizes, across=48, before=0, stem=Patches())),
        "frames": traced(ASTConfig(*sizes, across=48, before=0, stem=Frames())),
    }


def test_moments_have_their_time(traces: dict[str, Trace]) -> None:
    names = traces["frames"].tracks["patches"].labels
    assert len(names) == 24 and names[0] == "0.01 s" and names[-1] == "0.47 s"
    assert traces["patches"].tracks["patches"].labels[8:10] == ("0.03 s, row 1", "0.09 s, row 1")


def number(visit: Visit) -> float:
    return float(visit.page.inner_text("[data-testid=seen]").replace("−", "-"))


def test_low_tones_are_drawn_at_the_bottom_and_numbers_follow(
    browser, traces: dict[str, Trace], tmp_path: Path
) -> None:
    trace = traces["patches"]
    page = written(tmp_path / "tone.html", payload(trace))
    with Visit(browser, page, "#view=picture&mode=head&heads=1.0&from=0&bare=1") as visit:
        visit.page.check("text=The picture alone")
        low, high = (visit.page.evaluate(BRIGHTNESS, [CANVAS, 0.3, y]) for y in (0.93, 0.1))
        assert low > high + 60
        box = visit.page.locator(CANVAS).bounding_box()
        visit.page.mouse.move(box["x"] + 2.5 * box["width"] / 8, box["y"] + 0.5 * box["height"] / 4)
        assert "row 3" in visit.page.inner_text("[data-view=picture] figcaption")  # the top is the highest of four
        assert number(visit) == pytest.approx(trace["encoder.1.attention.weights"][0, 0, 3 * 8 + 2], rel=5e-3)
        visit.page.focus("[role=application]")
        visit.page.keyboard.press("ArrowDown")
        assert "row 2" in visit.page.inner_text("[data-view=picture] figcaption")
        assert visit.errors == [] and visit.elsewhere() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_moments_of_all_bands_are_places_and_axe_finds_no_fault(
    browser, traces: dict[str, Trace], tmp_path: Path, scheme: str
) -> None:
    page = written(tmp_path / "frames.html", payload(traces["frames"]))
    with Visit(browser, page, color_scheme=scheme) as visit:
        assert visit.views[0] == "picture" and "pitch rises" in visit.page.inner_text("[data-view=picture] figcaption")
        box = visit.page.locator(CANVAS).bounding_box()
        visit.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 5)
        assert "0.47 s" in visit.page.inner_text("[data-view=picture] figcaption")
        assert visit.faults() == [] and visit.errors == []
