"""One thread for all that is forked here, and time for a long round."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from forked import ROUNDS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "fuzz" in item.path.parts:
            item.add_marker(pytest.mark.timeout(300 * ROUNDS))


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A forked child has none but the one that called fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
