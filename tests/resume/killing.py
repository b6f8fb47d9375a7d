"""Runs that are killed at random moments, and what an undisturbed run gives."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from small_world import write_pairs

TIMES = ("seconds", "tokens_per_second", "training seconds", "of_peak", "memory")

TRANSLATE = (
    "engine.steps=60", "engine.batch=1024", "engine.snapshot=10", "engine.log=7", "engine.average=3",
    "engine.checkpoint=6", "model.width=32", "model.inner=64", "model.heads=2", "model.encoder_layers=1",
    "model.decoder_layers=1", "model.max_length=64", "model.dropout=0.1", "data.text.size=400",
    "data.text.min_count=1", "schedule.peak=0.01", "schedule.warmup=10", "search.beam=2", "validation.every=9",
    "validation.score_every=18", "validation.sentences=8",
)  # fmt: skip
EVERYTHING = (
    *TRANSLATE, "engine.accumulate=3", "engine.workers=3", "engine.clip=1.0", "model.attention_dropout=0.1",
    "objective=r-drop", "optimiser=adamw", "validation.patience=20", "engine.keep=3",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A folder with text and a cache; every start of a run is a process of its own."""

    root: Path
    device: str = "cpu"

    @staticmethod
    def make(root: Path, device: str = "cpu") -> Place:
        write_pairs(root, 300, 20, 20)
        return Place(root, device)

    def command(self, out: str, settings: tuple[str, ...], *more: str, launcher: tuple[str, ...] = ()) -> list[str]:
        files = [[f"{part}.en", f"{part}.fr"] for part in ("train", "valid", "test")]
        start = [sys.executable, *(launcher or ("-m", "headway"))]
        return [
            *start, "train", "translate", "--data", *files[0], "--valid", *files[1], "--test", *files[2],
            "--source", "en", "--target", "fr", "--device", self.device, "--threads", "1", "--out", out,
            "--set", *settings, *more,
        ]  # fmt: skip

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        surroundings = os.environ | {"HEADWAY_CACHE": str(self.root / "cache"), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command, cwd=self.root, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self, command: list[str], limit: float = 600) -> str:
        with self.start(command) as running:
            said, _ = running.communicate(timeout=limit)
        assert running.returncode == 0, said
        return said

    def kill_after(self, command: list[str], seconds: float) -> bool:
        """Whether it was still running when it was killed."""
        with self.start(command) as running:
            try:
                running.communicate(timeout=seconds)
                return False
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGKILL)
                running.communicate()
                return True

    def kill_during(self, command: list[str], out: str, moment: str, dice: random.Random) -> str:
        """SIGKILL in the middle of a step, of validation or of a checkpoint, whichever was asked for."""
        with self.start(command) as running:
            self._wait(running, self.root / out, moment, dice)
            running.send_signal(signal.SIGKILL)
            said, _ = running.communicate()
        return said

    def _wait(self, running: subprocess.Popen[str], out: Path, moment: str, dice: random.Random) -> None:
        def seen() -> int:
            if moment == "checkpoint":
                return len(list(out.glob("checkpoints/.step-*.writing")))
            path = out / "log.jsonl"
            kind = b'"validation"' if moment == "validation" else b'"train"'
            return path.read_bytes().count(kind) if path.exists() else 0

        before, wanted = seen(), dice.randint(1, 3)
        limit = time.monotonic() + 600
        while running.poll() is None and time.monotonic() < limit:
            now = seen()
            if (now > 0) if moment == "checkpoint" else (now >= before + wanted):
                break
            time.sleep(0.0005)
        time.sleep(dice.random() * (0.002 if moment == "checkpoint" else 0.05))


def result(folder: Path) -> dict[str, Any]:
    """All that a run came to: weights, log without its times, score. Two equal ones are equal bit for bit."""
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    card = json.loads((folder / "model" / "headway.json").read_text(encoding="utf-8"))
    return {
        "weights": {name: array.tobytes() for name, array in load_file(folder / "model" / "model.safetensors").items()},
        "log": [{key: value for key, value in event.items() if key not in TIMES} for event in log],
        "score": {key: value for key, value in card["score"].items() if key not in TIMES},
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").iterdir()),
        "snapshots": sorted(path.name for path in (folder / "snapshots").iterdir()),
    }
