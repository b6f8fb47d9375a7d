"""Checkpoints below `checkpoints/step-N/`: everything that a run needs to resume exactly, with checksums.

KIND-RANK.safetensors   what one process holds of a kind of tensors (weights, the optimiser's, random states)
shards-RANK.json        where its rows of a sharded tensor begin, and the whole tensor's shape
state-RANK.json         step, counters, best score, patience, random states, the run itself

Each process writes its own files; the first seals the folder when all of them are there. They can be read by any
other number of processes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from headway.atomic import replaced
from headway.errors import is_full
from headway.train import sealed
from headway.train.sealed import Broken, Say, SealedSteps, read_json, write_parts
from headway.train.writer import Named, Staged, Writer

PATIENCE = 600  # seconds for the other processes to write their parts
LAST_PATIENCE = 3  # seconds for them when the run has failed

Shards = dict[str, dict[str, Any]]  # of each sharded tensor: {"start": first row, "shape": of the whole}


class Checkpoint:
    """A verified checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.step = int(folder.name.removeprefix("step-"))

    def facts(self, rank: int = 0) -> dict[str, Any]:
        """The state of this process; empty where fewer processes wrote the checkpoint."""
        path = self.folder / f"state-{rank}.json"
        return read_json(path) if path.exists() else {}

    def own(self, kind: str, rank: int = 0) -> Named:
        """The tensors of a kind that one process wrote."""
        path = self.folder / f"{kind}-{rank}.safetensors"
        return load_file(path) if path.exists() else {}

    def kinds(self) -> list[str]:
        return sorted({path.stem.rpartition("-")[0] for path in self.folder.glob("*.safetensors")})

    def whole(self, kind: str) -> Named:
        """The tensors of a kind, assembled from the files of all processes."""
        found: Named = {}
        for path in sorted(self.folder.glob(f"{kind}-*.safetensors")):
            shards = read_json(self.folder / f"shards-{path.stem.rpartition('-')[2]}.json")
            for name, part in load_file(path).items():
                place = shards.get(name)
                if place is None or part.ndim == 0:  # Adam's count of steps is the same for all rows
                    found[name] = part
                    continue
                if name not in found:
                    found[name] = torch.empty(place["shape"], dtype=part.dtype)
                found[name][place["start"] : place["start"] + len(part)] = part
        return found


def _handed_in(place: Path, rank: int) -> Path:
    """The file by which a process gives the first one the seals of its part, empty where writing has failed; deleted
    when the whole checkpoint is sealed."""
    return place / f"seals-{rank}.json"


class Checkpoints(SealedSteps):
    """Keeps the newest `last`, and every one whose step is a multiple of `every` (0: none)."""

    def __init__(
        self, folder: Path, last: int, every: int = 0, *, writer: Writer, say: Say, rank: int = 0, processes: int = 1
    ) -> None:
        super().__init__(folder, last, writer, say)
        self.every, self.rank, self.processes = every, rank, processes
        self.before: Callable[[], None] = lambda: None  # called before a checkpoint is written
        self.unwritten = 0  # checkpoints that were taken and are still being written
        self._until = float("inf")  # the time until which other processes are waited for

    def needed_snapshots(self) -> set[int]:
        """Those that the checkpoints on the disk refer to."""
        needed: set[int] = set()
        for step in self.steps():
            with suppress(OSError, ValueError, KeyError, TypeError):  # reported when it is opened
                if facts := Checkpoint(self.place(step)).facts():
                    needed |= {step for step in (*facts["snapshots"], facts["best_snapshot"]) if step}
        return needed

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint; a broken one is reported and set aside."""
        sealed.clean(self.folder)
        for step in reversed(self.steps()):
            place = self.place(step)
            try:
                sealed.verify(place)
                self._prune()  # a killed process may have come no further than to write one more
                return Checkpoint(place)
            except Broken as error:
                self._set_aside(step, "broken", f"is broken ({error})")
        return None

    def set_aside_after(self, step: int) -> None:
        """Set aside the checkpoints after `step`, of a diverged loss, if there is an earlier one to resume from."""
        for later in self.steps():
            if later > step >= self.steps()[0]:
                self._set_aside(later, "astray", "was made when the loss had diverged")

    def _set_aside(self, step: int, name: str, why: str) -> None:
        aside = self.place(step).with_name(f"{name}-step-{step}")
        shutil.rmtree(aside, ignore_errors=True)
        self.place(step).rename(aside)
        self.say(f"the checkpoint of step {step:,} {why}: set aside as {aside.name}")

    def save(self, step: int, files: dict[str, Named], shards: Shards, facts: dict[str, Any]) -> None:
        """Copy the tensors now, and write them in the background."""
        staged = self.stage.take({f"{kind}-{self.rank}": named for kind, named in files.items()})
        self.unwritten += 1
        self.writer.submit(lambda: self._write(step, staged, shards, facts))

    def _write(self, step: int, staged: Staged, shards: Shards, facts: dict[str, Any]) -> None:
        goal = self.place(step)
        place = sealed.beside(goal)
        try:
            tensors = staged()
            if self.rank == 0:
                self.before()
            seals = write_parts(place, tensors, {f"state-{self.rank}": facts, f"shards-{self.rank}": shards})
            if self.rank == 0:
                sealed.seal(place, goal, seals | self._of_others(place))
                self._prune()
            else:
                with replaced(_handed_in(place, self.rank)) as new:
                    sealed.write_json(new, seals)
        except OSError as error:
            self._failed(step, place, error)
        finally:
            self.unwritten -= 1

    def _prune(self) -> None:
        newest = self.steps()[-self.last :]
        self.remove_all_but(lambda step: step in newest or (self.every > 0 and step % self.every == 0))

    def _wait_for_others(self, place: Path) -> None:
        limit = time.monotonic() + PATIENCE
        for rank in range(1, self.processes):
            while not _handed_in(place, rank).exists():
                if time.monotonic() > min(limit, self._until):
                    raise TimeoutError(f"process {rank} has not written its part")
                time.sleep(0.01)

    def _of_others(self, place: Path) -> dict[str, Any]:
        """The seals of the other processes' files, when all have handed them in."""
        self._wait_for_others(place)
        seals: dict[str, Any] = {}
        for rank in range(1, self.processes):
            path = _handed_in(place, rank)
            if not path.stat().st_size:
                raise OSError(f"process {rank} could not write its part")
            seals |= read_json(path)
        for rank in range(1, self.processes):
            _handed_in(place, rank).unlink()
        return seals

    def hurry(self) -> None:
        """The run has failed: wait for the other processes only for a few more seconds."""
        self._until = time.monotonic() + LAST_PATIENCE

    def _failed(self, step: int, place: Path, error: Exception) -> None:
        if self.rank:
            with suppress(OSError):
                place.mkdir(parents=True, exist_ok=True)
                _handed_in(place, self.rank).touch()  # an empty file finds room even on a full disk
            return
        if not isinstance(error, TimeoutError) and not self.place(step).exists():
            with suppress(TimeoutError):
                self._wait_for_others(place)  # they would write into a deleted folder
        shutil.rmtree(place, ignore_errors=True)
        why = "no room left on the disk" if is_full(error) else str(error)
        there = self.steps()
        stays = f"that of step {there[-1]:,} stays" if there else "there is none yet"
        self.say(f"the checkpoint of step {step:,} could not be written ({why}); {stays}, training continues")
