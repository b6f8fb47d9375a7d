"""What the page is given: all of a short text, of a long one what can be shown, and the names of what may come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import headway
from headway.errors import InputError
from headway.explore import asking
from headway.explore.asking import Question, answer, card, spelled, traced
from headway.explore.payload import strongest
from headway.generate.generator import Generator
from headway.generate.tracing import labels
from headway.models.gpt import GPT, GPTConfig
from headway.text.tokenizer import TextOptions, Tokenizer

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TOKENIZER = Tokenizer.train(["the cat sat on the mat, the dog did not sit"] * 3, TextOptions(size=290, exact=True))


@pytest.fixture(scope="module")
def gpt() -> Generator:
    torch.manual_seed(2)
    model = GPT(GPTConfig(layers=3, heads=2, width=16, max_length=200), len(TOKENIZER)).eval()
    return Generator(model, TOKENIZER, context=200, device=torch.device("cpu"))


def test_a_short_text_has_everything_and_the_names_of_what_may_come(gpt):
    trace = traced(gpt, Question("the cat sat"))
    own = gpt.trace("the cat sat")
    assert {"decoder.2.attention.queries", "decoder.1.hidden", "embed.position", "next", "logp"} <= set(trace)
    assert "logits" not in trace
    np.testing.assert_allclose(np.exp(trace["logp"]).sum(-1), 1, atol=1e-4)
    np.testing.assert_allclose(trace["logp"][-1], own["next"], atol=1e-5)
    names = trace.about["names"]
    assert len(names) == len(TOKENIZER)
    assert [names[str(i)] for i in (5, 280)] == labels(TOKENIZER, [5, 280])


def test_a_long_text_is_taken_layer_by_layer_with_the_same_weights(gpt, monkeypatch):
    question = Question("the cat sat on the mat, " * 12)
    whole = strongest(gpt.trace(question.text, tensors=["*.weights"]))
    monkeypatch.setattr(asking, "AT_ONCE", 1000)
    thin = traced(gpt, question, most=100_000)
    assert thin.about["looked_at"] == whole.about["looked_at"] and len(thin.about["told"]) == 1
    for name in whole:
        np.testing.assert_allclose(thin[name], whole[name], atol=1e-6)
    assert "next" in thin and "decoder.0.attention.queries" not in thin
    assert len(answer(gpt, question, most=100_000)) < 200_000


def test_of_a_translator_a_long_text_keeps_all_three_kinds_of_attention(monkeypatch):
    translator = headway.load(FOLDER, "cpu")
    monkeypatch.setattr(asking, "AT_ONCE", 0)
    trace = traced(translator, Question("He drives the car"), most=1000)
    assert trace.sites() == [("encoder", "attention"), ("decoder", "attention"), ("decoder", "cross")]
    assert trace.about["beam"]["nodes"]


def test_a_card_says_what_a_model_takes(gpt):
    assert card(gpt)["takes"] == "one" and card(gpt)["context"] == 200
    with pytest.raises(InputError, match="this model reads one text"):
        traced(gpt, Question("the", "cat"))
    with pytest.raises(InputError, match="reads at most 200"):
        traced(gpt, Question("the " * 300))


def test_half_a_character_is_no_text():
    class Halves:
        def __len__(self) -> int:
            return 9

        def decode(self, ids: list[int]) -> str:
            return "a\N{REPLACEMENT CHARACTER}"

    generator = object.__new__(Generator)
    generator.tokenizers = (Halves(), Halves())
    with pytest.raises(InputError, match="half a character"):
        spelled(generator, [1])
    with pytest.raises(InputError, match="there is no token 9: the vocabulary has 9"):
        spelled(generator, [9])
