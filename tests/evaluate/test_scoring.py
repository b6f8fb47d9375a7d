"""Log-probabilities of texts and answers: `transformers` on the same model is the oracle."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from foreign_world import write_language_model
from headway.errors import InputError
from headway.evaluate import scoring
from headway.evaluate.scoring import Task, choose, score_texts
from headway.generate.generator import Generator
from headway.tasks.loading import load

TEXTS = ["the cat sat", "a", "on the mat, in the sun", "", "dog", "the cat sat"]
CHOICES = [" yes", " no", " it may well be"]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def both(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[Generator, Any]:
    folder = tmp_path_factory.mktemp("model")
    theirs = write_language_model(folder, request.param)
    return load(folder, "cpu"), theirs


def their_logps(theirs: Any, ids: list[int]) -> list[float]:
    """log p of each id behind the first."""
    with torch.no_grad():
        logp_TV = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [float(logp_TV[t, i]) for t, i in enumerate(ids[1:])]


def test_texts_are_scored_as_transformers_scores_them(
    both: tuple[Generator, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, theirs = both
    for at_once in (10_000, 30):  # one batch, and several
        monkeypatch.setattr(scoring, "TOKENS_AT_ONCE", at_once)
        for text, found in zip(TEXTS, score_texts(generator, TEXTS), strict=True):
            ids = generator.tokenizer.encode(text)
            assert found.text == text and found.tokens == generator.tokenizer.tokens(ids)
            assert found.logps == pytest.approx(their_logps(theirs, [0, *ids]), abs=1e-4)
            assert found.perplexity == pytest.approx(math.exp(-found.total / max(1, len(ids))))


@pytest.mark.parametrize("by", ["sum", "token", "character"])
def test_an_answer_is_scored_behind_its_prompt(both: tuple[Generator, Any], by: Any) -> None:
    generator, theirs = both
    prompts = ["is it so?", "x"]
    for prompt, found in zip(prompts, choose(generator, prompts, CHOICES, by), strict=True):
        expected = {}
        for choice in CHOICES:
            before, ids = generator.tokenizer.encode(prompt), generator.tokenizer.encode(choice)
            logp = sum(their_logps(theirs, [*before, *ids])[len(before) - 1 :])
            expected[choice] = logp / {"sum": 1, "token": len(ids), "character": len(choice)}[by]
        assert [choice.text for choice in found] == sorted(CHOICES, key=lambda choice: -expected[choice])
        assert [choice.judged for choice in found] == pytest.approx([expected[c.text] for c in found], abs=1e-4)
        assert sum(choice.share for choice in found) == pytest.approx(1.0)


def test_examples_stand_before_the_question() -> None:
    task = Task("Q: {text}\nA: {answer}", (("1+1", "2"), ("2+2", "4")))
    assert task.prompt("3+3") == "Q: 1+1\nA: 2\n\nQ: 2+2\nA: 4\n\nQ: 3+3\nA:"
    assert task.choices(["6", "7"]) == [" 6", " 7"]
    assert Task().prompt("it is") == "it is" and Task().choices(["so"]) == [" so"]


@pytest.mark.parametrize("template", ["{text}", "{answer} {text}", "{text} {text} {answer}", "no"])
def test_a_template_that_says_nothing_is_refused(template: str) -> None:
    with pytest.raises(InputError, match="must have"):
        Task(template)


def test_what_cannot_be_scored_is_refused(both: tuple[Generator, Any]) -> None:
    generator, _ = both
    with pytest.raises(InputError, match="text 2 has 71 tokens, this model reads at most 64"):
        score_texts(generator, ["a", "b" * 70])
    with pytest.raises(InputError, match="prompt 1 with its longest choice has 74 tokens"):
        choose(generator, ["b" * 70], [" yes", " no"])
    for choices in ([" yes"], [" yes", " yes"], [" yes", ""]):
        with pytest.raises(InputError, match="at least two choices"):
            choose(generator, ["a"], choices)
    with pytest.raises(InputError, match="judged by sum, token, character"):
        choose(generator, ["a"], [" yes", " no"], "luck")  # type: ignore[arg-type]
