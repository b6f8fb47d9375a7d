"""Runs on several processes: by torchrun, or started here, many one after another in the same processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from killing import Place
from torch import nn

TESTS = Path(__file__).parent.parent
"""Where `small_world` is: a process started here must find it as pytest does."""


def surroundings(place: Place) -> dict[str, str]:
    found = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))
    cache = {"PYTHONPATH": found, "HEADWAY_CACHE": str(place.root / "cache"), "OMP_NUM_THREADS": "1"}
    return os.environ | cache | {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}


def torchrun(place: Place, command: list[str], processes: int, *options: str) -> subprocess.Popen[str]:
    """A command of `Place.command`, started by torchrun."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), *options]
    return subprocess.Popen(
        [command[0], *launcher, *command[1:]], cwd=place.root, env=surroundings(place), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def start(
    place: Place, processes: int, *commands: list[str], own: Mapping[int, dict[str, str]] | None = None
) -> list[subprocess.Popen[str]]:
    """Processes that run commands of `Place.command` one after another; `own` is what differs for a rank."""
    jobs = json.dumps([[_free_port(), command[3:]] for command in commands])
    started = []
    for rank in range(processes):
        place_of_it = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        around = surroundings(place) | place_of_it | (own or {}).get(rank, {})
        started.append(
            subprocess.Popen(
                [sys.executable, __file__, jobs], cwd=place.root, env=around, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
            )
        )  # fmt: skip
    return started


def together(place: Place, processes: int, *commands: list[str], limit: float = 180) -> list[str]:
    """What each process said. All must succeed."""
    started = start(place, processes, *commands)
    said = [running.communicate(timeout=limit)[0] for running in started]
    assert [running.returncode for running in started] == [0] * processes, "\n".join(said)
    return said


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def workers(launcher: int) -> dict[int, int]:
    """Process numbers by rank of what torchrun has started."""
    found = {}
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        for entry in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"RANK="):
                found[int(entry.removeprefix(b"RANK="))] = int(child)
    return found


def wait_for(path: Path, running: subprocess.Popen[str], limit: float = 90) -> None:
    end = time.monotonic() + limit
    while not path.exists() and running.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    assert path.exists(), path


def events(folder: Path, kind: str = "train") -> dict[int, dict[str, Any]]:
    """Those of a kind in a run's log, by step."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return {event["step"]: event for event in map(json.loads, lines) if event["event"] == kind}


def check_sharded_masters() -> None:
    """Clipped Adam on rows of weights, some processes having none, against the same on whole weights."""
    from torch.distributed.fsdp import fully_shard

    from headway.train.optimiser import Adam, Masters
    from headway.train.parallel.processes import joined
    from headway.train.parallel.ranks import local

    with joined(torch.device("cpu")) as ranks:
        torch.manual_seed(0)
        plain, sharded = (nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 2)) for _ in range(2))
        sharded.load_state_dict(plain.state_dict())
        fully_shard(sharded)
        theirs = Masters(plain.named_parameters(), Adam(), clip=0.1)
        mine = Masters(sharded.named_parameters(), Adam(), clip=0.1, ranks=ranks)
        rows = {name: len(local(weight)) for name, weight in sharded.named_parameters()}
        assert rows["0.weight"] == (3, 3, 1)[ranks.rank] and rows["1.weight"] == (1, 1, 0)[ranks.rank]
        for step in range(4):
            x = torch.randn(6, 5)
            for model, masters in ((plain, theirs), (sharded, mine)):
                masters.set_rate(0.1)
                masters.zero()
                loss = model(x).square().sum()
                loss.backward()
            loss = loss * (float("nan") if step == 2 and ranks.rank == 1 else 1.0)
            norm, bad = mine.step(loss)
            assert bad == (step == 2)  # what is not finite in one process is skipped in all
            if step != 2:
                torch.testing.assert_close(norm, theirs.step()[0])
        whole = mine.named()
        assert set(whole) == (set(theirs.names) if ranks.first else set())
        for name, weight in whole.items():
            torch.testing.assert_close(weight, theirs.named()[name])
        state = theirs.state()
        mine.resume(state)
        for name, master in zip(mine.names, mine.masters, strict=True):
            begin = mine.shards()[name]["start"]
            assert torch.equal(master, state["weights"][name][begin : begin + len(master)])


def check_the_end_of_a_group() -> None:
    """Its threads are gone with it, whatever they were doing: one that is left aborts a process that ends."""
    from headway.train.parallel.processes import joined

    with joined(torch.device("cpu")) as ranks:
        for _ in range(3000):
            dist.all_reduce(torch.ones(10), group=ranks.group, async_op=True)
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert "python" in " ".join(names) and "pt_gloo_runloop" not in names, names


def main() -> None:
    from headway.cli.app import main as headway

    for port, arguments in json.loads(sys.argv[1]):
        os.environ["MASTER_PORT"] = str(port)
        if own := {"masters": check_sharded_masters, "end": check_the_end_of_a_group}.get(arguments[0]):
            own()
            continue
        try:
            headway(arguments)
        except SystemExit as end:
            if end.code:
                raise


if __name__ == "__main__":
    main()
