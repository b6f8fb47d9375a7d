"""One tiny model for all tests of the command line, and two ways to call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calling import Answer, Headway, World

from headway.cli.app import main
from small_world import surroundings, write_pairs


@pytest.fixture
def headway(capsys: pytest.CaptureFixture[str]) -> Headway:
    """The command in this process: much quicker than a new one."""

    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Answer(left.value.code, out, err)

    return call


@pytest.fixture
def refuses(headway: Headway) -> Callable[..., str]:
    """Exit code 2 and one line on stderr, which it returns; progress lines before it are not looked at."""

    def call(*arguments: object, after_work: bool = False) -> str:
        answer = headway(*arguments)
        assert answer.code == 2, answer
        if after_work:
            return Answer(2, answer.out, answer.err.splitlines(keepends=True)[-1]).line
        return answer.line

    return call


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def apart(cache: Path) -> Iterator[None]:
    with surroundings(cache):
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> World:
    root = tmp_path_factory.mktemp("world")
    found = World(root)
    write_pairs(root, 300, 20, 20)
    with surroundings(cache), pytest.raises(SystemExit) as left:
        main([str(a) for a in found.train(found.run, "--set", "engine.steps=150", "engine.tensorboard=true")])
    assert left.value.code == 0
    return found
