"""What tests of training share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from small_world import surroundings


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with surroundings(tmp_path_factory.mktemp("cache")):
        yield
