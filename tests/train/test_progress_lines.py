"""Lines of progress where there is no terminal: how much is done, of how much, and what is left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headway.train import log as module
from headway.train.log import Log


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def test_what_is_left_counts_from_where_a_run_went_on_and_follows_a_new_total(clock: list[float]) -> None:
    log, heard = Log(quiet=True), io.StringIO()
    log.console = Console(file=heard, width=200)
    with log.bar("training", 1000, " steps") as show:
        show(500)  # went on from there
        for done, total in ((510, None), (520, None), (530, 600)):
            clock[0] += 6.0
            show(done, "loss 1.0", total)
    assert heard.getvalue().splitlines() == [
        "training 510 of 1,000 steps loss 1.0, 4 min 54 s left",
        "training 520 of 1,000 steps loss 1.0, 4 min 48 s left",
        "training 530 of 600 steps loss 1.0, 42 s left",
    ]
