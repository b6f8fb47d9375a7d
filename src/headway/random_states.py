"""The states of all random generators of a process, as plain values and tensors, and back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def take_states(device: torch.device) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The states of Python, NumPy and torch (CPU and this GPU): facts for a JSON file, tensors for another."""
    version, words, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state()
    facts = {
        "python": [version, list(words), gauss],
        "numpy": [str(kind), np.asarray(keys).tolist(), int(place), int(has_gauss), float(cached)],
    }
    tensors = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    return facts, tensors


def process_seed(seed: int, rank: int, step: int = 0) -> int:
    """The seed of one process among several, if it begins at `step`: dropout of its own in each."""
    return int(np.random.SeedSequence((seed, rank + 1, step)).generate_state(1, np.uint64)[0])


def put_states(device: torch.device, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    version, words, gauss = facts["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, place, has_gauss, cached = facts["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), place, has_gauss, cached))
    torch.set_rng_state(tensors["cpu"])
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"], device)
