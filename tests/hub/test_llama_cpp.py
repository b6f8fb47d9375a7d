"""GGUF files that headway writes, in llama.cpp's own hands: its logits, and its quantiser."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import place
from test_gguf import CASES, IDS, made, read_by_transformers

from headway.folder import read_model
from headway.hub.gguf_export import export_gguf

pytestmark = pytest.mark.long
PACKAGES = {"aarch64": "linux-arm64", "x86_64": "linux-x64"}
Q4_K_M = 15  # llama.cpp's number of this kind of file


def called(*given: object) -> str:
    package = PACKAGES.get(platform.machine() if sys.platform == "linux" else "")
    if package is None:
        pytest.skip("llama.cpp is fetched for Linux alone")
    folder = place(f"{package}/bins/{package}")
    command = [sys.executable, str(Path(__file__).with_name("llama_cpp.py")), str(folder), *map(str, given)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"LD_LIBRARY_PATH": str(folder)}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def logits(path: Path) -> np.ndarray:
    return np.array(json.loads(called("logits", path, *IDS[0].tolist())))


@pytest.mark.parametrize("case", [case for case in CASES if case != "llama tied"])
def test_llama_cpp_computes_what_headway_computes(case: str, tmp_path: Path) -> None:
    """Its cache is float16."""
    path, _ = made(case, tmp_path)
    export_gguf(path, tmp_path / "ours.gguf", "float32")
    with torch.no_grad():
        expected = read_model(path).model(IDS)[0][0, -1].numpy()
    found = logits(tmp_path / "ours.gguf")
    assert np.abs(found - expected).max() < 4e-3 * np.abs(expected).max() and found.argmax() == expected.argmax()


def test_its_quantiser_takes_our_file_and_headway_reads_the_result(tmp_path: Path) -> None:
    path, _ = made("wide", tmp_path)
    export_gguf(path, tmp_path / "ours.gguf", "float32")
    called("quantise", tmp_path / "ours.gguf", tmp_path / "small.gguf", Q4_K_M)
    assert (tmp_path / "small.gguf").stat().st_size < 0.3 * (tmp_path / "ours.gguf").stat().st_size
    with torch.no_grad():
        found = read_model(tmp_path / "small.gguf").model(IDS)[0]
        torch.testing.assert_close(found, read_by_transformers(tmp_path / "small.gguf")(IDS).logits, rtol=0, atol=1e-5)
    expected, mine = logits(tmp_path / "small.gguf"), found[0, -1].numpy()
    # llama.cpp rounds the other factor of each product to 8 bits too.
    assert np.abs(mine - expected).max() < 0.05 * np.abs(expected).max() and mine.argmax() == expected.argmax()
