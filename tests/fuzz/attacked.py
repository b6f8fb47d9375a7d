"""A good folder, damaged again and again: every command that reads it gives an answer or one clear line."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from damaged import damage
from forked import ROUNDS, Outcome, call, carried_out, load_modules
from lines import fault

T = TypeVar("T")
PLACE, OUT = "PLACE", "OUT"  # in a command: the damaged folder, and what the command writes


@dataclass(frozen=True)
class Kind:
    """make: writes a good folder. uses: commands that read it, PLACE standing for it. leave: files that stay whole."""

    make: Callable[[Path], None]
    uses: tuple[tuple[str, ...], ...]
    leave: tuple[str, ...] = ()


def drawn(kinds: Mapping[str, T], first: int = 0) -> dict[str, T]:
    """All kinds; in a short round every sixth, since making them takes longer than attacking them."""
    return dict(list(kinds.items())[first::6]) if ROUNDS == 1 else dict(kinds)


def surroundings(root: Path) -> dict[str, str]:
    return {"HEADWAY_CACHE": str(root / "cache"), "HEADWAY_DATA": ""}


def make_all(kinds: Mapping[str, Kind], root: Path) -> None:
    """The good folder of each kind, `root/NAME/good`. In a child, since what makes them may start threads, and a
    process with threads must not be forked."""

    def work() -> None:
        for name, kind in kinds.items():
            (root / name / "good").mkdir(parents=True)
            kind.make(root / name / "good")

    made = carried_out(work, root, None, None, 300, None, surroundings(root))
    assert made.code == 0, made.err


class Attacked:
    """A good folder of a kind, `root/good`, and damaged copies of it."""

    def __init__(self, kind: Kind, root: Path) -> None:
        self.kind, self.root = kind, root
        self.environment = surroundings(root)
        self.tried: set[tuple[str, ...]] = set()

    def _try(self, use: tuple[str, ...]) -> None:
        """A command must take the good folder."""
        if use not in self.tried:
            outcome = load_modules(self._words(use, "good"), self.root, self.environment)
            assert outcome.code == 0, f"{use}: {outcome.err}"
            self._remove_what_was_written()
            self.tried.add(use)

    def faults(self, seeds: Iterable[int]) -> list[str]:
        return [fault for seed in seeds for fault in self._faults_of(seed)]

    def _faults_of(self, seed: int) -> list[str]:
        place = self.root / "damaged"
        shutil.copytree(self.root / "good", place)
        done, faults = damage(place, seed, self.kind.leave), []
        # In a short round one of the commands, by turns.
        for use in self.kind.uses if ROUNDS > 1 else [self.kind.uses[seed % len(self.kind.uses)]]:
            self._try(use)
            outcome = call(
                self._words(use, "damaged"), cwd=self.root, seconds=60, memory=4 << 30, environment=self.environment
            )
            if found := fault(outcome) or self._left_behind(outcome):
                faults.append(
                    f"seed {seed}, {done}: headway {' '.join(use)}: {found}\n    {outcome.err[-400:].strip()}"
                )
            self._remove_what_was_written()
        shutil.rmtree(place)
        return faults

    def _words(self, use: tuple[str, ...], place: str) -> list[str]:
        return [word.replace(PLACE, place) for word in use]

    def _written(self) -> list[Path]:
        return [path for path in self.root.iterdir() if OUT in path.name]

    def _left_behind(self, outcome: Outcome) -> str | None:
        """Input that is refused leaves nothing where the output would have been."""
        left = [path.name for path in self._written()] if outcome.code == 2 else []
        return f"refused, and left behind {left}" if left else None

    def _remove_what_was_written(self) -> None:
        for path in self._written():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
