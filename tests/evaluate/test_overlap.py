"""The baseline of shared words: which sentence, which span."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

TEXT = "The café opened in 1907. Ada Lovelace liked its bread. It cost 2.5 francs, the baker said quietly."


@pytest.fixture
def overlap(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("overlap")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When was the café opened?", "1907"),
        ("Who liked the bread?", "Ada Lovelace"),
        ("How much did it cost?", "2.5"),
        ("What did the baker do?", "cost 2.5 francs"),
        ("When did Ada like its bread?", "Ada Lovelace liked its bread."),
    ],
)
def test_the_span_is_in_the_sentence_that_shares_most_words(overlap: Any, question: str, answer: str) -> None:
    assert overlap.answer(question, TEXT) == answer
