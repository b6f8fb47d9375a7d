"""Torch's global switches: what the product does with them, and that no test changes them for the next."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from headway import device

LEAKING = """
import torch

def test_one_switches_onednn_off():
    torch.backends.mkldnn.enabled = False

def test_another_finds_it_on():
    assert torch.backends.mkldnn.enabled

def test_a_third_changes_the_default_dtype():
    torch.set_default_dtype(torch.float64)
"""


def test_a_test_that_leaves_a_switch_changed_fails_and_the_next_does_not(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_leaking.py").write_text(LEAKING)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 1 and "3 passed, 2 errors" in answer.stdout, answer.stdout
    assert "left torch's global state changed: oneDNN (True before, False after)" in answer.stdout
    assert "default dtype (torch.float32 before, torch.float64 after)" in answer.stdout


@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_on_a_cpu_without_it_turns_onednn_off_before_the_first_product(
    supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    monkeypatch.setattr(device, "has_bfloat16", lambda: supported)
    device.choose("cpu", "float32")
    assert torch.backends.mkldnn.enabled
    device.choose("cpu", "bfloat16")
    assert torch.backends.mkldnn.enabled == supported


def test_products_of_bfloat16_after_it_leave_all_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    place, dtype = device.choose("cpu", "bfloat16")
    before = torch.backends.mkldnn.enabled
    hidden_ND, weight_VD = torch.ones(64, 32, dtype=dtype, device=place), torch.ones(101, 32, dtype=dtype, device=place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (hidden_ND @ weight_VD.T).unique().tolist() == [32.0]
    assert torch.backends.mkldnn.enabled == before
