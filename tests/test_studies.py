"""The experiments on parts: rows are kept and resumed, tables and pictures are made of them."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def rows_of(folder: Path, **case: Any) -> Any:
    options = argparse.Namespace(device="cpu", out=str(folder))
    return importlib.import_module("rows").Rows("study", options, {"steps": 2} | case)


def test_rows_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    first = rows_of(tmp_path)
    first.add({"depth": 2}, lambda: {"loss": 1.0})
    again = rows_of(tmp_path)
    again.add({"depth": 2}, lambda: pytest.fail("made twice"))
    again.add({"depth": 4}, lambda: {"loss": 2.0})
    again.write(lambda rows, path: path.write_text(str(len(rows))))
    record = json.loads((tmp_path / "study-cpu.json").read_text())
    assert record["rows"] == [{"depth": 2, "loss": 1.0}, {"depth": 4, "loss": 2.0}]
    assert (tmp_path / "study-cpu.svg").read_text() == "2" and not (tmp_path / "study-cpu.part").exists()


def test_other_settings_begin_anew(tmp_path: Path) -> None:
    rows_of(tmp_path).add({"depth": 2}, lambda: {"loss": 1.0})
    assert rows_of(tmp_path, width=8).all == [] != rows_of(tmp_path).all


def test_a_study_is_a_table_and_its_picture(tmp_path: Path) -> None:
    table = importlib.import_module("table")
    rows = [
        {"norm": norm, "depth": depth, "loss": depth + 0.25, "ratio": None if norm == "none" else 0.5}
        for norm in ("pre", "none")
        for depth in (2, 48)
    ]
    record = {"machine": "m", "date": "d", "rows": rows}
    (tmp_path / "depth-cuda.json").write_text(json.dumps(record))
    (tmp_path / "depth-cuda.svg").write_text("")
    assert table.study(tmp_path, "rates") == []
    facts, shown, picture = table.study(tmp_path, "depth")
    assert facts == "m (d)." and "(../benchmarks/results/depth-cuda.svg)" in picture
    assert shown.splitlines()[0] == "|  | 2 layers | 48 layers | first gradient over last, 48 layers |"
    assert shown.splitlines()[2:] == ["| pre | 2.25 | 48.25 | 0.5 |", "| none | 2.25 | 48.25 |  |"]


def test_panels_are_drawn_with_gaps_and_one_colour_a_name(tmp_path: Path) -> None:
    panels = importlib.import_module("panels")
    first = panels.Panel("loss", {"a": [(1, 2.0), (2, None), (4, 9.0)]}, "x", (1, 2, 4), high=5.0)
    second = panels.Panel("norm", {"b": [(1, 1e-3), (2, 10.0)]}, "step", log_x=False, log_y=True)
    panels.draw([first, second], tmp_path / "p.svg")
    said = (tmp_path / "p.svg").read_text()
    colours = [panels.style(number)["color"] for number in range(2)]
    assert all(colour in said for colour in colours) and panels.style(2)["color"] not in said


def test_the_loops_compute_what_the_matrices_do() -> None:
    torch, matrix = importlib.import_module("torch"), importlib.import_module("matrix")
    torch.manual_seed(0)
    given = [torch.randn(7, 8, dtype=torch.float64) for _ in range(3)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*(part[None] for part in given))[0]
    for way in matrix.WAYS.values():
        torch.testing.assert_close(way(*given), wanted, rtol=0, atol=1e-12)
