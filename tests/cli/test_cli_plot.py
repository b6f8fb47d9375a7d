"""`headway plot`: a picture of real logs, a few words on them, and one line for whatever is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Headway, World

Refuses = Callable[..., str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def a_log(folder: Path, *rows: dict[str, object], end: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + end, encoding="utf-8")
    return folder


def test_a_real_run_is_drawn_into_its_folder_and_told(headway: Headway, world: World, here: Path) -> None:
    (here / "run").mkdir()
    (here / "run/log.jsonl").write_bytes((world.run / "log.jsonl").read_bytes())
    answer = headway("plot", "run")
    assert answer.code == 0 and answer.err == ""
    told, where = answer.out.splitlines()
    assert told.startswith("run: step 150, loss ") and "(validation " in told and "best BLEU " in told
    assert where == "picture: run/curves.png"
    assert (here / "run/curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_the_suffix_chooses_the_kind(headway: Headway, world: World, here: Path, suffix: str, begins: bytes) -> None:
    answer = headway("plot", world.run, "--value", "bleu", "--out", f"a.{suffix}")
    assert answer.code == 0 and (here / f"a.{suffix}").read_bytes().startswith(begins)


def test_several_runs_are_told_in_order_also_one_that_has_not_begun(headway: Headway, here: Path) -> None:
    a_log(here / "b", {"event": "train", "step": 50, "loss": 2.5}, end='{"event": "train", "step": 100, "lo')
    a_log(here / "a", {"event": "train", "step": 1000, "loss": float("nan"), "tokens": 12000})
    a_log(here / "new")
    answer = headway("plot", "b", "a", "new", "b", "--out", "all.png")
    assert answer.code == 0 and answer.err == ""
    assert answer.out.splitlines() == [
        "b: step 50, loss 2.5",
        "a: step 1,000, loss nan",
        "new: nothing logged yet",
        "picture: all.png",
    ]
    assert "b: step 50, loss 2.5, no tokens\n" in headway("plot", "b", "a", "--value", "tokens").out


def test_a_line_inside_the_log_that_cannot_be_read_is_named(headway: Headway, here: Path) -> None:
    run = a_log(here / "run", {"event": "train", "step": 50, "loss": 2.5}, end="{cut\n")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"event": "train", "step": 100, "loss": 2.0}\n')
    answer = headway("plot", "run")
    assert answer.code == 0 and "step 100" in answer.out
    assert answer.err == "headway: run/log.jsonl: left out what cannot be read, line 2\n"


def test_wrong_use_is_one_line_and_draws_nothing(refuses: Refuses, here: Path) -> None:
    a_log(here / "run", {"event": "train", "step": 50, "loss": 2.5})
    a_log(here / "new")
    (here / "folder").mkdir()
    assert refuses("plot", "nowhere") == "there is no folder nowhere"
    assert "log.jsonl is missing" in refuses("plot", "folder")
    assert "is a file" in refuses("plot", "run/log.jsonl")
    assert refuses("plot", "run", "--value", "bleu") == "no value 'bleu' was logged; there is: loss"
    assert "new has not logged a step yet" in refuses("plot", "new")
    assert ".png, .svg or .pdf" in refuses("plot", "run", "--out", "a.html")
    assert "no folder 'no'" in refuses("plot", "run", "--out", "no/a.png")
    assert "headway plot" in refuses("plot")
    assert not [*here.rglob("*.png"), *here.rglob("*.html")]


def test_it_draws_without_torch(here: Path) -> None:
    a_log(here / "run", {"event": "train", "step": 50, "loss": 2.5})
    script = (
        "import sys\nfrom headway.cli.app import main\ntry:\n    main(['plot', 'run'])\nfinally:\n"
        "    print('torch' in sys.modules, file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300, check=True)
    assert answer.stderr == b"False\n"
