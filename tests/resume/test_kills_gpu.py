"""The same on a GPU in bfloat16, with algorithms that give the same bits each time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killing import TRANSLATE, Place, result

LONGER = (
    *TRANSLATE, "engine.steps=600", "engine.log=20", "engine.checkpoint=40", "engine.snapshot=50",
    "validation.every=100", "validation.score_every=200", "model.width=64", "model.inner=128",
    "engine.deterministic=true",
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("speed", ["graphs", "compile"])
def test_three_kills_change_nothing_on_a_gpu(tmp_path: Path, speed: str) -> None:
    place = Place.make(tmp_path, "cuda")
    settings = (*LONGER, f"engine.speed={speed}")
    place.finish(place.command("undisturbed", settings), limit=300)
    command = place.command("killed", settings)
    dice = random.Random(3)
    said = [place.kill_during(command, "killed", moment, dice) for moment in ("step", "validation", "checkpoint")]
    said.append(place.finish(command, limit=300))
    assert sum("going on from step" in lines for lines in said) > 0
    a, b = result(tmp_path / "undisturbed"), result(tmp_path / "killed")
    assert a["log"] == b["log"]
    assert a == b
