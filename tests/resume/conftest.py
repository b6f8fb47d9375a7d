"""Text and one undisturbed run for all tests in this folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import World

from small_world import surroundings


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def alone(cache: Path) -> Iterator[None]:
    with surroundings(cache):
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.make(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def undisturbed(world: World, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with surroundings(cache):
        return world.train(tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """A shell starts what runs in the background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
