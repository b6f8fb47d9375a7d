"""A run that is killed again and again gives, to the last bit, what an undisturbed one gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killing import EVERYTHING, TRANSLATE, Place, result

from headway.tasks.loading import load

SETTINGS = {"translate": TRANSLATE, "everything": EVERYTHING}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


def translations(folder: Path, source: Path) -> list[str]:
    return load(folder, "cpu").translate(source.read_text(encoding="utf-8").splitlines())


def assert_equal(place: Place, found: str, undisturbed: str) -> None:
    a, b = result(place.root / undisturbed), result(place.root / found)
    assert a["log"] == b["log"]
    assert a == b
    source = place.root / "test.en"
    assert translations(place.root / found, source) == translations(place.root / undisturbed, source)


@pytest.mark.long  # tests/fuzz kills runs of every task, before each file operation
@each_setting
def test_three_kills_change_nothing(place: Place, settings: tuple[str, ...]) -> None:
    """In the middle of a step, of a validation and of a checkpoint."""
    place.finish(place.command("undisturbed", settings))
    command = place.command("killed", settings)
    dice = random.Random(len(settings))
    resumed = 0
    for moment in ("step", "validation", "checkpoint"):
        resumed += "resuming from step" in place.kill_during(command, "killed", moment, dice)
    said = place.finish(command)
    assert resumed + ("resuming from step" in said) > 0
    assert_equal(place, "killed", "undisturbed")


@pytest.mark.long
@each_setting
def test_twenty_kills_change_nothing(place: Place, settings: tuple[str, ...]) -> None:
    """At any time, the start and the end of a run too; as often as it takes until it gets to its end."""
    longer = (*settings, "engine.steps=240")
    place.finish(place.command("undisturbed", longer))
    command = place.command("killed", longer)
    dice = random.Random(len(settings))
    kills = 0
    for _ in range(20):
        if dice.random() < 0.5:
            place.kill_during(command, "killed", dice.choice(["step", "validation", "checkpoint"]), dice)
            kills += 1
        else:
            kills += place.kill_after(command, dice.uniform(0.5, 9))
    assert kills >= 15
    place.finish(command)
    assert_equal(place, "killed", "undisturbed")


def test_a_second_start_of_a_finished_run_trains_nothing(place: Place) -> None:
    command = place.command("run", (*TRANSLATE, "engine.steps=6"))
    first = place.finish(command)
    before = result(place.root / "run")
    again = place.finish(command)
    assert "finished before" in again and "step 6:" in first and "step 6:" not in again
    assert result(place.root / "run") == before
