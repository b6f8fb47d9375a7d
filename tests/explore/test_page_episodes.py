"""The page of an episode in a real browser: its frames, what the policy got, and where it looked at each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browsing import Visit, need_browser, served
from headway.explore.asking import Question
from headway.explore.payload import payload
from headway.serve.app import application
from headway.traces import Trace
from made_pages import written
from small_policies import COMMAND, balancing, seeing

need_browser()
SLIDER = "input[aria-label=Frame]"


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return balancing(tmp_path_factory.mktemp("cart"))


@pytest.fixture(scope="module")
def trace(cart: Any) -> Trace:
    return cart.trace("3")


@pytest.fixture(scope="module")
def page(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("page") / "episode.html", payload(trace))


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Path]:
    place = tmp_path_factory.mktemp("driver")
    trace = seeing(place).trace(COMMAND)
    return trace, written(place / "driver.html", payload(trace))


def step(visit: Visit) -> str:
    return str(visit.page.inner_text("[data-testid=step]"))


def places(visit: Visit, figure: int) -> list[float]:
    """The numbers of all places of a drawing of cells, which the arrow keys reach."""
    frame = visit.page.locator("[data-view=episode] [role=application]").nth(figure)
    frame.focus()
    count = int(str(frame.get_attribute("aria-label")).split(": ")[-1].split()[0])
    for _ in range(count):
        visit.page.keyboard.press("ArrowDown")
    found = []
    for _ in range(count):
        found.append(float(visit.page.locator("[data-testid=place]").nth(figure - 1).inner_text()))
        visit.page.keyboard.press("ArrowUp")
    return found[::-1]


def test_the_slider_the_keys_and_the_button_move_through_the_episode(browser, page: Path, trace: Trace) -> None:
    told, last = trace.about["episode"], len(trace.tracks["frames"]) - 1
    with Visit(browser, page) as visit:
        assert visit.views[0] == "episode" and visit.page.get_attribute("#view", "data-view") == "episode"
        assert step(visit).startswith(
            f"Step 0 of {last}: action {told['actions'][0]}, reward 1, return so far 1 of the"
        )
        visit.page.focus(SLIDER)
        visit.page.keyboard.press("ArrowRight")
        assert step(visit).startswith(
            f"Step 1 of {last}: action {told['actions'][1]}, reward 1, return so far 2 of the"
        )
        visit.page.locator("[role=application]").first.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
            visit.page.keyboard.press(key)
        assert step(visit).startswith("Step 2 of") and "frame=2" in visit.link()
        visit.page.click("button[aria-label=Play]")
        visit.page.wait_for_selector("button[aria-label=Play]")  # it stops at the end
        assert step(visit) == f"The end, after {last} steps: return {last}."
        visit.page.keyboard.press("Home")
        assert visit.errors == [] and visit.elsewhere() == []
        assert visit.colours("[data-view=episode] figure canvas") > 20


def test_numbers_are_those_of_the_trace(browser, page: Path, trace: Trace) -> None:
    with Visit(browser, page, "#frame=4&mode=head&heads=1.1") as visit:
        wanted = trace["frame.decoder.1.attention.weights"][:, 4]
        assert places(visit, 1) == pytest.approx(wanted[1].tolist(), rel=5e-3, abs=1e-4)
        visit.page.click("button[title='mean of layer 1']")
        assert places(visit, 1) == pytest.approx(wanted.mean(0).tolist(), rel=5e-3, abs=1e-4)
        assert visit.page.locator("[data-view=episode] .grid canvas").count() == 2 * (2 + 1)


def test_what_a_policy_sees_glows_and_its_words_have_numbers(browser, driven: tuple[Trace, Path]) -> None:
    trace, page = driven
    with Visit(browser, page, "#frame=2") as visit:
        assert visit.views[:2] == ["episode", "picture"]
        canvas = "[data-view=episode] figure canvas"
        seen = visit.page.eval_on_selector(canvas, "c => c.toDataURL()")
        visit.page.check("text=The picture alone")
        assert visit.page.eval_on_selector(canvas, "c => c.toDataURL()") != seen
        words = trace["frame.look.1.cross.weights"][:, 2].mean(0)
        assert places(visit, 1) == pytest.approx(words.tolist(), rel=5e-3)
        assert visit.errors == []


def test_other_views_are_of_one_step_alone(browser, page: Path) -> None:
    with Visit(browser, page) as visit:
        visit.view("attention")
        assert not visit.page.locator("text=Frame decoder").count() and visit.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(browser, page: Path, driven: tuple[Trace, Path], scheme: str) -> None:
    for one in (page, driven[1]):
        with Visit(browser, one, color_scheme=scheme) as visit:
            assert visit.faults() == []


def test_it_fits_a_small_screen(browser, driven: tuple[Trace, Path]) -> None:
    with Visit(browser, driven[1], viewport={"width": 400, "height": 900}) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_live_page_plays_at_once_and_looks_into_any_step(browser, cart: Any) -> None:
    with served(application([cart], Question(cart.first_question))) as address, Visit(browser, address) as visit:
        assert "The other views look into step 2." in visit.page.inner_text("#view")
        visit.page.focus(SLIDER)
        for _ in range(5):
            visit.page.keyboard.press("ArrowRight")
        visit.page.click("button:has-text('Look into step 5')")
        visit.page.wait_for_selector("text=The other views look into step 5.")
        assert visit.page.input_value("textarea") == "1 @5" and visit.errors == []
        assert "frame=5" in visit.link() and visit.elsewhere() == []
