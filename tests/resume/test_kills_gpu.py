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


# Every start compiles anew, some 40 s: fewer steps and, of one shape of batch, fewer compilations.
SHORTER = ("engine.steps=160", "engine.log=10", "engine.checkpoint=20", "engine.batch=16384")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("speed", "moments"),
    [("graphs", ("step", "validation", "checkpoint")), ("compile", ("step", "step", "step"))],
    ids=["graphs", "compile"],
)
def test_three_kills_change_nothing_on_a_gpu(tmp_path: Path, speed: str, moments: tuple[str, ...]) -> None:
    place = Place.make(tmp_path, "cuda")
    settings = (*LONGER, *(SHORTER if speed == "compile" else ()), f"engine.speed={speed}")
    place.finish(place.command("undisturbed", settings), limit=300)
    command = place.command("killed", settings)
    dice = random.Random(3)
    said = [place.kill_during(command, "killed", moment, dice) for moment in moments]
    said.append(place.finish(command, limit=300))
    assert sum("resuming from step" in lines for lines in said) > 0
    a, b = result(tmp_path / "undisturbed"), result(tmp_path / "killed")
    assert a["log"] == b["log"]
    assert a == b
