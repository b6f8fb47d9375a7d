"""Options have the names that people type elsewhere; earlier names still work, and help does not show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calling import DEVICE, Headway, World, write

from headway.cli.app import EARLIER, renamed


@pytest.mark.parametrize("command", sorted(EARLIER))
def test_help_shows_todays_name_of_an_option_alone(headway: Headway, command: str) -> None:
    shown = headway(command, "--help").out.split()
    for earlier, name in EARLIER[command].items():
        assert name in shown and earlier not in shown


def test_an_earlier_name_gives_what_todays_gives(headway: Headway, world: World) -> None:
    source, _ = world.files("test")
    today = headway("translate", world.run, source, "--beam-size", 2, "--batch-size", 7, *DEVICE)
    assert today.code == 0 and today.out
    assert headway("translate", world.run, source, "--beam", 2, "--batch=7", *DEVICE).out == today.out
    assert renamed(["generate", "m", "--tokens=5"]) == ["generate", "m", "--max-new-tokens=5"]
    assert renamed(["compare", "gpt", "--tokens", "2M"]) == ["compare", "gpt", "--tokens", "2M"]  # a budget


def test_train_has_short_names_for_the_settings_of_every_run(headway: Headway, world: World, tmp_path: Path) -> None:
    short = ["--lr", "0.002", "--steps", 7, "--batch-size", 500, "--seed", 3]
    answer = headway("train", "translate", *world.data, *DEVICE, *short, "--set", "engine.seed=4", "--dry-run")
    assert answer.code == 0, answer.err
    run = json.JSONDecoder().raw_decode(answer.out)[0]
    engine = run["engine"]
    assert (run["schedule"]["peak"], engine["steps"], engine["batch"]) == (0.002, 7, 500)
    assert engine["seed"] == 4, "what --set says holds"


def test_a_short_name_is_checked_as_its_setting_is(headway: Headway, tmp_path: Path) -> None:
    text = write(tmp_path, "text.txt", ["one line of text"] * 50)
    answer = headway("train", "gpt", "--data", text, "--steps", 0, "--out", tmp_path / "x", *DEVICE)
    assert answer.code == 2 and "engine.steps must be at least 1" in answer.err
