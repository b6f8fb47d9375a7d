"""`headway cost`: a recipe, a run, a model, layers and published figures, told in tables and as JSON."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from calling import Headway, World

from headway.folder import read_model

Refuses = Callable[..., str]
SMALL = ("--set", "model.layers=2", "model.width=16", "model.heads=2", "data.text.size=300")


@pytest.fixture
def plain(headway: Headway) -> Callable[..., Any]:
    def call(*arguments: object) -> Any:
        answer = headway("cost", *arguments, "--json")
        assert answer.code == 0 and answer.err == "", answer
        return json.loads(answer.out)

    return call


def test_a_recipe_at_several_lengths(headway: Headway, plain: Any) -> None:
    found = plain("gpt", *SMALL, "--length", 8, 16, "--batch-size", 2)
    assert [(one["length"], one["batch"]) for one in found["costs"]] == [(8, 2), (16, 2)]
    assert found["costs"][1]["flops"] > 2 * found["costs"][0]["flops"] > 0
    assert found["footprint"] is None and found["family"] == "gpt"
    told = headway("cost", "gpt", *SMALL, "--length", 8, 16).out
    for words in (f"{found['parameters']:,} parameters", "decoder.attention.qkv", "longest path"):
        assert words in told


def test_a_run_is_counted_as_the_model_it_has_and_timed_by_its_log(world: World, plain: Any, headway: Headway) -> None:
    model = read_model(world.run).model
    card = json.loads((world.model / "headway.json").read_text(encoding="utf-8"))
    stated = ("--watts", 100, "--devices", 2, "--pue", 1.5, "--carbon", 0.5, "--price", 3)
    for place in (world.run, world.model):
        found = plain(place, "--length", 5, "--source-length", 7, *stated)
        assert found["parameters"] == sum(weight.numel() for weight in model.parameters())
        assert (found["costs"][0]["length"], found["costs"][0]["source_length"]) == (5, 7)
        used, hours = found["footprint"], card["score"]["training seconds"] / 3600
        assert used["seconds"] == card["score"]["training seconds"]
        assert used["kwh"] == pytest.approx(1.5 * 2 * 100 * hours / 1000)
        assert used["kg"] == pytest.approx(used["kwh"] * 0.5) and used["cost"] == pytest.approx(2 * 3 * hours)
    told = headway("cost", world.run, *stated).out
    assert "kWh at 100 W a device and a PUE of 1.5" in told and "flight of one passenger" in told


def test_a_run_without_a_model_is_counted_from_its_description(world: World, plain: Any, tmp_path: Path) -> None:
    for name in ("run.json", "log.jsonl"):
        shutil.copy(world.run / name, tmp_path / name)
    found = plain(tmp_path, "--length", 4)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    logged = max(row["seconds"] for row in rows if row["event"] in ("train", "validation"))
    assert found["family"] == "transformer" and found["footprint"]["seconds"] == logged
    assert plain(tmp_path / "run.json", "--length", 4)["footprint"] is None


def test_seconds_may_be_stated(plain: Any) -> None:
    used = plain("gpt", *SMALL, "--length", 4, "--seconds", 3600, "--watts", 1000)["footprint"]
    assert (used["kwh"], used["kg"], used["cost"]) == (1.0, None, None)


def test_layers_show_the_lectures_examples(headway: Headway, plain: Any) -> None:
    found = {(one["name"], one["length"]): one for one in plain("layers")}
    assert found["RNN", 100]["formula"] == 10**8 and found["attention, core alone", 1000]["formula"] == 10**9
    told = headway("cost", "layers", "--length", 50, "--width", 8, "--window", 4).out
    assert "L = 50, d = 8, k = 4" in told and "4·L·d² + 2·L²·d" in told


@pytest.mark.long
def test_bert_and_the_energy_table(headway: Headway, plain: Any) -> None:
    assert plain("bert-base")["parameters"] == 109_482_240
    assert "335,141,888 parameters" in headway("cost", "bert-large", "--length", 16, 32).out
    told = headway("cost", "energy").out
    assert "misprinted 146,048, must be 146,848" in told and "misprinted 32,623, must be 32,633" in told
    assert len(plain("energy")["published"]) == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt", "--length", 0], ["--length"]),
        (["gpt", "--length", -5], ["--length"]),
        (["gpt", *SMALL, "--length", 9999], ["length 9999 is too long", "256"]),
        (["gpt2-124", "--length", 8], ["no 'gpt2-124'", "did you mean 'gpt2-124m'"]),
        (["gpt", *SMALL, "--watts", 300], ["--seconds"]),
        (["gpt", *SMALL, "--seconds", 5, "--watts", -300], ["--watts"]),
        (["gpt", *SMALL, "--dtype", "bfloat"], ["did you mean 'bfloat16'"]),
        (["gpt", *SMALL, "--source-length", 4], ["no source"]),
        (["gpt", "--width", 8], ["--width", "headway cost layers"]),
        (["gpt", "--set", "model.layer=3"], ["model.layer", "layers"]),
        (["layers", "--window", 1], ["window of 1"]),
        (["layers", "--watts", 3], ["takes no --watts"]),
        (["energy", "--length", 3], ["takes no --length"]),
    ],
)
def test_what_cannot_be_is_one_line(refuses: Refuses, arguments: list[object], words: list[str]) -> None:
    line = refuses("cost", *arguments)
    assert all(word in line for word in words), line


def test_folders_without_a_model_and_settings_of_one_that_is_trained(
    refuses: Refuses, world: World, tmp_path: Path
) -> None:
    assert "is no model (headway.json is missing)" in refuses("cost", tmp_path)
    assert "--set changes a recipe" in refuses("cost", world.run, "--set", "model.width=8")
    (tmp_path / "text.json").write_text("no run", encoding="utf-8")
    assert "cannot be read as a run" in refuses("cost", tmp_path / "text.json")


def test_the_tables_of_the_lecture_need_no_torch() -> None:
    script = (
        "import sys\nfrom headway.cli.app import main\ntry:\n    main(['cost', 'energy'])\nfinally:\n"
        "    print('torch' in sys.modules, file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300, check=True)
    assert answer.stderr == b"False\n"


@pytest.mark.long
def test_the_page_shows_what_the_command_says(headway: Headway) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cost.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```console\n\$ headway ([^\n]*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(shown) == 5
    for command, text in shown:
        said = headway(*shlex.split(command)).out.splitlines()
        assert [line for line in text.splitlines() if line != "…" and line not in said] == [], command
