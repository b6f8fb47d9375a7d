"""Small runs in this process, which is much quicker than processes of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headway.plain import change
from headway.recipes import RECIPES
from headway.train.job import train as train_run
from headway.train.log import Log
from headway.train.run import Run
from small_world import write_pairs

SETTINGS = (
    "engine.device=cpu", "engine.steps=24", "engine.batch=512", "engine.snapshot=4", "engine.log=5",
    "engine.average=3", "engine.checkpoint=6", "model.width=16", "model.inner=32", "model.heads=2",
    "model.encoder_layers=1", "model.decoder_layers=1", "model.max_length=64", "model.dropout=0.1",
    "data.text.size=300", "data.text.min_count=1", "schedule.peak=0.01", "schedule.warmup=10", "search.beam=1",
    "validation.every=8", "validation.score_every=12", "validation.sentences=3", "data.source=en", "data.target=fr",
)  # fmt: skip


class Heard(Log):
    """A log whose lines are kept."""

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        super().__init__(folder, tensorboard, quiet=True)
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class World:
    """Text, and runs on it."""

    root: Path
    lines: list[str] = field(default_factory=list)  # of the last run

    @staticmethod
    def make(root: Path) -> World:
        write_pairs(root, 150, 10, 10)
        return World(root)

    @property
    def settings(self) -> list[str]:
        files = (f"data.{part}={self.root / f'{part}.en'},{self.root / f'{part}.fr'}" for part in ("train", "valid"))
        return [*SETTINGS, *files]

    def run(self, *more: str) -> Run:
        return change(RECIPES["translate"].make(), [*self.settings, *more])

    def train(self, out: Path, *more: str, resume: bool = False) -> Path:
        run = self.run(*more)
        out.mkdir(parents=True, exist_ok=True)
        log = Heard(out, run.engine.tensorboard)
        self.lines = log.lines
        try:
            train_run(run, out, log, resume=resume)
        finally:
            log.close()
        return out

    def command(self, out: Path, *more: str) -> list[str]:
        """What a person types for the same run."""
        files = [[str(self.root / f"{part}.{side}") for side in ("en", "fr")] for part in ("train", "valid")]
        return [
            "train", "translate", "--data", *files[0], "--valid", *files[1], "--out", str(out),
            "--set", *SETTINGS, *more,
        ]  # fmt: skip

    def heard(self, part: str) -> bool:
        return any(part in line for line in self.lines)
