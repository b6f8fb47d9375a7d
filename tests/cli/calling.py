"""How the tests call the command, and the files they call it with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SMALL = [
    "--set", "engine.steps=30", "engine.batch=1024", "engine.snapshot=10", "engine.log=10", "engine.average=2",
    "model.width=32", "model.inner=64", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "model.max_length=64", "model.dropout=0.0", "data.text.size=400", "data.text.min_count=1",
    "schedule.peak=0.01", "schedule.warmup=10", "search.beam=3", "validation.every=15", "validation.score_every=15",
    "validation.sentences=8",
]  # fmt: skip
DEVICE = ["--device", "cpu"]


@dataclass(frozen=True)
class Answer:
    """What a call of the command came to."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of an error; anything else on stderr or stdout is a failure of the test."""
        assert self.out == "", self.out
        assert self.err.startswith("headway: "), self.err
        assert self.err.count("\n") == 1 and self.err.endswith("\n"), self.err
        return self.err.removeprefix("headway: ").rstrip("\n")


Headway = Callable[..., Answer]


def process(*arguments: object, **how: object) -> subprocess.CompletedProcess[bytes]:
    """The real command as a process of its own."""
    command = [sys.executable, "-m", "headway", *map(str, arguments)]
    options: dict[str, object] = {"capture_output": True, "timeout": 300} | how
    return subprocess.run(command, **options)  # type: ignore[call-overload]


def write(folder: Path, name: str, rows: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


@dataclass(frozen=True)
class World:
    """Files of the demo's grammar and a run trained on them."""

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def model(self) -> Path:
        return self.run / "model"

    def files(self, part: str) -> list[Path]:
        return [self.root / f"{part}.en", self.root / f"{part}.fr"]

    @property
    def data(self) -> list[object]:
        return ["--data", *self.files("train"), "--valid", *self.files("valid"), "--source", "en", "--target", "fr"]

    def train(self, out: Path, *more: object) -> list[object]:
        return ["train", "translate", *self.data, *DEVICE, *SMALL, "--out", out, *more]


def listing(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder with its content: two equal listings mean that nothing was touched."""
    paths = (Path(root) / name for root, folders, files in os.walk(folder) for name in (*folders, *files))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(paths)}
