"""The notebooks: run from top to bottom in a kernel, with a few steps; and kept with outputs of a longer run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import headway

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def code_cells(path: Path) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_all_run_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one kernel, emptied before each: most of the time is torch's import."""
    package = Path(headway.__file__).parents[1]  # the one that is tested, wherever the kernel starts
    for name, value in {
        "HEADWAY_NOTEBOOK_STEPS": "4", "OMP_NUM_THREADS": "1", "HEADWAY_CACHE": str(tmp_path),
        "PYTHONPATH": str(package),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in ("HEADWAY_DATA", "HEADWAY_TEXT"):
        monkeypatch.delenv(name, raising=False)
    assert len(NOTEBOOKS) == 4
    cells = []
    for path in NOTEBOOKS:
        sources = ["%reset -f", *(cell.source for cell in code_cells(path))]
        cells += map(nbformat.v4.new_code_cell, sources)
    notebook = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", resources=where).execute()
    shown = [output for cell in notebook.cells for output in cell.outputs if "data" in output]
    assert sum("text/html" in output.data for output in shown) >= 6  # models, traces, attention
    told = "".join(output.text for cell in notebook.cells for output in cell.outputs if output.get("name") == "stderr")
    assert "parameters on" in told and "\x1b" not in told  # lines, not the frames of a bar
    assert {"translator", "gpt", "counter"} == {path.name for path in (tmp_path / "runs").iterdir()}


@every_notebook
def test_outputs_are_kept_small_in_order_and_without_a_machines_paths(path: Path) -> None:
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert len(outputs) >= 4 and not any(output.output_type == "error" for output in outputs)
    text = path.read_text(encoding="utf-8")
    assert len(text) < 200_000 and not re.search(r"/(tmp|home|root|work|Users)/", text)


@every_notebook
def test_links_lead_somewhere(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        for target in re.findall(r"\]\(([^)\s]+)\)", cell.source if cell.cell_type == "markdown" else ""):
            assert (path.parent / target).exists(), target
