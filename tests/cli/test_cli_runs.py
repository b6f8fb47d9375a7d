"""`headway runs`: each folder is told as it stands, with a line that goes on, and a broken one breaks nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from calling import Headway, World

from headway.cli.runs import ago, show
from headway.train.status import read_status

Refuses = Callable[..., str]


def a_run(
    folder: Path, *, scores: tuple[float, ...] = (), checkpoints: tuple[int, ...] = (), model: Any = None
) -> Path:
    folder.mkdir(parents=True)
    run = {"recipe": "translate", "data": {"train": ["a.en", "a.de"]}, "engine": {"steps": 1000}}
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    rows = [{"event": "validation", "step": 100 * n, "bleu": score} for n, score in enumerate(scores, 1)]
    if scores:
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for step in checkpoints:
        (folder / f"checkpoints/step-{step}").mkdir(parents=True)
        (folder / f"checkpoints/step-{step}/manifest.json").write_text("{}")
    if model is not None:
        (folder / "model").mkdir()
        (folder / "model/headway.json").write_text(json.dumps(model), encoding="utf-8")
    return folder


@pytest.fixture
def rows(headway: Headway) -> Callable[..., dict[str, dict[str, Any]]]:
    def call(*arguments: object) -> dict[str, dict[str, Any]]:
        answer = headway("runs", *arguments, "--json")
        assert answer.code == 0 and answer.err == "", answer
        return {Path(row["folder"]).name: row for row in json.loads(answer.out)}

    return call


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_real_run_is_finished_and_its_line_runs(headway: Headway, world: World, rows: Any) -> None:
    row = rows(world.run)["run"]
    card = json.loads((world.model / "headway.json").read_text(encoding="utf-8"))
    assert (row["state"], row["recipe"], row["step"], row["steps"]) == ("finished", "translate", 150, 150)
    assert (row["figure"], row["validation"], row["test"]) == ("BLEU", card["score"]["validation BLEU"], None)
    assert row["next"] == f"headway translate {world.run}"
    answer = headway(*shlex.split(row["next"])[1:], world.root / "test.en", "--device", "cpu")
    assert answer.code == 0


def test_every_state_is_told_with_how_to_go_on(here: Path, rows: Any) -> None:
    a_run(here / "runs/fresh")
    a_run(here / "runs/killed", scores=(1.0, 3.0, 2.0))
    a_run(here / "runs/stopped", scores=(5.0,), checkpoints=(200, 1000, 90))
    score = {"validation BLEU": 42.5, "test BLEU": 41.45, "steps": 800}
    a_run(here / "runs/done", scores=(50.0,), checkpoints=(800,), model={"score": score})
    found = rows()
    keys = ("state", "step", "checkpoint", "validation", "test", "next")
    again = "headway train runs/{0}/run.json --out runs/{0} --overwrite".format
    assert {name: tuple(row[key] for key in keys) for name, row in found.items()} == {
        "fresh": ("not started", None, None, None, None, again("fresh")),
        "killed": ("stopped", 300, None, 3.0, None, again("killed")),
        "stopped": ("stopped", 1000, 1000, 5.0, None, "headway train runs/stopped --resume"),
        "done": ("finished", 800, 800, 42.5, 41.45, "headway translate runs/done"),
    }


def test_a_checkpoint_that_was_not_sealed_is_none(here: Path, rows: Any) -> None:
    run = a_run(here / "runs/stopped", checkpoints=(200,))
    for name in ("step-300", ".step-400.new", "step-x"):
        (run / "checkpoints" / name).mkdir()
    (run / "checkpoints/step-x/manifest.json").write_text("{}")
    assert rows()["stopped"]["checkpoint"] == 200


def test_it_runs_while_somebody_holds_the_lock_and_looking_does_not_disturb(here: Path, rows: Any) -> None:
    run = a_run(here / "runs/one", scores=(5.0,), checkpoints=(100,))
    with (run / ".lock").open("w") as lock:
        assert rows()["one"]["state"] == "stopped"
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        row = rows()["one"]
        assert (row["state"], row["next"]) == ("running", "headway plot runs/one")
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert rows()["one"]["state"] == "stopped"
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_broken_folders_are_rows_among_the_others(headway: Headway, here: Path, rows: Any) -> None:
    a_run(here / "runs/good", scores=(5.0,))
    for name, text in (("cut", '{"recipe": '), ("list", "[]"), ("bytes", "\udcff"), ("empty", "")):
        path = a_run(here / "runs" / name) / "run.json"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    a_run(here / "runs/model", model=[])
    odd = a_run(here / "runs/odd", scores=(float("nan"),))
    (odd / "run.json").write_text('{"recipe": 3, "engine": [], "data": {"train": "\\u0000"}}')
    found = rows()
    assert {name for name, row in found.items() if row["state"] == "broken"} == {
        "cut",
        "list",
        "bytes",
        "empty",
        "model",
    }
    assert found["cut"]["problem"].startswith("runs/cut/run.json cannot be read: ") and found["cut"]["next"] is None
    assert found["model"]["problem"] == "runs/model/model/headway.json must hold an object with keys, not a list"
    assert (found["odd"]["state"], found["odd"]["recipe"], found["odd"]["validation"]) == ("stopped", None, None)
    answer = headway("runs")
    assert answer.code == 0 and len(answer.out.splitlines()) == 1 + 7


def test_runs_are_found_three_folders_deep_but_not_inside_a_run_or_hidden(
    headway: Headway, here: Path, rows: Any
) -> None:
    for name in ("a", "x/b", "x/y/c", "x/y/z/too-deep", ".a.earlier-1", "a/model/inner"):
        a_run(here / "runs" / name)
    assert set(rows()) == {"a", "b", "c"}
    assert set(rows("runs/x/y/z")) == {"too-deep"}
    answer = headway("runs", "runs/a", "runs", here / "runs/a", "--json")
    assert len(json.loads(answer.out)) == 3  # each once


def test_the_latest_run_comes_first(here: Path, rows: Any) -> None:
    for age, name in enumerate(("newest", "older", "oldest")):
        path = a_run(here / "runs" / name) / "run.json"
        os.utime(path, (time.time() - 1000 * age, time.time() - 1000 * age))
    assert list(rows()) == ["newest", "older", "oldest"]


def test_the_demo_goes_on_as_a_demo_because_its_sentences_are_in_its_folder(here: Path, rows: Any) -> None:
    for name, recipe in (("demo", "demo"), ("own", "translate")):
        path = a_run(here / name) / "run.json"
        data = {"train": [f"{name}/data/train.en", f"{name}/data/train.fr"]}
        path.write_text(json.dumps({"recipe": recipe, "engine": {"steps": 300}, "data": data}))
    assert rows("demo")["demo"]["next"] == "headway demo --out demo --overwrite --steps 300"
    assert rows("own")["own"]["next"] == "headway train own/run.json --out own-2"


def test_a_pipe_gets_aligned_lines_and_names_that_a_shell_takes(headway: Headway, here: Path) -> None:
    a_run(here / "runs/a b", scores=(5.0,))
    a_run(here / "runs/汽车", checkpoints=(12000,))
    a_run(here / os.fsdecode(b"runs/\xff\n"))
    answer = headway("runs")
    title, *lines = answer.out.splitlines()
    assert answer.code == 0 and len(lines) == 3
    [line] = [line for line in lines if "a b" in line]
    assert line.index("stopped") == title.index("state")
    command = line[title.rindex("next") :]
    assert shlex.split(command)[1:] == ["train", "runs/a b/run.json", "--out", "runs/a b", "--overwrite"]
    assert "stopped at step 12,000" in answer.out and "12,000 of 1,000" in answer.out


def test_a_terminal_gets_a_table_and_commands_that_are_never_broken_up(here: Path) -> None:
    from rich.console import Console

    runs = [a_run(here / f"a-long-name-[of]-a-run-{n}", checkpoints=(100,)) for n in range(2)]
    screen = StringIO()
    show([read_status(run.relative_to(here)) for run in runs], Console(file=screen, width=50, force_terminal=True))
    assert "headway train 'a-long-name-[of]-a-run-1' --resume\n" in screen.getvalue()
    assert "next:" in screen.getvalue()


def test_no_runs_at_all_is_no_error_unless_a_folder_was_named(headway: Headway, refuses: Refuses, here: Path) -> None:
    answer = headway("runs")
    assert (answer.code, answer.out) == (0, "") and "headway train" in answer.err
    assert headway("runs", "--json").out == "[]\n"
    assert refuses("runs", "nowhere") == "there is no folder nowhere"
    (here / "empty").mkdir()
    assert "there is no run in empty" in refuses("runs", "empty")
    (here / "file").touch()
    assert "is a file" in refuses("runs", "file")


def test_it_answers_without_torch_numpy_or_matplotlib(here: Path) -> None:
    a_run(here / "runs/a", scores=(5.0,))
    script = (
        "import sys\nfrom headway.cli.app import main\ntry:\n    main(['runs'])\nfinally:\n"
        "    print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300, check=True)
    assert answer.stderr == b"[]\n" and b"runs/a" in answer.stdout


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7300, "2 h ago"), (90_000, "1 d ago"), (9e9, "1970-01-02")],
)
def test_ages_are_told_as_a_person_does(seconds: float, told: str) -> None:
    assert ago(seconds, 86_400 + 43_200) == told
