"""Snapshots of a run's weights below `snapshots/step-N/`: the last few for averaging, and the best."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors.torch import load_file

from headway.errors import is_full
from headway.train.sealed import Broken, Say, SealedSteps, clean, verify, write_sealed
from headway.train.writer import Named, Staged, Writer

FILE = "weights"


class Snapshots(SealedSteps):
    """Keeps the newest `last` regular snapshots, the best one, and those that a checkpoint still needs.

    A snapshot that cannot be written stays in memory and is tried again, so the average never lacks one.
    """

    def __init__(self, folder: Path, last: int, *, writer: Writer, say: Say) -> None:
        super().__init__(folder, last, writer, say)
        self.regular: list[int] = []
        self.best: int | None = None
        self.needed: Callable[[], set[int]] = set  # by the checkpoints on the disk
        self.unsaved: dict[int, Named] = {}

    @property
    def wanted(self) -> set[int]:
        return {*self.regular[-self.last :], *([] if self.best is None else [self.best])}

    def resume(self, regular: list[int], best: int | None, step: int) -> None:
        """Restore the state of `step`; later snapshots are deleted and made again."""
        clean(self.folder)
        self.regular, self.best = list(regular), best
        self.remove_all_but(lambda other: other <= step)

    def save(self, step: int, weights: Named) -> None:
        self.writer.wait()  # a checkpoint that is being written needs those that were wanted when it was taken
        self.regular = [*self.regular, step][-self.last :]
        self._write(step, weights)

    def keep_best(self, step: int, weights: Named) -> None:
        """Snapshot `step` stays until a better one comes."""
        self.writer.wait()
        self.best = step
        if self.regular and self.regular[-1] == step:
            with suppress(OSError):
                self._prune()  # the best before this one is no longer needed
        else:
            self._write(step, weights)

    def _write(self, step: int, weights: Named) -> None:
        """Write in the background. The last one must be written: its staging memory is used again."""
        staged = self.stage.take({FILE: weights})
        self.writer.submit(lambda: self._finish(step, staged))

    def _finish(self, step: int, staged: Staged) -> None:
        weights = staged()[FILE]
        try:
            self.flush()
            write_sealed(self.place(step), {FILE: weights}, {})
            self._prune()
        except OSError as error:
            why = "no room left on the disk" if is_full(error) else str(error)
            self.say(f"the snapshot of step {step:,} could not be written ({why}): it is kept in memory for now")
            self.unsaved[step] = {name: tensor.clone() for name, tensor in weights.items()}

    def flush(self) -> None:
        """Write the snapshots that could not be written before; raises where that still fails."""
        for step in sorted(self.unsaved):
            if step in self.wanted:
                write_sealed(self.place(step), {FILE: self.unsaved[step]}, {})
            del self.unsaved[step]

    def _prune(self) -> None:
        stays = self.wanted | self.needed()
        self.remove_all_but(stays.__contains__)

    def load(self, step: int) -> Named:
        """Its weights, verified; raises `Broken`."""
        self.writer.wait()
        if step in self.unsaved:
            return self.unsaved[step]
        verify(self.place(step))
        return load_file(self.place(step) / f"{FILE}.safetensors")

    def average(self, count: int) -> tuple[Named, list[int]]:
        """The mean of the newest `count` regular snapshots, and which they are; a broken one is named."""
        total: Named = {}
        steps = []
        for step in self.regular[-count:]:
            try:
                weights = self.load(step)
            except Broken as error:
                self.say(f"the snapshot of step {step:,} is broken ({error}): it is left out of the average")
                continue
            steps.append(step)
            for name, tensor in weights.items():
                if tensor.is_floating_point():
                    tensor = total[name] + tensor.double() if name in total else tensor.double()
                total[name] = tensor  # of what is counted, the newest
        return {name: (t / len(steps)).float() if t.is_floating_point() else t for name, t in total.items()}, steps
