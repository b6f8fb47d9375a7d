"""Work side by side: results in order, torch's number of threads as it was, errors in their turn."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch

from headway.generate.cores import on_every_core


@pytest.fixture
def three_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def noted(number: int, seen: dict[int, tuple[str, int]]) -> int:
    seen[number] = (threading.current_thread().name, torch.get_num_threads())
    return number * number


@pytest.mark.usefixtures("three_threads")
def test_results_come_in_order_from_threads_of_one_core_each() -> None:
    seen: dict[int, tuple[str, int]] = {}
    assert list(on_every_core([partial(noted, n, seen) for n in range(20)])) == [n * n for n in range(20)]
    assert {threads for _, threads in seen.values()} == {1}
    assert all(name.startswith("core") for name, _ in seen.values())
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_an_error_is_raised_in_its_turn_and_the_rest_is_not_begun() -> None:
    seen: dict[int, tuple[str, int]] = {}
    works = [partial(noted, 0, seen), partial(divmod, 1, 0), *(partial(noted, n, seen) for n in range(1, 500))]
    found = on_every_core(works)  # type: ignore[arg-type]
    assert next(found) == 0
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert torch.get_num_threads() == 3


def test_one_piece_runs_where_it_was_asked_for() -> None:
    seen: dict[int, tuple[str, int]] = {}
    assert list(on_every_core([partial(noted, 2, seen)])) == [4]
    assert seen[2][0] == threading.current_thread().name
