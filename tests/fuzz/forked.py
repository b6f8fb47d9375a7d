"""headway's command in a forked child: killed before a chosen file operation, bounded in time and memory.

A child of a process that has torch loaded starts in milliseconds. What it does to files is seen by an audit hook, which
Python calls before each operation; "before the next" is "after this one".
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from headway.cli.app import main

# How much is run: a short round in `make test`, about N times as much with HEADWAY_FUZZ=N.
ROUNDS = int(os.environ.get("HEADWAY_FUZZ", "1"))
Record = Callable[[str, object], None]  # pytest's `record_property`: how many attacks there were
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "fcntl.flock")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Outcome:
    """code: the exit status, or −N after signal N. operations: file operations below the watched folder, if any is."""

    code: int
    out: str
    err: str
    operations: list[str]
    seconds: float
    late: bool  # it was still at work at the limit

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL and not self.late


def call(
    arguments: Sequence[object], *, cwd: Path, watch: Path | None = None, kill_at: int | None = None,
    seconds: float = 120, memory: int | None = None, environment: dict[str, str] | None = None,
    stdin: Path | None = None,
) -> Outcome:  # fmt: skip
    """`headway ARGUMENTS`. watch: count the file operations below this folder; kill_at: SIGKILL before that one,
    counted from 0. memory: bytes that it may take beyond what this process has. stdin: a file that it reads."""

    def work() -> None:
        if stdin is not None:
            sys.stdin = stdin.open(encoding="utf-8")
        main([str(argument) for argument in arguments])

    return carried_out(work, cwd, watch, kill_at, seconds, memory, environment or {})


def together(
    arguments: Sequence[object], processes: int, *, cwd: Path, environment: dict[str, str], seconds: float = 120,
    killed: Callable[[float], Sequence[int]] | None = None,
) -> list[Outcome]:  # fmt: skip
    """`headway ARGUMENTS` in several processes of one run, as torchrun starts them. killed: given the time of the
    start, waits until it is time to kill, and says which of them to kill."""
    with tempfile.TemporaryDirectory() as folder:
        start, children = time.monotonic(), []
        for rank in range(processes):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
            names = _files(folder, rank)
            children.append(os.fork())
            if children[-1] == 0:
                work = partial(main, [str(argument) for argument in arguments])
                _child(work, cwd, None, None, None, environment | place, names)
        for rank in killed(start) if killed else ():
            os.kill(children[rank], signal.SIGKILL)
        found = []
        for rank, child in enumerate(children):
            code, late = _waited(child, start + seconds)
            out, err = (Path(name).read_text(encoding="utf-8") for name in _files(folder, rank)[:2])
            found.append(Outcome(code, out, err, [], time.monotonic() - start, late))
    return found


def load_modules(arguments: Sequence[object], cwd: Path, environment: dict[str, str]) -> Outcome:
    """Carry the command out in a child once, and load here what it loaded there: later children start at once."""
    names = cwd / ".modules"

    def work() -> None:
        try:
            main([str(argument) for argument in arguments])
        finally:
            names.write_text("\n".join(sys.modules), encoding="utf-8")

    outcome = carried_out(work, cwd, None, None, 600, None, environment)
    for name in names.read_text(encoding="utf-8").split("\n"):
        if name not in sys.modules and not name.startswith(("__", "torch._inductor", "tests")):
            with suppress(Exception):
                import_module(name)
    names.unlink()
    return outcome


def carried_out(
    work: Callable[[], Any], cwd: Path, watch: Path | None, kill_at: int | None, seconds: float, memory: int | None,
    environment: dict[str, str],
) -> Outcome:  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        names = _files(folder)
        sys.stdout.flush()
        sys.stderr.flush()
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            _child(work, cwd, watch, kill_at, memory, environment, names)
        code, late = _waited(child, start + seconds)
        out, err, seen = (Path(name).read_text(encoding="utf-8", errors="replace") for name in names)
    return Outcome(code, out, err, seen.splitlines(), time.monotonic() - start, late)


def _files(folder: str, rank: int = 0) -> list[str]:
    """Where a child writes; they are there even when it is killed at once."""
    paths = [Path(folder) / f"{name}-{rank}" for name in ("out", "err", "operations")]
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


def _waited(child: int, limit: float) -> tuple[int, bool]:
    late = False
    pause = 0.001
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), late
        if time.monotonic() > limit and not late:
            os.kill(child, signal.SIGKILL)
            late = True
        time.sleep(pause)
        pause = min(0.02, pause * 1.3)


def _child(
    work: Callable[[], Any], cwd: Path, watch: Path | None, kill_at: int | None, memory: int | None,
    environment: dict[str, str], names: list[str],
) -> None:  # fmt: skip
    """Never returns."""
    code = 1
    try:
        os.chdir(cwd)
        os.environ.update(environment)
        for number, name in ((1, names[0]), (2, names[1])):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
        sys.stdout, sys.stderr = (open(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))  # noqa: SIM115
        journal = os.open(names[2], os.O_WRONLY | os.O_CREAT)
        if watch is not None:
            _watch(watch.resolve(), journal, kill_at)
        if memory is not None:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _watch(root: Path, journal: int, kill_at: int | None) -> None:
    prefix, count = str(root), 0

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            if not isinstance(given[2], int) or not given[2] & WRITES:
                return
        elif event not in CHANGES:
            return
        place = given[0]
        if event == "fcntl.flock":
            place = os.readlink(f"/proc/self/fd/{place}")
        if isinstance(place, int) or not os.path.abspath(os.fsdecode(place)).startswith(prefix):
            return
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        os.write(journal, f"{event} {os.fsdecode(place)}\n".encode())

    sys.addaudithook(hook)
