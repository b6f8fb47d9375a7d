"""benchmarks/all.py: pieces are done once, goes on where it was stopped, and says what it leaves out."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
COUNTS = (
    "import pathlib, sys\np = pathlib.Path(sys.argv[1]); p.write_text(p.read_text() + 'x' if p.exists() else 'x')\n"
)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("all")
    monkeypatch.setattr(module, "HERE", tmp_path)
    (tmp_path / "counts.py").write_text(COUNTS)
    (tmp_path / "fails.py").write_text("raise SystemExit('no luck')\n")
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(60)\n")
    return module


def call(script: Any, pieces: list[Any], place: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(script, "PIECES", {"cpu": pieces})
    monkeypatch.setattr(sys, "argv", ["all.py", "--device", "cpu", "--runs", str(place / "runs"), *words])
    return int(script.main())


def test_a_piece_is_done_once_and_what_fails_is_tried_again(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = script.Piece("one", f"counts.py {tmp_path}/seen", 1)
    pieces = [counted, script.Piece("two", "fails.py", 1), script.Piece("three", "counts.py x", 1, ("data:nothing",))]
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    assert call(script, pieces, tmp_path, monkeypatch) == script.MORE
    said = capsys.readouterr().out
    assert "two: failed (no luck)" in said and "three: left out, it needs the data nothing" in said
    assert call(script, pieces, tmp_path, monkeypatch) == script.MORE
    assert (tmp_path / "seen").read_text() == "x"
    assert list(json.loads((tmp_path / "runs" / "all-cpu.json").read_text())) == ["one"]
    assert call(script, [counted], tmp_path, monkeypatch, "--again") == 0
    assert (tmp_path / "seen").read_text() == "xx"


def test_what_runs_over_is_stopped_and_what_would_is_not_begun(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "SHORTEST", 0)
    pieces = [script.Piece("long", "counts.py x", 5), script.Piece("trains", "sleeps.py", 5, resumes=True)]
    assert call(script, pieces, tmp_path, monkeypatch, "--minutes", "0.01") == script.MORE
    said = capsys.readouterr().out
    assert "long: not begun" in said and "trains: stopped" in said


def test_pieces_that_share_the_machine_run_at_the_same_time(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of two waits for the other; the one that measures times comes when both have ended, and one that fails stops
    no other."""
    meets = (
        "import pathlib, sys, time\nme, other = map(pathlib.Path, sys.argv[1:3])\nme.write_text('')\n"
        "end = time.monotonic() + 60\n"
        "while not other.exists():\n    assert time.monotonic() < end\n    time.sleep(0.05)\n"
    )
    (tmp_path / "meets.py").write_text(meets)
    (tmp_path / "follows.py").write_text(
        "import pathlib, sys\nassert all(pathlib.Path(p).exists() for p in sys.argv[1:3])\n"
    )
    a, b = tmp_path / "a", tmp_path / "b"
    pieces = [
        script.Piece("times", f"follows.py {a} {b}", 1),
        script.Piece("fails", "fails.py", 1, resumes=True),
        script.Piece("one", f"meets.py {a} {b}", 1, resumes=True),
        script.Piece("two", f"meets.py {b} {a}", 1, shares=True),
    ]
    assert call(script, pieces, tmp_path, monkeypatch, "--at-once", "3") == script.MORE
    assert "fails: failed" in capsys.readouterr().out
    assert set(json.loads((tmp_path / "runs" / "all-cpu.json").read_text())) == {"times", "one", "two"}


def test_some_pieces_run_in_the_order_they_were_named(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = [script.Piece(name, f"counts.py {tmp_path}/{name}", 1) for name in ("one", "two", "three")]
    assert call(script, pieces, tmp_path, monkeypatch, "--only", "three", "one") == 0
    assert list(json.loads((tmp_path / "runs" / "all-cpu.json").read_text())) == ["three", "one"]
