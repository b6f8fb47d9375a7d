"""The exported page in a real browser: every view, hover, touch, keyboard, colours, links, pictures, numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from browsing import Visit, need_browser
from headway.explore.asking import Question, answer, traced
from headway.explore.pages import page_html, show
from headway.explore.payload import payload, strongest
from headway.generate.chain import Past, apply
from headway.generate.generator import Generator
from headway.generate.sampling import Sampling
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.models.rung import RUNGS, Rung
from headway.text.tokenizer import TextOptions, Tokenizer
from headway.traces import Trace
from made_pages import made_trace, written

need_browser()
FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TOKENIZER = Tokenizer.train(["the cat sat on the mat, the dog did not sit"] * 3, TextOptions(size=290, exact=True))
TRANSLATOR_VIEWS = ["attention", "steps", "next", "beam", "positions", "states", "compare"]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return traced(headway.load(FOLDER, "cpu"), Question("He drives the car", beam=3))


@pytest.fixture(scope="module")
def page(trace, tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("page") / "page.html", payload(trace))


def language_model(model: Any) -> Generator:
    torch.manual_seed(3)
    for weight in model.parameters():
        if weight.is_floating_point() and weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    return Generator(model.eval(), TOKENIZER, context=32, device=torch.device("cpu"))


def shown(text: str) -> float:
    return float(text.replace("−", "-"))


def cell(visit: Visit, row: int, column: int, rows: int, columns: int) -> tuple[float, float]:
    """Where a cell of the matrix is on the screen. Its first row is chosen: that has a frame."""
    left, top, wide, tall = visit.page.eval_on_selector(
        ".main canvas",
        """c => {
            const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height)
            const isFrame = (x, y) => { const i = 4 * (y * c.width + x)
                return data[i] > 150 && data[i + 1] > 60 && data[i + 1] < 110 && data[i + 2] < 60 }
            const lines = []
            for (let y = 0; y < c.height; y++) {
                const xs = [...Array(c.width).keys()].filter(x => isFrame(x, y))
                if (xs.length > c.width / 4) lines.push([y, xs[0], xs.at(-1)])
            }
            const box = c.getBoundingClientRect(), [y, from, to] = lines[0]
            return [box.left + from, box.top + y, to - from, lines.at(-1)[0] - y] }""",
    )
    return left + (column + 0.5) * wide / columns, top + (row + 0.5) * tall


def test_every_view_is_drawn_offline_and_nobody_else_is_asked(browser, page):
    with Visit(browser, page) as visit:
        assert visit.views == TRANSLATOR_VIEWS
        for name in visit.views:
            visit.view(name)
            canvases = visit.page.query_selector_all(f"[data-view={name}] canvas")
            assert canvases and visit.colours(f"[data-view={name}] figure canvas") > 3, name
        assert visit.elsewhere() == [] and visit.errors == []


def test_the_numbers_are_the_traces_at_stored_precision(browser, page, trace, tmp_path):
    stored = Trace.load(trace.save(tmp_path / "t.safetensors"))
    with Visit(browser, page) as visit:
        names = visit.page.evaluate("[...headway.traces[0].tensors.keys()]")
        assert names == list(stored)
        for name in names:
            found = visit.page.evaluate("name => [...headway.traces[0].tensors.get(name).floats()]", name)
            np.testing.assert_array_equal(np.array(found, np.float32), stored[name].astype(np.float32).ravel(), name)
    small = strongest(made_trace([f"w{i}" for i in range(70)])).to_bytes("uint8")
    with Visit(browser, written(tmp_path / "small.html", small)) as visit:
        row = visit.page.evaluate("[...headway.traces[0].sites[0].looks(0, 1).row(60)]")
    whole = made_trace([f"w{i}" for i in range(70)])["decoder.0.attention.weights"][1, 60]
    kept = np.where(whole >= np.sort(whole)[-32], whole, 0)
    np.testing.assert_allclose(row, kept, atol=whole.max() / 500)


def test_hover_and_touch_tell_the_weight_of_a_cell(browser, page, trace):
    weights = trace["decoder.0.cross.weights"].astype(np.float16)[1]
    link = "#view=attention&site=decoder.cross&heads=0.1&row=0"
    with Visit(browser, page, link) as visit:
        x, y = cell(visit, 2, 5, *weights.shape)
        visit.page.mouse.move(x, y)
        visit.page.wait_for_selector("[data-testid=weight]")
        told = shown(visit.page.inner_text("[data-testid=weight]"))
        assert told == pytest.approx(float(weights[2, 5]), rel=6e-4)
        first = visit.page.inner_text(".readout ol li .number")
        assert shown(first) == pytest.approx(float(weights[2].max()), rel=6e-4)
    with Visit(browser, page, link, has_touch=True) as visit:
        visit.page.touchscreen.tap(*cell(visit, 3, 4, *weights.shape))
        visit.page.wait_for_selector("[data-testid=weight]")
        assert shown(visit.page.inner_text("[data-testid=weight]")) == pytest.approx(float(weights[3, 4]), rel=6e-4)


def test_several_heads_are_taken_by_touch(browser, page):
    with Visit(browser, page, "#view=attention&site=decoder.cross&heads=0.0", has_touch=True) as visit:
        visit.page.tap("text=Take several")
        visit.page.tap("[data-head='0.1']")
        pressed = visit.page.eval_on_selector_all(
            "[data-head][aria-pressed=true]", "all => all.map(b => b.dataset.head)"
        )
        assert pressed == ["0.0", "0.1"]
        visit.page.tap("text=Take several")
        visit.page.tap("[data-head='0.1']")
        assert len(visit.page.query_selector_all("[data-head][aria-pressed=true]")) == 1


def test_on_a_phone_the_weight_stays_in_sight_and_more_is_told(browser, page):
    with Visit(browser, page, "#view=steps&site=decoder.cross", viewport={"width": 340, "height": 700}) as visit:
        visit.page.wait_for_selector("[aria-label=Scores].more-right")
        inside = """box => [...box.querySelectorAll('[data-weight]')].every(cell =>
            cell.getBoundingClientRect().right <= box.getBoundingClientRect().right + 1)"""
        assert visit.page.eval_on_selector("[aria-label=Scores]", inside)
        visit.page.eval_on_selector("[aria-label=Scores]", "box => box.scrollLeft = 1e6")
        visit.page.wait_for_selector("[aria-label=Scores].more-left:not(.more-right)")
        visit.view("beam")
        visit.page.wait_for_selector(".fades.more-right")
        assert visit.faults() == [] and visit.errors == []


def test_many_places_have_some_of_their_names_and_heads_stand_abreast(browser, tmp_path):
    words = [f"w{i}" for i in range(150)]
    trace = made_trace(words, layers=1, heads=12)
    with Visit(browser, written(tmp_path / "p.html", trace.to_bytes()), "#row=70&column=20") as visit:
        with visit.page.expect_download() as download:
            visit.page.click("[aria-label^='Save this picture as SVG']")
        named = re.findall(r">(w\d+)</text>", Path(download.value.path()).read_text(encoding="utf-8"))
        assert {"w70", "w20"} <= set(named) and 20 < len(named) < 2 * len(words)
        visit.page.click("text=All heads of layer 0")
        visit.page.wait_for_function("""() => {
            const tops = [...document.querySelectorAll('.main canvas')].map(c => c.getBoundingClientRect().top)
            return tops.length === 12 && new Set(tops).size <= 6 }""")
        visit.page.click("text=Lines")
        with visit.page.expect_download() as download:
            visit.page.click("[aria-label^='Save this picture as SVG']")
        svg = Path(download.value.path()).read_text(encoding="utf-8")
        wide = float(re.search(r'<svg[^>]* width="([\d.]+)"', svg)[1])
        legend = re.findall(r'<text x="([\d.]+)" [^>]*>layer 0, head \d+</text>', svg)
        assert len(legend) == 12 and max(map(float, legend)) < wide - 60


def test_everything_goes_by_keyboard(browser, page, trace):
    weights = trace["decoder.0.cross.weights"].astype(np.float16)
    with Visit(browser, page, "#view=attention&site=decoder.cross&heads=0.0&row=0") as visit:
        press = visit.page.keyboard.press
        visit.page.focus("[data-view] .main [role=application]")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
            press(key)
        assert shown(visit.page.inner_text("[data-testid=weight]")) == pytest.approx(float(weights[0, 2, 3]), rel=6e-4)
        visit.page.focus("[data-head='0.0']")
        press("ArrowRight")
        press("x")
        pressed = visit.page.eval_on_selector_all(
            "[data-head][aria-pressed=true]", "all => all.map(b => b.dataset.head)"
        )
        assert pressed == ["0.0", "0.1"]
        assert len(visit.page.query_selector_all(".pictures canvas")) == 2
        visit.page.focus("#tab-attention")
        for name in TRANSLATOR_VIEWS[1:]:
            press("ArrowRight")
            visit.page.wait_for_selector(f"[data-view={name}]")
            assert visit.page.evaluate("document.activeElement.id") == f"tab-{name}"
        visit.view("beam")
        visit.page.focus("[data-view=beam] [role=application]")
        press("ArrowRight")
        first = next(node for node in trace.about["beam"]["nodes"] if node["chosen"] and node["step"] == 1)
        assert shown(visit.page.inner_text("[data-testid=score]")) == pytest.approx(first["score"], rel=6e-4)
        assert shown(visit.page.inner_text("[data-testid=logp]")) == pytest.approx(first["logp"], rel=6e-4)
        assert visit.errors == []


def test_dark_is_the_systems_choice_until_somebody_chooses(browser, page):
    def paper(visit: Visit) -> str:
        return visit.page.evaluate("getComputedStyle(document.body).backgroundColor")

    with Visit(browser, page, color_scheme="dark") as dark, Visit(browser, page, color_scheme="light") as light:
        assert dark.page.get_attribute("html", "data-theme") == "dark" and paper(dark) != paper(light)
        before = dark.colours(".main canvas")
        dark.page.click("button[aria-label='Light colours']")
        dark.page.wait_for_selector("html[data-theme=light]")
        assert paper(dark) == paper(light) and before > 3
        assert dark.errors == [] == light.errors


def test_a_link_restores_the_view(browser, page):
    with Visit(browser, page) as visit:
        visit.page.click("text=Encoder")
        visit.page.click("[data-head='0.1']")
        visit.page.click("text=Lines")
        visit.page.focus(".main [role=application]")
        visit.page.keyboard.press("ArrowUp")
        link = visit.link()
        told = visit.page.inner_text(".readout")
    with Visit(browser, page, link) as again:
        assert again.page.inner_text(".readout") == told
        assert again.page.get_attribute("[data-head='0.1']", "aria-pressed") == "true"
        assert again.page.get_attribute("text=Lines", "aria-pressed") == "true"
        assert again.page.get_attribute(".segments >> text=Encoder", "aria-pressed") == "true"
    with Visit(browser, page, "#view=nonsense&heads=99.99&row=1e9&site=x") as astray:
        assert astray.errors == [] and astray.colours(".main canvas") > 3


def test_pictures_are_saved_as_png_and_as_svg(browser, page, tmp_path):
    with Visit(browser, page, "#heads=0.0") as visit:
        for number, name in enumerate(visit.views):
            visit.view(name)
            for kind in ("PNG", "SVG") if number == 0 else (("PNG", "SVG")[number % 2],):
                with visit.page.expect_download() as waiting:
                    visit.page.click(f"[data-view={name}] button:text-is('{kind}') >> nth=0")
                path = tmp_path / f"{name}-{waiting.value.suggested_filename}"
                waiting.value.save_as(path)
                data = path.read_bytes()
                assert path.suffix == f".{kind.lower()}" and len(data) > 1000, name
                if kind == "PNG":
                    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") > 300
                else:
                    root = ET.fromstring(data)
                    assert root.tag.endswith("svg") and len(list(root.iter())) > 10, name
            if name == "attention":
                text = " ".join(ET.fromstring(data).itertext())
                assert "He" in text and "</s>" in text
        assert visit.elsewhere() == [] and visit.errors == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_no_view_has_a_fault_that_axe_finds(browser, page, scheme):
    with Visit(browser, page, "#heads=0.0&column=2", color_scheme=scheme) as visit:
        for name in visit.views:
            visit.view(name)
            assert visit.faults() == [], name


def test_six_steps_have_the_models_numbers(browser, page, trace):
    row, layer, head = 2, 0, 1
    site = f"decoder.{layer}.cross"
    half = {
        end: trace[f"{site}.{end}"].astype(np.float16).astype(np.float32)
        for end in ("scores", "weights", "queries", "keys")
    }
    with Visit(browser, page, f"#view=steps&site=decoder.cross&heads={layer}.{head}&row={row}") as visit:
        table = visit.page.eval_on_selector_all(
            "[aria-label=Scores] tbody tr", "rows => rows.map(r => [...r.querySelectorAll('td')].map(c => c.innerText))"
        )
        q, k = half["queries"][head, row], half["keys"][head]
        for place, cells in enumerate(table):
            assert shown(cells[0]) == pytest.approx(float(q @ k[place]), rel=2e-3, abs=2e-4)
            assert shown(cells[1]) == pytest.approx(float(half["scores"][head, row, place]), rel=6e-4)
            assert shown(cells[1]) == pytest.approx(shown(cells[0]) / np.sqrt(len(q)), rel=5e-3, abs=2e-3)
            assert shown(cells[3]) == pytest.approx(float(half["weights"][head, row, place]), rel=6e-4)
        assert f"√{len(q)}" in visit.page.inner_text("[data-view=steps]")
        assert len(visit.page.query_selector_all(".steps > li")) == 4


@pytest.mark.parametrize(
    "settings", [{"temperature": 0.6}, {"top_k": 7}, {"top_p": 0.7, "temperature": 1.3}, {"min_p": 0.1, "top_k": 12}]
)
def test_sliders_leave_what_headways_own_chain_leaves(browser, tmp_path_factory, settings):
    model = language_model(Rung(RUNGS["heads"], len(TOKENIZER)))
    found = traced(model, Question("the cat sat on"))
    path = written(tmp_path_factory.mktemp("next") / "p.html", payload(found))
    logp = found["next"].astype(np.float16).astype(np.float32)
    past = Past(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, dtype=torch.long), torch.ones(1, dtype=torch.long))
    expected = apply(Sampling(**settings).chain(), torch.tensor(logp)[None], past).softmax(-1)[0].numpy()
    link = "#view=next&" + "&".join(f"{name.replace('_', '-')}={value}" for name, value in settings.items())
    with Visit(browser, path, link) as visit:
        rows = visit.page.eval_on_selector_all("tr[data-id]", "rows => rows.map(r => [+r.dataset.id, +r.dataset.left])")
        assert len(rows) >= 10
        for entry, left in rows:
            assert left == pytest.approx(expected[entry], rel=1e-4, abs=1e-9)
        assert f"{int((expected > 0).sum()):,} of" in visit.page.inner_text(".controls")
        # The slider acts at once.
        visit.page.fill(".sliders input >> nth=0", "0")
        assert float(visit.page.get_attribute("tr[data-id] >> nth=0", "data-left")) == 1
        assert "a file" in visit.page.inner_text(".controls")


def test_recurrent_models_show_gates_and_saliency(browser, tmp_path):
    found = traced(
        language_model(Recurrent(RecurrentConfig(width=12, layers=2), len(TOKENIZER))), Question("the cat sat")
    )
    with Visit(browser, written(tmp_path / "p.html", payload(found)), "#view=states&tensor=stack.1.forget") as visit:
        assert "beam" not in visit.views and "steps" not in visit.views
        assert "a gate" in visit.page.inner_text("[data-view=states]")
        visit.page.focus("[data-view=states] [role=application]")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            visit.page.keyboard.press(key)
        told = shown(visit.page.inner_text("[data-testid=heat]"))
        assert told == pytest.approx(float(found["stack.1.forget"].astype(np.float16)[1, 1]), rel=6e-4)
        visit.view("attention")
        assert "Saliency" in visit.page.inner_text("[data-view=attention]")
        assert visit.errors == []


def test_two_models_stand_side_by_side(browser, tmp_path):
    question = Question("the dog sat on the mat")
    both = [answer(language_model(Rung(RUNGS[name], len(TOKENIZER))), question) for name in ("bow", "heads")]
    with Visit(browser, written(tmp_path / "p.html", *both), "#view=compare") as visit:
        models = visit.page.eval_on_selector_all("select[aria-label$=model]", "all => all.map(s => s.value)")
        assert models == ["0", "1"] and visit.page.query_selector("text=Left less right")
        # A bag looks at all words before it alike.
        row = visit.page.evaluate("[...headway.traces[0].sites[0].looks(0, 0).row(3)].slice(0, 4)")
        np.testing.assert_allclose(row, 0.25, atol=1e-3)
        assert visit.errors == []


NASTY = [
    "<script>window.hacked = 1</script>", "</script><img src=x onerror='window.hacked = 1'>", "<!--", "&amp;",
    "{@html 1}", "e\u0301\u0323", "שלום", "العربية", "नमस्ते", "👩\u200d👩\u200d👧\u200d👦", "🇫🇷", "𝔘𝔫𝔦", "𠮷野家",
    "\U000e0041", "\u202eevil", "a\u0000b", "\ud7ff\ue000", "",
]  # fmt: skip


def test_any_text_is_shown_as_text(browser, tmp_path):
    trace = made_trace(NASTY)
    link = f"#heads=0.0&row={len(NASTY) - 1}&column=0"
    with Visit(browser, written(tmp_path / "p.html", payload(trace)), link) as visit:
        found = visit.page.eval_on_selector_all(
            ".readout section >> nth=0 >> li bdi", "all => all.map(b => b.textContent)"
        )
        weights = trace["decoder.0.attention.weights"][0, -1]
        assert found == [NASTY[at] for at in np.argsort(-weights.astype(np.float16), kind="stable")[:8]]
        for name in visit.views:
            visit.view(name)
        with visit.page.expect_download() as waiting:
            visit.page.click("button:text-is('SVG') >> nth=0")
        path = tmp_path / "a.svg"
        waiting.value.save_as(path)
        # XML has no name for some characters; all else is in the picture's text.
        texts = "".join(ET.fromstring(path.read_bytes()).itertext())
        assert "שלום" in texts and "<script>" in texts
        assert visit.page.evaluate("window.hacked") is None
        assert visit.elsewhere() == [] and visit.errors == []


def test_a_broken_trace_is_one_line_on_the_page(browser, page, tmp_path):
    whole = page.read_text(encoding="utf-8")
    start = whole.index('data-packed="') + 30
    for number, broken in enumerate(
        [whole[:start] + "AAAA" + whole[start + 4 :], page_html([b"no trace at all"]), page_html([])]
    ):
        path = tmp_path / f"{number}.html"
        path.write_text(broken, encoding="utf-8")
        visit = Visit(browser, path)
        visit.page.wait_for_selector("[role=alert], main > p.quiet")
        told = visit.page.inner_text("main")
        assert "broken" in told or "no trace" in told, told
        visit.context.close()


def test_a_notebook_shows_the_page_in_a_frame(browser, trace, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{show(trace)._repr_html_()}", encoding="utf-8")
    visit = Visit(browser, path)
    frame = visit.page.frame_locator("iframe")
    frame.locator("#tab-beam").click()
    frame.locator("[data-view=beam] canvas").first.wait_for()
    assert visit.errors == [] and visit.elsewhere() == []
    visit.context.close()
