"""What a first reader of the page sees: the telling head, words, numbers behind a stored 0, both translations, help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headway
from browsing import Visit, need_browser
from headway.explore.asking import Question, traced
from headway.explore.payload import payload
from headway.explore.telling import telling_heads
from headway.generate.attention import merge_words
from headway.traces import Trace
from made_pages import written

need_browser()
FOLDER = Path(__file__).parents[1] / "folders" / "format-1"


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A translation whose first weights are too small for half precision."""
    found = traced(headway.load(FOLDER, "cpu"), Question("He drives the 😀 car", "Il conduit la voiture"))
    weights = found["decoder.0.cross.weights"].copy()
    weights[:, 1, 0] = 1e-9
    return replace(found, tensors=found.tensors | {"decoder.0.cross.weights": weights})


def test_it_opens_on_the_telling_head_with_help_and_no_bytes(browser, trace, tmp_path):
    with Visit(browser, written(tmp_path / "p.html", payload(trace))) as visit:
        layer, head = telling_heads(trace)["decoder.cross"]
        pressed = "[data-head][aria-pressed=true]"
        assert visit.page.get_attribute(pressed, "data-head") == f"{layer}.{head}"
        visit.page.click(".segments >> text=Encoder")
        layer, head = telling_heads(trace)["encoder.attention"]
        assert visit.page.get_attribute(pressed, "data-head") == f"{layer}.{head}"
        docs = (Path(__file__).parents[2] / "docs" / "explore.md").read_text(encoding="utf-8")
        sections = {line[3:].lower().replace(" ", "-") for line in docs.splitlines() if line.startswith("## ")}
        for name in visit.views:
            visit.view(name)
            told = visit.page.inner_text(".help")
            assert len(told) > 60 and told.partition("docs/explore.md#")[2] in sections, name
        visit.view("steps")
        tokens = visit.page.inner_text("[role=radiogroup]")
        assert "😀₁" in tokens and "\\x" not in tokens and "Ã" not in tokens
        assert visit.errors == []


def test_words_have_the_sum_over_keys_and_the_mean_over_queries(browser, trace, tmp_path):
    source, target = trace.tracks["source"], trace.tracks["target"]
    assert len(set(source.words)) < len(source.words)
    half = trace["decoder.0.cross.weights"].astype(np.float16).astype(np.float64)[1]
    expected = merge_words(half, [*target.words[1:], -1], source.words)
    word = int(expected[2].argmax())
    link = f"#site=decoder.cross&heads=0.1&words=1&row={target.words.index(2) - 1}&column={source.words.index(word)}"
    with Visit(browser, written(tmp_path / "p.html", payload(trace)), link) as visit:
        assert visit.page.inner_text(".now bdi >> nth=0") == target.spelled[2]
        assert visit.page.inner_text(".now bdi >> nth=1") == source.spelled[word]
        told = float(visit.page.inner_text("[data-testid=weight]"))
        assert told == pytest.approx(expected[2, word], rel=6e-4)
        visit.page.click("text=By word")
        assert visit.page.inner_text(".now bdi >> nth=1") == source.labels[source.words.index(word)]


def test_step_one_has_numbers_and_a_stored_zero_says_what_it_is(browser, trace, tmp_path):
    cells = "rows => rows.map(r => [...r.querySelectorAll('td')].map(c => c.innerText))"
    path = written(tmp_path / "p.html", payload(trace))
    with Visit(browser, path, "#view=steps&site=encoder.attention&heads=0.0&row=0") as visit:
        rows = visit.page.eval_on_selector_all("[data-testid=vectors] tr", cells)
        shown = [[float(cell.replace("−", "-")) for cell in row[:-1]] for row in rows]
        np.testing.assert_allclose(shown, trace["embed_source.hidden"][:, : len(shown[0])], rtol=6e-3, atol=1e-4)
        assert visit.page.query_selector("[aria-label^='Values: ']")
        visit.page.click(".segments >> text=Cross")
        visit.page.click("[role=radio][data-place='1']")
        assert visit.page.inner_text("[data-weight='0']") == "< 1e−7"
        visit.page.click(".segments >> text=Decoder")
        visit.page.click("[role=radio][data-place='0']")
        assert visit.page.inner_text("[data-weight='1']") == "masked"


def test_compare_has_the_translation_of_each_model(browser, trace, tmp_path):
    other = traced(headway.load(FOLDER, "cpu"), Question("He drives the 😀 car", "Elle conduit"))
    with Visit(browser, written(tmp_path / "p.html", payload(trace), payload(other)), "#view=compare") as visit:
        made = visit.page.eval_on_selector_all("[data-testid=made] bdi", "all => all.map(one => one.textContent)")
        assert made == ["Il conduit la voiture", "Elle conduit"]
        assert visit.errors == [] and visit.faults() == []
