"""Snapshots of a run's weights below `checkpoints/step-N/`: the last few for averaging, and the best."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headway.folder import WEIGHTS, replace_folder

Weights = dict[str, Tensor]


class Checkpoints:
    """Keeps the newest `last` regular snapshots and the best one; each appears whole or not at all."""

    def __init__(self, folder: Path, last: int) -> None:
        self.folder, self.last = folder, max(last, 1)
        self.regular: list[int] = []
        self.best: int | None = None

    def place(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def save(self, step: int, weights: Weights, facts: dict[str, Any]) -> None:
        self._write(step, weights, facts)
        self.regular.append(step)
        self._prune()

    def keep_best(self, step: int, weights: Weights, facts: dict[str, Any]) -> None:
        """Snapshot `step` stays until a better one comes."""
        if not self.place(step).exists():
            self._write(step, weights, facts)
        self.best = step
        self._prune()

    def _write(self, step: int, weights: Weights, facts: dict[str, Any]) -> None:
        def fill(place: Path) -> None:
            save_file(weights, place / WEIGHTS)
            (place / "step.json").write_text(json.dumps({"step": step} | facts, indent=1) + "\n", encoding="utf-8")

        replace_folder(self.place(step), fill)

    def _prune(self) -> None:
        self.regular = self.regular[-self.last :]
        for place in self.folder.glob("step-*"):
            if int(place.name.removeprefix("step-")) not in (*self.regular, self.best):
                shutil.rmtree(place, ignore_errors=True)

    def load(self, step: int) -> Weights:
        return load_file(self.place(step) / WEIGHTS)

    def average(self, count: int) -> tuple[Weights, list[int]]:
        """The mean of the newest `count` regular snapshots, and which they are."""
        steps = self.regular[-count:]
        total: dict[str, Tensor] = {}
        for step in steps:
            for name, tensor in self.load(step).items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        return {name: (tensor / len(steps)).to(torch.float32) for name, tensor in total.items()}, steps
