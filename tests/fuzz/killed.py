"""Kill a command before one of its file operations or at a random moment, call it again, and compare with what it gives
undisturbed."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked import Outcome, call, load_modules
from worlds import World, result


@dataclass
class Killing:
    """A world in a folder, with what its command gives undisturbed."""

    world: World
    root: Path
    more: tuple[str, ...] = ()  # further words of the command
    operations: list[str] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # undisturbed

    def prepare(self) -> Killing:
        self.world.make(self.root)
        load_modules(self.world.train("first"), self.root, self._environment("first"))
        outcome = self._call("undisturbed")
        assert outcome.code == 0, outcome.err
        self.operations, self.expected = outcome.operations, result(self.root / "undisturbed")
        self.seconds = outcome.seconds
        return self

    def _environment(self, name: str) -> dict[str, str]:
        return {"HEADWAY_CACHE": str(self.root / f"{name}-cache"), "HEADWAY_DATA": ""}

    def _call(self, name: str, kill_at: int | None = None, seconds: float = 120) -> Outcome:
        command, environment = self.world.train(name, *self.more), self._environment(name)
        watch = self.root
        return call(command, cwd=watch, watch=watch, kill_at=kill_at, environment=environment, seconds=seconds)

    def before(self, operation: int) -> str | None:
        """What is wrong after a kill before this file operation and the same command again; None: nothing."""
        what = self.operations[operation] if operation < len(self.operations) else "the end"
        return self._fault(f"killed-{operation}", f"{operation} ({what})", kill_at=operation)

    def at_random(self, seed: int) -> str | None:
        """The same after a kill at a random moment."""
        seconds = random.Random(seed).uniform(0, self.seconds)
        return self._fault(f"killed-at-random-{seed}", f"after {seconds:.2f} s", seconds=seconds)

    def _fault(self, name: str, when: str, **kill: Any) -> str | None:
        try:
            first = self._call(name, **kill)
            if not (first.killed or first.late) and first.code != 0:
                return f"{when}: exit {first.code} before the kill: {first.err[-300:]}"
            second = self._call(name)
            if second.code != 0:
                return f"{when}: the same command gave {second.code}: {second.err[-300:]}"
            found = result(self.root / name)
            wrong = [key for key in self.expected if found[key] != self.expected[key]]
            if wrong:
                told = sorted(set(found["files"]) ^ set(self.expected["files"])) if wrong == ["files"] else wrong
                return f"{when}: differs in {told}"
            own = (name, f"{name}-cache")
            left = [path.name for path in self.root.iterdir() if name in path.name and path.name not in own]
            return f"{when}: left behind {left}" if left else None
        finally:
            for path in self.root.glob(f"*{name}*"):
                shutil.rmtree(path, ignore_errors=True)
