"""The page of a model that reads a picture and words in one sequence: where each word looks in the picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from browsing import Visit, need_browser
from headway.card import Card, Loaded
from headway.explore.asking import Question, answer
from headway.generate.mixture import MixtureModel
from headway.models import build
from headway.models.mixture import MixtureConfig
from headway.processors.image import ImageConfig
from headway.processors.steps import ActionConfig, ObservationConfig
from headway.processors.text import TextConfig, TextProcessor
from headway.text.tokenizer import TextOptions, Tokenizer
from made_pages import written

need_browser()
CONFIG = MixtureConfig(image=16, patch=4, layers=2, width=32, heads=2, bins=4, max_length=16)
OPTIONS = TextOptions("word", lowercase=True, min_count=1, joint=True)


@pytest.fixture(scope="module")
def model() -> MixtureModel:
    torch.manual_seed(5)
    tokenizer = Tokenizer.train(["what colour is the circle", "red", "green"], OPTIONS)
    configs = {
        "observations": ObservationConfig(1), "actions": ActionConfig(1, "numbers"), "image": ImageConfig(3, 16, 16),
        "text": TextConfig(len(tokenizer), OPTIONS),
    }  # fmt: skip
    network = build("mixture", CONFIG, tuple(config.size for config in configs.values())).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight) * 0.25)
    opened = {name: config.open(Path()) for name, config in configs.items() if name != "text"}
    opened["text"] = TextProcessor(configs["text"], tokenizer)
    found = MixtureModel(Loaded(network, Card("mixture", CONFIG, "mixing", configs), opened))
    found.name = "mixture"
    return found


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    place = tmp_path_factory.mktemp("pictures") / "circle.png"
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(place)
    return place


@pytest.fixture(scope="module")
def page(model: MixtureModel, picture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = answer(model, Question(f"{picture}|what colour is the circle", second="red"), 8_000_000)
    return written(tmp_path_factory.mktemp("page") / "words.html", found)


def test_a_word_that_is_chosen_shows_where_it_looks(browser, page: Path, model: MixtureModel, picture: Path) -> None:
    trace = model.trace(f"{picture}|what colour is the circle", "red")
    weights = trace["decoder.1.attention.weights"]
    with Visit(browser, page, "#mode=head&heads=1.1") as visit:
        assert visit.views[0] == "picture"
        words = visit.page.locator(".words button")
        assert words.all_inner_texts() == ["[state]", "what", "colour", "is", "the", "circle", "<s>", "red"]
        assert words.last.get_attribute("aria-pressed") == "true"
        words.nth(2).click()
        visit.page.focus("[role=application]")
        visit.page.keyboard.press("ArrowRight")
        row = weights[1, model.model.config.given + 1]
        assert float(visit.page.inner_text("[data-testid=seen]")) == pytest.approx(float(row[0]), abs=1e-3)
