"""Sizes that no machine could build are refused before anything is built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.errors import InputError
from headway.models import bounds, build
from headway.models.gpt import GPTConfig

SMALL = GPTConfig(1, 16, 32, 2, max_length=32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers": 10**9}, "model.layers is 1,000,000,000: at most 10,000"),
        ({"width": 10**9}, "model.width is 1,000,000,000"),
        ({"max_length": 10**12}, "model.max_length"),
        ({"width": 10**8, "inner": 10**8}, "of memory, this machine has"),
    ],
)
def test_a_giant_is_refused_by_name(change: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build("gpt", replace(SMALL, heads=1, **change), (30,))


def test_a_vocabulary_is_counted_too_and_a_usual_model_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="the vocabulary is"):
        build("gpt", SMALL, (10**10,))
    build("gpt", SMALL, (30,))
    monkeypatch.setattr(bounds, "_memory", lambda: 0)  # a machine that does not say
    build("gpt", SMALL, (30,))
