"""How much of the harness is run: a short round in `make test`, about N times as much with HEADWAY_FUZZ=N."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

ROUNDS = int(os.environ.get("HEADWAY_FUZZ", "1"))


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One thread: a forked child has none but the one that called fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
