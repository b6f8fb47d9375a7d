"""Shakespeare letter by letter on CPU cores: headway's recipe beside nanoGPT's model and settings, same wall time.

nanoGPT trains with its settings for a laptop (2,000 steps of 12 windows of 64 characters, 4 layers of width 128); that
takes some time. headway's recipe `shakespeare-char-cpu` is then given the same time, and its rate comes down in it (its
seconds count the last judgement too). Both are judged by the loss on the whole held-out text in windows of 64 side by
side. nanoGPT's `model.py` is read from .peers/nanogpt_model.py.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/shakespeare.py
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import math
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.data.catalog import find
from headway.data.documents import Documents
from headway.recipes import RECIPES
from headway.train.job import train
from headway.train.log import Log

LENGTH, ROWS, STEPS = 64, 12, 2000


def characters() -> tuple[torch.Tensor, torch.Tensor, int]:
    """The text as nanoGPT prepares it: ids of its characters, the first 90 % to learn from."""
    text = "".join(chunk.text for chunk in Documents.at(find("tinyshakespeare/input.txt")).chunks())
    known = {character: number for number, character in enumerate(sorted(set(text)))}
    ids = torch.from_numpy(np.array([known[character] for character in text]))
    cut = int(0.9 * len(ids))
    return ids[:cut], ids[cut:], len(known)


def nanogpt(steps: int) -> tuple[float, float]:
    """Seconds of training, and the loss on the whole held-out text."""
    sys.path.insert(0, ".peers")
    from nanogpt_model import GPT, GPTConfig  # type: ignore[import-not-found]

    train, valid, size = characters()
    torch.manual_seed(1337)
    settings = GPTConfig(
        block_size=LENGTH, vocab_size=size, n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False
    )  # fmt: skip
    model: Any = GPT(settings)
    optimiser = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    started = time.perf_counter()
    for step in range(steps):
        warm, done = (step + 1) / 101, min(1.0, max(0, step - 100) / (steps - 100))
        rate = 1e-3 * warm if step < 100 else 1e-4 + 0.5 * (1 + math.cos(math.pi * done)) * 9e-4
        for group in optimiser.param_groups:
            group["lr"] = rate
        at = torch.randint(len(train) - LENGTH, (ROWS,))
        x, y = (torch.stack([train[i + k : i + k + LENGTH] for i in at]) for k in (0, 1))
        model(x, y)[1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - started
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for chunk in range(0, len(valid) - 1, 64 * LENGTH):
            part = valid[chunk : chunk + 64 * LENGTH + 1]
            whole = (len(part) - 1) // LENGTH * LENGTH
            x, y = part[:whole].view(-1, LENGTH), part[1 : whole + 1].view(-1, LENGTH)
            if len(x):
                total, count = total + float(model(x, y)[1]) * whole, count + whole
    return seconds, total / count


def headway(limit: float) -> tuple[int, float, float]:
    """Steps, seconds and loss of the recipe with so much time."""
    run = RECIPES["shakespeare-char-cpu"].make()
    never = replace(run.validation, every=10**9, score_every=10**9)
    engine = replace(run.engine, steps=10**6, seconds=limit, log=10, device="cpu", snapshot=10**9, checkpoint=10**9)
    run = replace(run, validation=never, engine=engine)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        scores = train(run, place, Log(place, quiet=True)).scores
    return scores["steps"], scores["training seconds"], scores["validation loss"]


def main() -> None:
    options = arguments(__doc__).parse_args()
    peer_seconds, peer_loss = nanogpt(STEPS)
    print(f"nanoGPT: {STEPS} steps in {peer_seconds:.0f} s, loss {peer_loss:.4f}", flush=True)
    steps, seconds, loss = headway(peer_seconds)
    rows = [
        {
            "who": "nanoGPT's CPU settings",
            "steps": STEPS,
            "seconds": round(peer_seconds, 1),
            "loss": round(peer_loss, 4),
        },
        {"who": "headway shakespeare-char-cpu", "steps": steps, "seconds": round(seconds, 1), "loss": round(loss, 4)},
    ]
    write("shakespeare-cpu", "cpu", rows, options.out, case={"rows": ROWS, "length": LENGTH})


if __name__ == "__main__":
    main()
