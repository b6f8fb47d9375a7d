"""Kill a run of several processes at a random moment, all of them or one, call it again, and compare with what it gives
undisturbed."""

from __future__ import annotations

import random
import shutil
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked import Outcome, load_modules, together
from lines import EXCEPTION
from worlds import WORLDS, result


@dataclass
class Processes:
    """A run of a world with several processes, and what it comes to undisturbed."""

    count: int
    root: Path
    seconds: float = 0.0
    expected: dict[str, Any] = field(default_factory=dict)

    def prepare(self) -> Processes:
        WORLDS["translate"].make(self.root)
        load_modules(WORLDS["translate"].train("alone"), self.root, self._environment("alone"))
        start = time.monotonic()
        outcomes = self._run("undisturbed")
        assert [outcome.code for outcome in outcomes] == [0] * self.count, outcomes
        self.seconds, self.expected = time.monotonic() - start, result(self.root / "undisturbed")
        return self

    def fault(self, seed: int) -> str | None:
        """What is wrong after a kill and the same command again; None: nothing."""
        dice, name = random.Random(seed), f"killed-{seed}"
        one = dice.randrange(self.count) if dice.random() < 0.5 else None
        after, log = dice.uniform(0, self.seconds), self.root / name / "log.jsonl"
        done = f"seed {seed}, {'all' if one is None else f'rank {one}'} of {self.count} killed after {after:.2f} s"

        def killed(start: float) -> list[int]:
            # Alone, a process is killed once all have met: until then the others would wait for it.
            while time.monotonic() < start + after or (one is not None and not log.is_file()):
                time.sleep(0.002)
            return list(range(self.count)) if one is None else [one]

        try:
            first = self._run(name, killed)
            for outcome in first:
                if outcome.late or EXCEPTION.search(outcome.err):
                    return (
                        f"{done}: a process that was left {'waits' if outcome.late else 'fails'}: {outcome.err[-300:]}"
                    )
            second = self._run(name)
            if any(outcome.code for outcome in second):
                return f"{done}: the same command gave {[outcome.err[-300:] for outcome in second]}"
            found = result(self.root / name)
            wrong = [key for key in self.expected if found[key] != self.expected[key]]
            return f"{done}: differs in {wrong}" if wrong else None
        finally:
            for path in self.root.glob(f"*{name}*"):
                shutil.rmtree(path, ignore_errors=True)

    def _run(self, name: str, killed: Any = None) -> list[Outcome]:
        command = WORLDS["translate"].train(name)
        return together(command, self.count, cwd=self.root, environment=self._environment(name), killed=killed)

    def _environment(self, name: str) -> dict[str, str]:
        own = {"HEADWAY_CACHE": str(self.root / f"{name}-cache"), "HEADWAY_DATA": "", "GLOO_SOCKET_IFNAME": "lo"}
        return own | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
