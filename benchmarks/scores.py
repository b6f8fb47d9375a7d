"""Train recipes with several seeds and keep what they reach in results/scores.json.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/scores.py multi30k-en-de multi30k-en-fr --seeds 3

The first seed is the recipe's default and runs alone, so that its time can be reported; the others share the
machine, `--parallel` at a time. Rows of recipes that are not named stay as they are.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, machine

PUBLISHED = {"multi30k-en-de": 41.02}


def train(recipe: str, seed: int, runs: Path, settings: list[str]) -> dict[str, Any]:
    """One run in a process of its own; its folder's score."""
    return trained(recipe, f"{recipe}-seed-{seed}", runs, [f"engine.seed={seed}", *settings])


def trained(recipe: str, name: str, runs: Path, settings: list[str]) -> dict[str, Any]:
    place = runs / name
    words = ["train", recipe, "--out", str(place), "--overwrite"]
    for setting in settings:
        words += ["--set", setting]
    with (runs / f"{name}.txt").open("w") as log:
        subprocess.run([sys.executable, "-m", "headway", *words], check=True, stdout=log, stderr=log)
    score: dict[str, Any] = json.loads((place / "model" / "headway.json").read_text())["score"]
    print(f"{name}: {score}", flush=True)
    return score


def row(recipe: str, scores: list[dict[str, Any]], where: str, shared: bool) -> dict[str, Any]:
    """The recipe's figure is the first that its validation names: BLEU, F1, accuracy."""
    figure = next(name for name in scores[0] if name.startswith("validation ")).removeprefix("validation ")
    tests, name = [score[f"test {figure}"] for score in scores], figure.lower()
    found: dict[str, Any] = {
        "recipe": recipe,
        f"test_{name}": tests[0],
        f"validation_{name}": scores[0][f"validation {figure}"],
        "seconds": None if shared else round(scores[0]["training seconds"]),
        "machine": where,
        "date": datetime.date.today().isoformat(),
        "note": f"default seed; {len(tests)} seeds: {', '.join(f'{value:.4g}' for value in tests)}",
    }
    if len(tests) > 1:
        found[f"mean_test_{name}"] = round(statistics.mean(tests), 4 if tests[0] <= 1 else 2)
    if recipe in PUBLISHED:
        found["published"] = PUBLISHED[recipe]
    return {name: value for name, value in found.items() if value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--shared", action="store_true", help="the machine does other work too: no seconds are kept")
    parser.add_argument("--runs", type=Path, default=Path("runs/scores"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    where = machine("cuda" if torch.cuda.is_available() else "cpu")
    scores = {recipe: [train(recipe, 1, options.runs, options.settings)] for recipe in options.recipes}
    jobs = [(recipe, seed) for seed in range(2, options.seeds + 1) for recipe in options.recipes]
    with ThreadPoolExecutor(options.parallel) as pool:
        found = list(pool.map(lambda job: train(job[0], job[1], options.runs, options.settings), jobs))
    for (recipe, _), score in zip(jobs, found, strict=True):
        scores[recipe].append(score)
    keep(options.out, [row(recipe, scores[recipe], where, options.shared) for recipe in options.recipes])


def keep(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Put these rows into scores.json; the others stay."""
    path = folder / "scores.json"
    source = path if path.exists() else RESULTS / "scores.json"
    record: dict[str, Any] = json.loads(source.read_text()) if source.exists() else {"benchmark": "scores", "rows": []}
    new = {found["recipe"]: found for found in rows}
    record["rows"] = [new.pop(old["recipe"], old) for old in record["rows"]] + list(new.values())
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
