"""What a model and a trace say of themselves, and one text or many: for every family's folder."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway
from encoder_folders import write_encoder
from headway.traces import Trace, Track

FOLDERS = Path(__file__).parents[1] / "folders"
EVERY = [FOLDERS / "format-1", *sorted(path for path in (FOLDERS / "format-1-families").iterdir() if path.is_dir())]
every_folder = pytest.mark.parametrize("folder", EVERY, ids=lambda folder: folder.name)
EXTRA: dict[str, dict[str, Any]] = {
    "embed": {"pooling": "mean"}, "generate": {"max_new": 3}, "generate_n": {"max_new": 3}, "stream": {"max_new": 3},
}  # fmt: skip
TEXT, GAPPED = "He drives the car", "He drives the [MASK]"


class Tags(HTMLParser):
    """Refuses HTML whose tags do not close each other; keeps the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@every_folder
def test_a_model_says_what_it_is_and_answers_all_that_it_says_it_can_be_asked(folder: Path) -> None:
    model = headway.load(folder, "cpu")
    first, *lines = repr(model).splitlines()
    assert first == f"{type(model).__name__} '{folder.name}'"
    facts = model.facts()
    assert len(lines) == len(facts) and all(value in line for value, line in zip(facts.values(), lines, strict=True))
    shown = Tags(model._repr_html_())
    assert shown.seen.count("tr") == len(facts) and first in shown.text
    asked = [name.strip() for name in facts["call"].split(",")]
    assert asked
    for name in asked:
        text = model.vectors.words[0] if name == "nearest" else GAPPED if name == "fill" else TEXT
        answer = getattr(model, name)(text, **EXTRA.get(name, {}))
        assert (list(answer) if name == "stream" else answer) is not None


@every_folder
def test_one_text_gives_the_answer_that_a_list_of_it_gives(folder: Path) -> None:
    model = headway.load(folder, "cpu")
    checked = 0
    for name in model.asked():
        if name in ("stream", "trace", "nearest"):
            continue
        ask, text, how = getattr(model, name), GAPPED if name == "fill" else TEXT, EXTRA.get(name, {})
        [alone], one = ask([text], **how), ask(text, **how)
        assert type(one) is type(alone) and repr(one) == repr(alone)
        assert len(ask([text, text], **how)) == 2 and len(ask([], **how)) == 0
        checked += 1
    assert checked or folder.name == "skip-gram"


def test_one_question_and_one_conversation_are_one_value(tmp_path: Path) -> None:
    write_encoder(tmp_path / "spans", "ForQuestionAnswering", num_labels=2)
    write_encoder(tmp_path / "choices", "ForMultipleChoice")
    reader, chooser = (headway.load(tmp_path / name, "cpu") for name in ("spans", "choices"))
    pair, question = ("how old are you?", "the cats sat"), ("the cat", ["sat", "ran"])
    assert reader.find(pair) == reader.find([pair])[0]
    assert chooser.choose(question) == chooser.choose([question])[0] and len(chooser.choose(question)) == 2
    assert "find" in repr(reader) and "choose" not in repr(reader) and "choose" in repr(chooser)
    from headway.generate.generator import is_prompt

    hello = [{"role": "user", "content": "Hello"}]
    assert is_prompt(hello) and is_prompt("Hello") and not is_prompt([hello]) and not is_prompt(["Hello"])
    assert not is_prompt([])


def test_one_picture_is_a_path_or_an_array_of_one() -> None:
    from headway.generate.pictures import is_picture

    assert is_picture("boot.png") and is_picture(Path("boot.png"))
    assert is_picture(np.zeros((28, 28))) and is_picture(np.zeros((8, 9, 3)))
    assert not is_picture(["boot.png"]) and not is_picture(np.zeros((5, 28, 28))) and not is_picture([np.zeros((4, 4))])


def test_a_trace_shows_its_texts_and_a_shade_for_each_weight() -> None:
    trace = headway.load(EVERY[0], "cpu").trace(TEXT, "Il conduit")
    assert repr(trace).splitlines()[0] == "Trace of format-1"
    assert TEXT in repr(trace) and "Il conduit" in repr(trace) and len(repr(trace)) < 1000
    shown = Tags(trace._repr_html_())
    rows, columns = (len(trace.tracks[name]) for name in ("target", "source"))
    weights = trace.attention()[0].mean(0)
    assert trace._repr_html_().count("<td title=") == rows * columns
    assert f'title="{weights[1, 2]:.3f}"' in trace._repr_html_()
    assert "decoder.0.cross" in shown.text


@every_folder
def test_every_trace_can_be_shown(folder: Path) -> None:
    model = headway.load(folder, "cpu")
    if "trace" in model.asked():
        trace = model.trace("The cat sleeps")
        Tags(trace._repr_html_())
        assert folder.name in repr(trace)
        with headway.trace(model) as recording:
            model.trace("The cat sleeps")
        assert all(name in repr(recording) for name in recording.tensors)


def test_text_from_outside_is_escaped_and_long_ones_are_cut() -> None:
    evil = "<script>alert(1)</script>"
    track = Track("tokens", "tokens", (evil,) * 60, text=f"{evil}\n" * 60)
    weights = np.full((1, 1, 60, 60), 1 / 60, np.float32)
    axes = {"stack.0.attention.weights": ("head", "tokens", "tokens")}
    trace = Trace({"tokens": track}, {"stack.0.attention.weights": weights[0]}, axes, {"model": evil})
    html = trace._repr_html_()
    assert "<script" not in html and html.count("<td title=") == 40 * 40 and len(html) < 300_000
    assert Tags(html).text.count(evil) > 40
    assert len(repr(trace)) < 1000 and len(repr(trace).splitlines()) == 4
    bare = replace(trace, tensors={}, axes={})
    assert "tensors" in repr(bare) and Tags(bare._repr_html_()).seen.count("table") == 1


def test_attention_is_shown_by_word_and_not_as_numbers() -> None:
    [best] = headway.load(EVERY[0], "cpu").translate_n(TEXT, attention=True)
    assert "4 source words" in repr(best.attention) and "array" not in repr(best)
    assert best.attention._repr_html_().count("<td title=") == 4 * len(best.attention.target_words)
