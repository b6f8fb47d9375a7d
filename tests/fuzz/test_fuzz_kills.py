"""A run of every task, killed before a file operation: the same command finishes it, with the same bits. So do runs of
several processes that are killed at a random moment.

A short round kills at a few places of every sixth; HEADWAY_FUZZ=N kills all at N times as many, and once there are no
more, at random moments. Runs of several processes are killed at random moments, all processes or one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attacked import drawn
from forked import ROUNDS, Record
from killed import Killing
from ranks_killed import Processes
from worlds import WORLDS

KILLS = 2  # of each task, in a short round


@pytest.mark.parametrize("name", drawn(WORLDS))
def test_a_killed_run_is_finished_by_the_same_command(name: str, tmp_path: Path, record_property: Record) -> None:
    killing = Killing(WORLDS[name], tmp_path).prepare()
    count = len(killing.operations)
    wanted = min(KILLS * ROUNDS, count)
    places = [int((number + 0.5) * count / wanted) for number in range(wanted)]
    seeds = range(KILLS * ROUNDS - wanted)
    record_property("cases", len(places) + len(seeds))
    faults = [fault for place in places if (fault := killing.before(place))]
    faults += [fault for seed in seeds if (fault := killing.at_random(seed))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("count", [2, 3] if ROUNDS > 1 else [2])
def test_a_killed_run_of_several_processes_is_finished_by_the_same_command(
    count: int, tmp_path: Path, record_property: Record
) -> None:
    record_property("cases", ROUNDS)
    processes = Processes(count, tmp_path).prepare()
    faults = [fault for seed in range(ROUNDS) if (fault := processes.fault(seed))]
    assert not faults, "\n".join(faults)
