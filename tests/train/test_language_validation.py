"""A language model is judged by one reading of the held-out text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.language import Language
from headway.train.job import train
from headway.train.log import Log

SMALL = ["model.width=8", "model.max_length=8", "engine.batch=32", "engine.steps=4", "engine.device=cpu"]
OF_EACH = {"lstm": ["model.layers=1"], "gpt": ["model.layers=1", "model.heads=2"]}


@pytest.mark.parametrize("recipe", OF_EACH)
def test_held_out_text_is_read_once_for_a_score(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[float] = []

    def counted(original: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
        def losses(task: Language, objective: nn.Module) -> dict[str, float]:
            values = original(task, objective)
            read.append(values["loss"])
            return values

        return losses

    monkeypatch.setattr(Language, "valid_losses", counted(Language.valid_losses))
    text = tmp_path / "text.txt"
    text.write_text("a few words and more of them\n" * 300, encoding="utf-8")
    settings = [f'data.train=["{text}"]', "data.text.kind=char", "validation.every=2", "validation.score_every=2"]
    run = change(RECIPES[recipe].make(), [*settings, *SMALL, *OF_EACH[recipe]])
    outcome = train(run, tmp_path, Log(tmp_path, quiet=True))
    assert len(read) == 3  # twice on the way, and the chosen weights
    assert outcome.scores["validation loss"] == round(min(read[:2]), 4) == round(read[2], 4)
