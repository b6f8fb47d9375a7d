"""Train recipes, each with one or more seeds, and keep what each reached in `results/score-RECIPE.json`.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/scores.py multi30k-en-de ptb-lstm-medium --seeds 3 --parallel 4

A record holds what the runs themselves wrote at their end, one row a seed; the first seed is the recipe's own. `beside`
is how many other runs of this script shared the machine at most, so what the seconds are worth. A run that was stopped
is resumed by the same command, one that has ended is not trained again: `--runs` is where they lie.
"""

from __future__ import annotations

from measure import RESULTS, write

# isort: split
import argparse
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from side_by_side import shared_gpu, training_options


def train(recipe: str, seed: int, runs: Path, settings: list[str]) -> dict[str, Any]:
    """One run in a process of its own, or what it came to before; its score."""
    own = [f"engine.seed={seed}"] if seed > 1 else []
    return trained(recipe, f"{recipe}-seed-{seed}", runs, [*own, *settings])


def trained(recipe: str, name: str, runs: Path, settings: Sequence[str], init: str = "") -> dict[str, Any]:
    place = runs / name
    card = place / "model" / "headway.json"
    if not card.exists():
        words = [*(["demo"] if recipe == "demo" else ["train", recipe]), "--out", str(place)]  # demo draws pictures too
        words += ["--init", init] if init else []
        for setting in settings:
            words += ["--set", setting]
        with (runs / f"{name}.txt").open("a") as log:
            subprocess.run([sys.executable, "-m", "headway", "--debug", *words], check=True, stdout=log, stderr=log)
    for part in ("checkpoints", "snapshots"):  # a hundred runs fill a disk; the model and the log stay
        shutil.rmtree(place / part, ignore_errors=True)
    score: dict[str, Any] = json.loads(card.read_text())["score"]
    print(f"{name}: {score}", flush=True)
    return score | {"parameters": parameters(place / "model")}


def parameters(folder: Path) -> int:
    """Numbers in the weights of a model folder."""
    files = sorted(folder.glob("*.safetensors"))
    opened = [safe_open(file, "pt") for file in files]
    return sum(math.prod(one.get_slice(name).get_shape()) for one in opened for name in one.keys())  # noqa: SIM118


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = training_options(parser, "scores", seeds=1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    jobs = [(recipe, seed) for recipe in options.recipes for seed in range(1, options.seeds + 1)]
    beside = min(options.parallel, len(jobs)) - 1
    with shared_gpu() if beside else nullcontext(), ThreadPoolExecutor(options.parallel) as pool:
        found = {job: pool.submit(train, *job, options.runs, options.settings) for job in jobs}
        try:
            keep(options, found, device, beside)
        except BaseException:  # stopped: nothing more is begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def keep(options: argparse.Namespace, found: dict[tuple[str, int], Any], device: str, beside: int) -> None:
    """Write a recipe's record as soon as its last seed has ended. What fails is named when all others have ended."""
    waiting = {recipe: [found[recipe, seed] for seed in range(1, options.seeds + 1)] for recipe in options.recipes}
    failed = []
    for _ in as_completed(found.values()):
        for recipe in [recipe for recipe, runs in waiting.items() if all(run.done() for run in runs)]:
            runs = waiting.pop(recipe)
            if any(run.exception() for run in runs):
                failed.append(recipe)
                continue
            rows = [{"seed": seed} | run.result() for seed, run in enumerate(runs, 1)]
            write(f"score-{recipe}", device, rows, options.out, recipe=recipe, beside=beside)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; {options.runs} has what each said")


if __name__ == "__main__":
    main()
