"""A language model is judged by one reading of the held-out text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.plain import change
from headway.recipes import RECIPES
from headway.train.language import LanguageJob, train_language_model
from headway.train.log import Log

SMALL = ["model.width=8", "model.max_length=8", "engine.batch=32", "engine.steps=4", "engine.device=cpu"]
OF_EACH = {"lstm": ["model.layers=1"], "gpt": ["model.layers=1", "model.heads=2"]}


@pytest.mark.parametrize("recipe", OF_EACH)
def test_held_out_text_is_read_once_for_a_score(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[float] = []

    def counted(original: Callable[[LanguageJob], dict[str, float]]) -> Callable[[LanguageJob], dict[str, float]]:
        def losses(job: LanguageJob) -> dict[str, float]:
            values = original(job)
            read.append(values["loss"])
            return values

        return losses

    monkeypatch.setattr(LanguageJob, "valid_losses", counted(LanguageJob.valid_losses))
    text = tmp_path / "text.txt"
    text.write_text("a few words and more of them\n" * 300, encoding="utf-8")
    settings = [f'data.train=["{text}"]', "data.text.kind=char", "validation.every=2", "validation.score_every=2"]
    run = change(RECIPES[recipe].make(), [*settings, *SMALL, *OF_EACH[recipe]])
    outcome = train_language_model(run, tmp_path, Log(tmp_path, quiet=True))
    assert len(read) == 3  # twice on the way, and the chosen weights
    assert outcome.scores["validation loss"] == round(min(read[:2]), 4) == round(read[2], 4)
