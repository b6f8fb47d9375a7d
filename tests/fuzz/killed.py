"""Kill a command before one of its file operations, call it again, and compare with what it gives undisturbed."""

from __future__ import annotations

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

    def prepare(self) -> Killing:
        self.world.make(self.root)
        load_modules(self.world.train("first"), self.root, self._environment("first"))
        outcome = self._call("undisturbed")
        assert outcome.code == 0, outcome.err
        self.operations, self.expected = outcome.operations, result(self.root / "undisturbed")
        return self

    def _environment(self, name: str) -> dict[str, str]:
        return {"HEADWAY_CACHE": str(self.root / f"{name}-cache"), "HEADWAY_DATA": ""}

    def _call(self, name: str, kill_at: int | None = None) -> Outcome:
        command = self.world.train(name, *self.more)
        return call(command, cwd=self.root, watch=self.root, kill_at=kill_at, environment=self._environment(name))

    def fault(self, kill_at: int) -> str | None:
        """What is wrong after a kill before operation `kill_at` and the same command again; None: nothing."""
        name = f"killed-{kill_at}"
        before = self.operations[kill_at] if kill_at < len(self.operations) else "the end"
        try:
            first = self._call(name, kill_at)
            if not first.killed and first.code != 0:
                return f"{kill_at} ({before}): exit {first.code} before the kill: {first.err[-300:]}"
            second = self._call(name)
            if second.code != 0:
                return f"{kill_at} ({before}): the same command gave {second.code}: {second.err[-300:]}"
            found = result(self.root / name)
            wrong = [key for key in self.expected if found[key] != self.expected[key]]
            if wrong:
                told = sorted(set(found["files"]) ^ set(self.expected["files"])) if wrong == ["files"] else wrong
                return f"{kill_at} ({before}): differs in {told}"
            own = (name, f"{name}-cache")
            left = [path.name for path in self.root.iterdir() if name in path.name and path.name not in own]
            return f"{kill_at} ({before}): left behind {left}" if left else None
        finally:
            for path in self.root.glob(f"*{name}*"):
                shutil.rmtree(path, ignore_errors=True)
