"""The page of a transcript in a real browser: the spectrogram, words below their times, and where each word looked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import headway
from browsing import Visit, need_browser
from headway.cli.app import main
from headway.explore.asking import Question, answer, traced
from headway.traces import Trace
from made_pages import written
from speech_world import PLACES, TIMES, write_whisper

need_browser()
CANVAS = "[data-view=sound] figure canvas"
CAPTION = "[data-view=sound] figcaption"
SPECTROGRAM, AXIS, LINE = 200, 24, 24  # pixels, as the page draws them
WORDS = ["Attention", "is", "all", "you", "need,", "she", "said."]
QUESTION = "talk.wav"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    write_whisper(folder / "model", context=80)
    time = np.arange(16000) / 16000
    tone = 0.2 * np.sin(2 * np.pi * (200 + 1500 * time) * time) * (np.sin(2 * np.pi * 3 * time) > -0.5)
    soundfile.write(folder / QUESTION, tone.astype(np.float32), 16000)
    return folder


@pytest.fixture(scope="module")
def mine(place: Path) -> Any:
    """It writes these words."""
    model = headway.load(place / "model", "cpu")
    ids = [TIMES, *model.tokenizer.encode("".join(f" {word}" for word in WORDS)), TIMES + PLACES]
    model.written = lambda heard, openings, *_: [(ids, -0.1)]
    return model


@pytest.fixture(scope="module")
def trace(mine: Any, place: Path) -> Trace:
    return traced(mine, Question(str(place / QUESTION)))


@pytest.fixture(scope="module")
def page(mine: Any, place: Path) -> Path:
    return written(place / "talk.html", answer(mine, Question(str(place / QUESTION))))


def test_a_trace_has_its_words_with_their_tokens(trace: Trace) -> None:
    said = trace.about["said"]
    assert said["seconds"] == 1.0 and [text for text, *_ in said["words"]] == WORDS
    labels = trace.tracks["target"].labels
    assert ["".join(labels[at] for at in places).strip("▁␣") for *_, places in said["words"]] == WORDS
    times = [time for _, start, end, _ in said["words"] for time in (start, end)]
    assert times == sorted(times) and times[-1] <= 1.0
    assert trace["pixels"].shape == (12, 100, 1) and trace.tracks["source"].text == QUESTION


def attended(trace: Trace, word: int, layer: int, heads: slice) -> np.ndarray:
    """Each token is written from the place before it."""
    rows = [at - 1 for at in trace.about["said"]["words"][word][3]]
    return trace[f"decoder.{layer}.cross.weights"][heads][:, rows].mean((0, 1))


def number(visit: Visit) -> float:
    return float(visit.page.inner_text("[data-testid=said]").replace("−", "-"))


def test_a_word_under_the_pointer_says_where_it_looked(browser, trace: Trace, page: Path) -> None:
    with Visit(browser, page, "#view=sound&mode=head&heads=1.2") as visit:
        assert visit.views[0] == "sound" and "pitch rises" in visit.page.inner_text(CAPTION)
        box = visit.page.locator(CANVAS).bounding_box()
        alone = visit.page.screenshot(clip=box)
        _, start, end, _ = trace.about["said"]["words"][1]
        middle = (start + end) / 2
        visit.page.mouse.move(box["x"] + middle * box["width"], box["y"] + 50)
        assert visit.page.inner_text("[data-testid=word]") == "is"
        assert f"from {start:.2f} to {end:.2f} s" in visit.page.inner_text(CAPTION)
        values = attended(trace, 1, 1, slice(2, 3))
        assert number(visit) == pytest.approx(values[int(middle * PLACES)], rel=5e-3)
        assert visit.page.screenshot(clip=box) != alone
        visit.page.mouse.move(box["x"] + start * box["width"] + 4, box["y"] + SPECTROGRAM + AXIS + LINE / 2)
        assert visit.page.inner_text("[data-testid=word]") == "is"  # where it is written
        assert number(visit) == pytest.approx(values.max(), rel=5e-3)
        visit.page.select_option("[data-view=sound] select", "mean")
        assert number(visit) == pytest.approx(attended(trace, 1, 1, slice(None)).max(), rel=5e-3)
        assert visit.errors == [] and visit.elsewhere() == []


def test_arrow_keys_go_from_word_to_word_and_the_link_keeps_it(browser, trace: Trace, page: Path) -> None:
    with Visit(browser, page) as visit:
        visit.page.focus("[role=application]")
        for word in WORDS[:3]:
            visit.page.keyboard.press("ArrowRight")
            assert visit.page.inner_text("[data-testid=word]") == word
        visit.page.keyboard.press("ArrowLeft")
        link = visit.link()
    with Visit(browser, page, link) as visit:
        assert visit.page.inner_text("[data-testid=word]") == WORDS[1]
        visit.view("attention")
        assert visit.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_and_the_picture_is_drawn(browser, page: Path, scheme: str) -> None:
    with Visit(browser, page, color_scheme=scheme) as visit:
        assert QUESTION in visit.page.inner_text("[role=region]")
        assert visit.colours(CANVAS) > 20
        visit.page.focus("[role=application]")
        visit.page.keyboard.press("End")
        assert visit.faults() == [] and visit.errors == []


def test_the_command_writes_the_page_of_a_recording(browser, place: Path) -> None:
    out = place / "page.html"
    with pytest.raises(SystemExit) as left:
        main(["explore", str(place / "model"), "--text", str(place / QUESTION), "--html", str(out), "--device", "cpu"])
    assert not left.value.code
    with Visit(browser, out) as visit:
        assert visit.views[0] == "sound" and visit.errors == []
