"""The live page in a real browser: one's own text, tokens appended by a click, links with a text, messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import headway
from browsing import Visit, need_browser, served
from encoder_folders import write_encoder
from headway.explore.asking import Question
from headway.generate.generator import Generator
from headway.models.gpt import GPT, GPTConfig
from headway.serve.app import application
from headway.text.tokenizer import TextOptions, Tokenizer

need_browser()
FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TOKENIZER = Tokenizer.train(["the cat sat on the mat, the dog did not sit"] * 3, TextOptions(size=290, exact=True))


@pytest.fixture(scope="module")
def translator():
    return headway.load(FOLDER, "cpu")


@pytest.fixture(scope="module")
def translator_page(translator):
    with served(application([translator], Question("He drives the car", beam=3))) as address:
        yield address


@pytest.fixture(scope="module")
def gpt():
    torch.manual_seed(5)
    model = GPT(GPTConfig(layers=2, heads=2, width=16, max_length=64), len(TOKENIZER))
    generator = Generator(model.eval(), TOKENIZER, context=64, device=torch.device("cpu"))
    generator.name = "small"
    return generator


@pytest.fixture(scope="module")
def gpt_page(gpt):
    with served(application([gpt])) as address:
        yield address


def look(visit: Visit, text: str, second: str | None = None) -> None:
    visit.page.fill("textarea >> nth=0", text)
    if second is not None:
        visit.page.fill("textarea >> nth=1", second)
    visit.page.click("button:text-is('Look')")
    visit.page.wait_for_selector("main[aria-busy=false]")


def test_the_page_begins_with_the_text_of_the_command_and_takes_another(browser, translator_page):
    with Visit(browser, translator_page) as visit:
        assert visit.page.input_value("textarea >> nth=0") == "He drives the car"
        for name in visit.views:
            visit.view(name)
        assert visit.faults() == []
        look(visit, "She sings", "Elle chante")
        assert "beam" not in visit.views  # along a translation of one's own there is no search
        tracks = visit.page.evaluate("[...headway.traces[0].tracks.values()].map(t => t.text)")
        assert tracks == ["She sings", "Elle chante"]
        assert visit.elsewhere() == [] and visit.errors == []


def test_a_link_holds_the_text_too(browser, translator_page):
    with Visit(browser, translator_page) as visit:
        look(visit, "The girl sleeps", "")
        visit.view("beam")
        link = visit.link()
        told = visit.page.get_attribute("[data-view=beam] [role=application]", "aria-label")
    with Visit(browser, translator_page, link) as again:
        again.page.wait_for_selector("[data-view=beam]")
        assert again.page.input_value("textarea >> nth=0") == "The girl sleeps"
        assert again.page.get_attribute("[data-view=beam] [role=application]", "aria-label") == told


def test_a_click_appends_the_token_and_the_model_is_asked_again(browser, gpt_page):
    with Visit(browser, gpt_page, "#view=next&text=the cat") as visit:
        before = visit.page.evaluate("headway.traces[0].tracks.get('tokens').ids")
        rows = visit.page.eval_on_selector_all("tr[data-id]", "rows => rows.map(r => +r.dataset.id)")
        row = next(at for at, entry in enumerate(rows) if TOKENIZER.decode([*before, entry]).startswith("the cat") and
                   TOKENIZER.encode(TOKENIZER.decode([*before, entry])) == [*before, entry])  # fmt: skip
        visit.page.focus("[data-view=next] [role=application]")
        for _ in range(row + 1):
            visit.page.keyboard.press("ArrowDown")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_function("n => headway.traces[0].tracks.get('tokens').ids.length > n", arg=len(before))
        assert visit.page.evaluate("headway.traces[0].tracks.get('tokens').ids") == [*before, rows[row]]
        assert visit.page.input_value("textarea") == TOKENIZER.decode([*before, rows[row]])
        box = visit.page.query_selector("[data-view=next] section canvas").bounding_box()
        written = visit.page.input_value("textarea")
        visit.page.mouse.click(box["x"] + 60, box["y"] + 15)
        visit.page.wait_for_function("text => document.querySelector('textarea').value !== text", arg=written)
        assert visit.page.input_value("textarea").startswith(written)
        assert visit.errors == []


def test_an_alternative_of_a_translation_is_followed(browser, translator, translator_page):
    codec = translator.target_tokenizer
    with Visit(browser, translator_page, "#view=next&place=0") as visit:
        rows = visit.page.eval_on_selector_all("tr[data-id]", "rows => rows.map(r => +r.dataset.id)")
        row, entry = next((at, i) for at, i in enumerate(rows) if at and codec.encode(codec.decode([i])) == [i])
        visit.page.focus("[data-view=next] [role=application]")
        for _ in range(row + 1):
            visit.page.keyboard.press("ArrowDown")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_function("() => document.querySelectorAll('textarea')[1].value !== ''")
        visit.page.wait_for_selector("main[aria-busy=false]")
        assert visit.page.input_value("textarea >> nth=1") == codec.decode([entry])
        assert visit.page.evaluate("headway.traces[0].tracks.get('target').ids") == [translator.symbols.start, entry]


def test_a_translation_is_written_word_by_word(browser, translator, translator_page):
    codec = translator.target_tokenizer
    with Visit(browser, translator_page, "#view=next&place=0") as visit:
        written: list[int] = []
        for _ in range(3):
            rows = visit.page.eval_on_selector_all("tr[data-id]", "rows => rows.map(r => +r.dataset.id)")
            row = next(at for at, i in enumerate(rows) if codec.encode(codec.decode([*written, i])) == [*written, i])
            written.append(rows[row])
            box = visit.page.query_selector("[data-view=next] section canvas").bounding_box()
            visit.page.mouse.click(box["x"] + 60, box["y"] + 15 + 26 * row)
            visit.page.wait_for_function(
                "n => headway.traces[0].tracks.get('target').ids.length === n", arg=len(written) + 1
            )
            visit.page.wait_for_selector("main[aria-busy=false]")
            visit.page.wait_for_selector(f"[aria-checked=true][data-place='{len(written)}']")
        assert visit.page.input_value("textarea >> nth=1") == codec.decode(written)


def test_another_text_empties_the_translation_that_was_followed(browser, translator_page):
    with Visit(browser, translator_page) as visit:
        look(visit, "She sings", "Elle chante")
        look(visit, "He drives the car")
        assert visit.page.input_value("textarea >> nth=1") == "" and "beam" in visit.views
        look(visit, "She sings", "Elle chante")
        look(visit, "She sings")
        assert visit.page.input_value("textarea >> nth=1") == "Elle chante"


@pytest.mark.parametrize("text", ["the cat sat", ""])
def test_the_page_asks_for_the_commands_layers_and_heads_only(browser, gpt, text):
    page = application([gpt], Question(text, layers=(1,), heads=(0,)))
    with served(page) as address, Visit(browser, address, "" if text else "#text=the dog") as visit:
        for _ in range(2):
            sites = visit.page.evaluate("headway.traces[0].sites.map(s => [s.layers, s.heads])")
            assert sites and all(site == [[1], [0]] for site in sites)
            look(visit, "the cat did not sit")


def test_translators_that_wrote_different_things_say_so(browser, translator):
    torch.manual_seed(5)
    other = headway.load(FOLDER, "cpu")
    other.name = "other"
    for weight in other.model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    page = application([translator, other], Question("He drives the car", beam=1))
    with served(page) as address, Visit(browser, address, "#view=compare&site=decoder.cross") as visit:
        assert visit.page.inner_text("h1") == f"{translator.name} and other"
        assert "They wrote different translations" in visit.page.inner_text("[data-view=compare]")
        look(visit, "He drives the car", "Il conduit")
        assert visit.page.query_selector("text=Left less right") and visit.errors == []


def test_what_is_wrong_is_said_on_the_page(browser, gpt_page):
    with Visit(browser, gpt_page, "#text=the dog") as visit:
        for text, told in (("", "nothing to trace"), ("the " * 200, "this model reads at most 64: shorten it")):
            look(visit, text)
            assert told in visit.page.inner_text("[role=alert]")
            assert "of the text before" in visit.page.inner_text("[role=note]")
            assert float(visit.page.eval_on_selector("#view", "view => getComputedStyle(view).opacity")) < 0.6
        look(visit, "the cat <script>window.hacked = 1</script>")
        assert visit.page.query_selector("[role=alert]") is None
        assert visit.page.evaluate("window.hacked") is None


def test_an_imported_bert_fills_its_gap_by_a_click(browser, tmp_path):
    write_encoder(tmp_path / "bert", "ForMaskedLM")
    encoder = headway.load(tmp_path / "bert", "cpu")
    page = application([encoder, encoder], Question("the cat [MASK] on the mat"))
    with served(page) as address, Visit(browser, address, "#view=next") as visit:
        assert "What may stand at" in visit.page.inner_text(".controls")
        assert visit.page.inner_text("[aria-checked=true]") == "[MASK]"
        entry = int(visit.page.get_attribute("tr[data-id] >> nth=0", "data-id"))
        visit.page.focus("[data-view=next] [role=application]")
        visit.page.keyboard.press("ArrowDown")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_function(f"() => headway.traces[0].tracks.get('tokens').ids[3] === {entry}")
        look(visit, "the cat sat", "on a mat")
        visit.view("compare")
        assert len(visit.page.query_selector_all("select[aria-label$=model]")) == 2
        assert visit.errors == []


@pytest.mark.long
def test_two_thousand_tokens_of_ones_own_and_their_steps(browser):
    torch.manual_seed(5)
    model = GPT(GPTConfig(layers=2, heads=4, width=16, max_length=2100), len(TOKENIZER)).eval()
    generator = Generator(model, TOKENIZER, context=2100, device=torch.device("cpu"))
    text = "the cat sat on the mat, " * 280
    while len(TOKENIZER.encode(text)) > 2050:
        text = text[: -len("the mat, ")]
    with served(application([generator])) as address, Visit(browser, address, "#text=the cat") as visit:
        look(visit, text)
        assert visit.page.evaluate("headway.traces[0].tracks.get('tokens').labels.length") > 1900
        assert "the text is long" in visit.page.inner_text("[role=note]")
        visit.view("steps")
        visit.page.wait_for_selector("[data-weight]")  # asked for, as the trace does not have it
        assert visit.errors == []
